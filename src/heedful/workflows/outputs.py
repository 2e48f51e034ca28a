"""Whether a file can be written, before the work whose result it is to hold."""

import os
from collections.abc import Iterable
from pathlib import Path

from heedful.errors import InputError


def check_output(output: Path, inputs: Iterable[Path | None] = (), *, makes_folder: bool = False) -> None:
    """Refuse a file that cannot be written, or that is read too.

    Args:
        output: the file; `-` stands for stdout.
        inputs: the files that are read, None and `-` among them.
        makes_folder: whether the directories above it are made where there are none.

    Raises:
        InputError: it is an input or a directory, or nobody may write it.
    """
    if str(output) == "-":
        return
    for each in inputs:
        if each is not None and str(each) != "-" and _is_same(output, each):
            raise InputError(f"{output}: is the input too; write to another file")
    if output.is_dir():
        raise InputError(f"{output}: is a directory; give the name of a file")
    folder = output.absolute().parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"{output}: there is no directory {folder}; make it, or give another --output")
    is_special = output.exists() and not output.is_file()  # a pipe or a device, which stays what it is
    needed = [output] if is_special else [folder, *([output] if output.exists() else [])]
    if not all(os.access(path, os.W_OK) for path in needed):
        raise InputError(f"{output}: cannot be written: permission denied; give another --output")


def _is_same(one: Path, other: Path) -> bool:
    if one.exists() and other.exists():
        return one.samefile(other)  # by hard links too
    return one.resolve() == other.resolve()
