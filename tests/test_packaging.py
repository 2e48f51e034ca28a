"""What is built and packaged: the native library where it can be built, and a reason where it cannot."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from heedful.runtime.native import native

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import sys, scikit_build_core.build as backend; getattr(backend, sys.argv[1])(sys.argv[2])"
REASON = "heedful/native-library.txt"


def built(hook: str, source: Path, folder: Path, **environment: str) -> Path:
    """The distribution that a hook of the build backend makes of a source tree."""
    folder.mkdir()
    command = [sys.executable, "-c", BUILD, hook, str(folder)]
    inherited = {name: value for name, value in os.environ.items() if name not in {"CC", "CFLAGS"}}
    done = subprocess.run(
        command, cwd=source, env=inherited | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = folder.iterdir()
    return path


def files_under(folder: str) -> set[str]:
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT).as_posix()
        for path in paths
        if "__pycache__" not in path.parts and path.stem != "libheedful"
    }


@pytest.fixture
def small_tree(tmp_path: Path) -> Path:
    """The source tree with no more of Python than loads the library; and an empty folder."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "native", tree / "native")
    (tree / "src/heedful/runtime").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    modules = [
        f"src/heedful/{name}.py" for name in ("__init__", "errors", "runtime/__init__", "runtime/native")
    ]
    for name in ("pyproject.toml", "README.md", "LICENSE", *modules):
        shutil.copy(ROOT / name, tree / name)
    return tree


@pytest.mark.slow
def test_the_source_distribution_has_what_a_build_needs_and_no_more(tmp_path: Path) -> None:
    with tarfile.open(built("build_sdist", ROOT, tmp_path / "sdist")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    alone = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert names == alone | files_under("src") | files_under("native")


def test_the_wheel_has_every_module_and_the_phrase_book(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wheel = built("build_wheel", ROOT, tmp_path / "dist", PATH=str(tmp_path / "empty"))
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {f"src/{name}" for name in names - {REASON}} == files_under("src")
    assert "heedful/data/phrasebook.txt.bz2" in names


@pytest.mark.slow
def test_without_a_compiler_the_package_says_that_there_was_none(small_tree: Path, tmp_path: Path) -> None:
    wheel = built("build_wheel", small_tree, tmp_path / "dist", PATH=str(tmp_path / "empty"))
    with zipfile.ZipFile(wheel) as archive:
        assert "no working C compiler was found" in archive.read(REASON).decode()


@pytest.mark.slow
@pytest.mark.skipif(native().level is None, reason="no C compiler")
def test_where_the_compiler_fails_the_package_says_that_the_build_failed(
    small_tree: Path, tmp_path: Path
) -> None:
    (small_tree / "native/level.c").write_text("#error broken\n", encoding="utf-8")
    wheel = built("build_wheel", small_tree, tmp_path / "dist")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "its build failed" in archive.read(REASON).decode()


@pytest.mark.slow
def test_an_editable_installation_has_new_modules_at_once_and_finds_what_was_built(
    small_tree: Path, tmp_path: Path
) -> None:
    wheel = built("build_editable", small_tree, tmp_path / "dist", PATH=str(tmp_path / "empty"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (small_tree / "src/heedful/new.py").write_text(
        "from heedful.runtime.native import native", encoding="utf-8"
    )
    code = (
        "import site, sys; site.addsitedir(sys.argv[1]); import heedful.new as n; print(n.native().why_not)"
    )
    command = [sys.executable, "-S", "-c", code, str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "no working C compiler was found" in done.stdout


@pytest.mark.skipif(native().level is None, reason="no native library")
@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="wheels of other systems than Linux name no glibc"
)
def test_the_library_asks_for_no_glibc_beyond_that_of_its_wheel() -> None:
    promised = re.search(r"--plat manylinux_(\d+)_(\d+)_", (ROOT / "Makefile").read_text(encoding="utf-8"))
    loaded = re.search(
        r"/.*libheedful\.so$", Path("/proc/self/maps").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert promised and loaded
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", Path(loaded[0]).read_bytes())  # none: another C library
    assert all((int(major), int(minor)) <= (int(promised[1]), int(promised[2])) for major, minor in versions)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
@pytest.mark.parametrize(
    ("venv", "where"), [("/somewhere/venv", "/somewhere/venv/bin"), ("own", f"{ROOT}/own/bin")]
)
def test_a_wheel_is_built_with_the_tools_of_any_environment(venv: str, where: str) -> None:
    command = ["make", "--dry-run", "--assume-old", f"{venv}/.installed", "wheel", f"VENV={venv}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f'PATH="{where}:$PATH" auditwheel repair' in done.stdout


CI_FILES = (".github/workflows/ci.yml", ".github/workflows/release.yml", ".gitlab-ci.yml")


def test_code_hosts_run_what_a_clone_runs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in CI_FILES]
    for text in texts:
        called = set(re.findall(r"^ *- (?:run: )?make ([a-z-]+)", text, re.MULTILINE))
        assert called
        assert called <= targets
    for text in (texts[0], texts[2]):
        assert re.search(r"- (run: )?\.ci/run\n", text)


def test_this_installation_has_the_library_or_says_why_not() -> None:
    assert native().level is not None or "when heedful was installed" in str(native().why_not)


@pytest.mark.slow
@pytest.mark.skipif(native().level is None, reason="no C compiler")
def test_one_wheel_serves_every_python_and_computes_at_every_level(tmp_path: Path) -> None:
    wheel = built("build_wheel", ROOT, tmp_path / "dist")
    assert "-py3-none-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    done = subprocess.run(
        [sys.executable, "-S", ROOT / "tools/check_wheel.py"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed"))
    assert done.stdout.count(": computes") == sum(level.why_not is None for level in native().levels)
