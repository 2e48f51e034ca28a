"""Check that an output file can be written, before the work starts."""

import os
from collections.abc import Iterable
from pathlib import Path

from heedful.bundle import CONFIG_FILE, bundle_file_names
from heedful.errors import InputError
from heedful.workflows.run_names import BUNDLES, CHECKPOINTS, CONFIG, LOG, SKIPPED, TOKENIZER


def check_output(
    output: Path,
    inputs: Iterable[Path | None] = (),
    *,
    models: Iterable[Path] = (),
    makes_folder: bool = False,
) -> None:
    """Refuse an output file that cannot be written, or that is an input.

    Args:
        output: the file; `-` is stdout.
        inputs: the input files; None and `-` are ignored.
        models: the runs and bundles that are read.
        makes_folder: whether missing parent directories will be created.

    Raises:
        InputError: it is an input, a file of a model, a directory, or not writable.
    """
    if str(output) == "-":
        return
    for each in inputs:
        if each is not None and str(each) != "-" and _is_same(output, each):
            raise InputError(f"{output}: is the input too; write to another file")
    for model in models:
        if _is_part_of(output, model):
            raise InputError(f"{output}: is a file of the model {model}; write to another file")
    if output.is_dir():
        raise InputError(f"{output}: is a directory; give the name of a file")
    folder = output.absolute().parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{output}: there is no directory {folder}; make it, or give another --output")
    is_special = output.exists() and not output.is_file()  # a pipe or a device, which is not replaced
    needed = [output] if is_special else [folder, *([output] if output.exists() else [])]
    if not all(os.access(path, os.W_OK) for path in needed):
        raise InputError(f"{output}: cannot be written: permission denied; give another --output")


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)  # also hard links
    return os.path.realpath(one) == os.path.realpath(other)  # works for a loop of links too


def _is_part_of(output: Path, model: Path) -> bool:
    """Return whether a file is, or would be, part of a model's directory."""
    real, folder = Path(os.path.realpath(output)), Path(os.path.realpath(model))
    if not folder.is_dir() or not real.is_relative_to(folder) or real == folder:
        return False
    first = real.relative_to(folder).parts[0]
    of_bundle = bundle_file_names(folder) if (folder / CONFIG_FILE).is_file() else []
    return first in {*BUNDLES, CHECKPOINTS, TOKENIZER, CONFIG, LOG, SKIPPED, *of_bundle}
