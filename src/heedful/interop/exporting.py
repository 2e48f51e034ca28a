"""Export: a directory that appears as a whole or not at all, with a README."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template

from safetensors import SafetensorError

from heedful.errors import InteropError, RunError
from heedful.runtime.durable import why_not_written, writing_at
from heedful.settings.model import ModelConfig
from heedful.storage.bundle import CARD_FILE


@contextmanager
def new_directory(output: Path, *, option: str = "--output") -> Iterator[Path]:
    """Yield a temporary directory, which is renamed to `output` after the block; an error leaves nothing.

    Args:
        output: its path.
        option: the command-line option of the path, for messages.

    Raises:
        RunError: the output exists.
        InteropError: it cannot be written.
    """
    if output.exists() or output.is_symlink():
        raise RunError(f"{output}: already exists; give another {option}")
    unfinished = writing_at(output)
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        unfinished.rename(output)
    except (OSError, SafetensorError) as error:
        raise InteropError(f"{output}: cannot be written: {why_not_written(error)}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def write_readme(
    directory: Path, template: Template, model: ModelConfig, *, notes: Iterable[str] = (), **fields: object
) -> None:
    """Write the README of an exported model.

    Args:
        directory: of the files.
        template: in Markdown, with `$size`, `$notes` and the fields.
        model: whose size is shown.
        notes: shown as a list.
        **fields: values of the template.
    """
    size = f"{model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
    listed = "\n".join(f"- {note}" for note in notes)
    text = template.substitute(fields, size=size, notes=listed)
    (directory / CARD_FILE).write_text(text, encoding="utf-8")
