"""Create a directory of exported files atomically."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from heedful.durable import why_not_written, writing_at
from heedful.errors import InteropError, RunError


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
