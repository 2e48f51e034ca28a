"""Check that an output file can be written, before the work starts."""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from heedful.errors import InputError, OptionError, refuse_if
from heedful.runtime.durable import descriptor_of, is_same_file, status_of, why_not_written
from heedful.storage.description import CONFIG_FILE, bundle_file_names
from heedful.tasks.directory import BUNDLES, CHECKPOINTS, CONFIG, LOG, SKIPPED, TOKENIZER

_STDIN, _STDOUT = 0, 1


def check_output(
    output: Path | None,
    *,
    inputs: Iterable[Path | None] = (),
    models: Iterable[Path] = (),
    makes_folder: bool = False,
) -> None:
    """Refuse an output file that cannot be written, or that is an input.

    Args:
        output: the file; None and `-` are stdout.
        inputs: the input files; `-` is stdin, and None is ignored.
        models: the runs and bundles that are read.
        makes_folder: whether missing parent directories will be created.

    Raises:
        InputError: it is an input, a file of a model, a directory, or not writable.
    """
    if output is not None and str(output) == "-":
        output = None
    written = status_of(_STDOUT if output is None else output)
    sources = [status_of(_STDIN if str(path) == "-" else path) for path in inputs if path is not None]
    # also by links, and where the shell has opened it
    is_input = any(is_same_file(source, written) for source in sources)
    refuse_if((is_input, f"{output or 'stdout'}: is the input too; write to another file"), error=InputError)
    if output is None:
        return
    if (number := descriptor_of(output)) is not None:
        problem = _why_not_open(number)
        refuse_if((problem, f"{output}: {problem}"), error=InputError)
        return
    folder = output.absolute().parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    is_special = output.exists() and not output.is_file()  # a pipe or a device, which is not replaced
    needed = [output] if is_special else [folder, *([output] if output.exists() else [])]
    may_write = all(os.access(path, os.W_OK) for path in needed)
    of_models = [
        (_is_part_of(output, model), f"{output}: is a file of the model {model}; write to another file")
        for model in models
    ]
    refuse_if(
        *of_models,
        (output.is_dir(), f"{output}: is a directory; give the name of a file"),
        (
            not folder.is_dir(),
            f"{output}: there is no directory {folder}; make it, or give another --output",
        ),
        (not may_write, f"{output}: cannot be written: permission denied; give another --output"),
        error=InputError,
    )


def check_outputs_differ(outputs: Mapping[str, Path | None]) -> None:
    """Refuse an output in the place of another, or of its parts until it is complete.

    Args:
        outputs: files by their options; None is stdout, or nothing.

    Raises:
        OptionError: naming the file and both options.
    """
    options: dict[str, str] = {}
    for option, file in outputs.items():
        if file is None:
            continue
        real = os.path.realpath(file)
        for other, name in options.items():
            if real == other or real.startswith((f"{other}.unfinished", f"{other}.translations")):
                raise OptionError(f"{file}: is {name} too; give {option} another name")
        options[real] = option


def _why_not_open(number: int) -> str | None:
    try:
        if stat.S_ISREG(os.fstat(number).st_mode):
            os.write(number, b"")  # fails where it is open for reading only
    except OSError as error:
        return f"cannot be written: {why_not_written(error)}"
    return None


def _is_part_of(output: Path, model: Path) -> bool:
    """Return whether a file is, or would be, part of a model's directory, also of the run of a bundle."""
    if model.name in BUNDLES and (model.parent / CONFIG).exists():
        model = model.parent
    real, folder = Path(os.path.realpath(output)), Path(os.path.realpath(model))
    if not folder.is_dir() or not real.is_relative_to(folder) or real == folder:
        return False
    first = real.relative_to(folder).parts[0]
    of_bundle = bundle_file_names(folder) if (folder / CONFIG_FILE).is_file() else []
    return first in {*BUNDLES, CHECKPOINTS, TOKENIZER, CONFIG, LOG, SKIPPED, *of_bundle}
