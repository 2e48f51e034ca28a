"""C sources of this package, compiled where the machine has a compiler: half a second, once."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

import platformdirs
import torch

_FLAGS = (
    *("-O3", "-march=native", "-shared", "-fPIC", "-pthread"),
    # Sums may be taken in another order; infinities and NaN keep their meaning.
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math"),
)
_SECONDS = 300  # a compiler that takes longer is given up; on a busy machine one minute is not enough


def compiled(package: str, source: str) -> ctypes.CDLL | None:
    """Return a C source of a package as a loaded library; None where that cannot be had.

    It is kept in the user's cache, under a name made from sources, flags, compiler and processor.

    Args:
        package: such as "heedful.nn".
        source: a file of it, "kernels.c"; it may include the headers of its package and those of heedful.nn.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    code = resources.files(package).joinpath(source).read_bytes()
    headers = {
        file.name: file.read_bytes()
        for directory in sorted({"heedful.nn", package})
        for file in sorted(resources.files(directory).iterdir(), key=lambda file: file.name)
        if file.name.endswith(".h")
    }
    machine = f"{platform.machine()} {platform.system()} {torch.cpu.get_capabilities()} {compiler} {_FLAGS}"
    digest = hashlib.sha256(b"".join([*headers.values(), code, machine.encode()])).hexdigest()[:16]
    try:
        path = platformdirs.user_cache_path("heedful") / f"{Path(source).stem}-{digest}.so"
        if not path.exists():
            _compile(compiler, {source: code, **headers}, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None


def _compile(compiler: str, sources: dict[str, bytes], path: Path) -> None:
    """Compile the first; the library appears whole or not at all, whoever else does the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as temporary:
        directory = Path(temporary)
        for name, text in sources.items():
            (directory / name).write_bytes(text)
        result = directory / "library.so"
        command = [compiler, *_FLAGS, "-o", str(result), str(directory / next(iter(sources))), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
        result.replace(path)
