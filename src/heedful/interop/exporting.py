"""Parts of all exports: a refusal, and the README of an exported model."""

from collections.abc import Iterable
from pathlib import Path
from string import Template

from heedful.errors import InteropError
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts, in_words
from heedful.settings.model import ModelConfig
from heedful.storage.description import CARD_FILE


def refuse_recurrent(config: ModelConfig, system: str) -> None:
    """Refuse a decoder with recurrent units, which other systems have no layers for.

    Raises:
        InteropError: the model has one.
    """
    if config.decoder_unit != "attention":
        raise InteropError(
            f'--to {system}: model.decoder_unit="{config.decoder_unit}" is not supported there; only models '
            "whose decoder has self-attention can be exported"
        )


def refuse_changed(model: Transformer, system: str) -> None:
    """Refuse a model with parts that are not heedful's own, which other systems do not compute.

    Raises:
        InteropError: the model has one.
    """
    if changes := changed_parts(model):
        raise InteropError(
            f"--to {system}: {in_words(changes)}: not heedful's own, and {system} would compute another "
            "model; translate with heedful"
        )


def write_readme(
    directory: Path, template: Template, model: ModelConfig, *, notes: Iterable[str] = (), **fields: object
) -> None:
    """Write the README of an exported model.

    Args:
        directory: the directory of the model.
        template: in Markdown, with `$size`, `$notes` and the fields.
        model: the settings that give the size.
        notes: shown as a list.
        **fields: values of the template.
    """
    size = f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
    listed = "\n".join(f"- {note}" for note in notes)
    text = template.substitute(fields, size=size, notes=listed)
    (directory / CARD_FILE).write_text(text, encoding="utf-8")
