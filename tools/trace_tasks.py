"""Count what a task runs through, for a line of text: python tools/trace_tasks.py BUNDLE [-v].

Prints the number of distinct functions of heedful that `heedful translate` calls (what runs at import is not
counted), of the files that they are in, and of the modules that it imports; with -v, their names too.
"""

import contextlib
import io
import sys
from pathlib import Path
from types import FrameType

import heedful
from heedful.cli.main import main

PACKAGE = str(Path(heedful.__file__).parent)


def is_importing(frame: FrameType | None) -> bool:
    """Return whether a module of heedful is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def trace_translation(bundle: Path, line: str) -> dict[str, list[str]]:
    """Return the names of the functions, files and modules that the translation of a line needs."""
    functions: set[tuple[str, str]] = set()

    def on_call(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_named = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")
        if event == "call" and is_named and not is_importing(frame):
            functions.add((code.co_filename[len(PACKAGE) + 1 :], code.co_qualname))

    arguments, stdin = sys.argv, sys.stdin
    sys.argv = ["heedful", "translate", str(bundle)]
    sys.stdin = io.TextIOWrapper(io.BytesIO(f"{line}\n".encode()), encoding="utf-8")
    sys.setprofile(on_call)
    try:
        with contextlib.suppress(SystemExit):
            main()
    finally:
        sys.setprofile(None)
        sys.argv, sys.stdin = arguments, stdin
    return {
        "functions": sorted(f"{file}: {name}" for file, name in functions),
        "files": sorted({file for file, _ in functions}),
        "modules": sorted(name for name in sys.modules if name.partition(".")[0] == "heedful"),
    }


if __name__ == "__main__":
    found = trace_translation(Path(sys.argv[1]), "the cat sleeps .")
    if "-v" in sys.argv:
        print("\n".join(each for names in found.values() for each in names))
    print(", ".join(f"{len(names)} {kind}" for kind, names in found.items()))
