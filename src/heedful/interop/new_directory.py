"""A directory of exported files, which appears as a whole or not at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from heedful.durable import why_not_written, writing_at
from heedful.errors import InteropError, RunError


@contextmanager
def new_directory(output: Path, *, option: str = "--output") -> Iterator[Path]:
    """Give a directory to fill, which becomes `output` at the end of the block; an error leaves nothing.

    Args:
        output: its path.
        option: that the user gave it by, for messages.

    Raises:
        RunError: the output exists.
        InteropError: the disk is full, or may not be written to.
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
