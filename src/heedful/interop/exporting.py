"""Parts of all exports: a refusal, and the README of an exported model."""

from collections.abc import Iterable
from pathlib import Path
from string import Template

from heedful.errors import InteropError
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts, in_words
from heedful.settings.model import ModelConfig
from heedful.storage.description import CARD_FILE

_USUAL = {
    "decoder_unit": "attention", "query_norm": False, "attention_cap": None, "output_cap": None,
    "rotary_base": 10_000.0, "rotary_scale": 1.0, "full_attention_every": 1,
}  # fmt: skip


def refuse_variants(config: ModelConfig, system: str) -> None:
    """Refuse settings that other systems cannot compute.

    Raises:
        InteropError: the model has one; it is named.
    """
    unusual = ["norm"] if config.norm == "both" else []
    unusual += [key for key, value in _USUAL.items() if getattr(config, key) != value]
    if unusual:
        value = getattr(config, unusual[0])
        shown = f'"{value}"' if isinstance(value, str) else value
        raise InteropError(
            f"--to {system}: model.{unusual[0]}={shown} is not supported there; translate with heedful"
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
