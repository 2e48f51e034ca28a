"""What `make release` refuses, the environments in which it uses its files, and the notes it writes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release import (
    ROOT,
    Environment,
    ReleaseError,
    cited_versions,
    interpreters,
    notes,
    section_of,
    serve,
    version_of,
)

CHANGELOG = """# Changelog

## [Unreleased]

- Later.

## [1.2.0] - 2026-11-23

### Added

- A verb.

## [1.1.0] - 2026-10-01

- Before.

## [1.0.0]

- First.

## [0.9.0] - 2026-09-01

Nothing yet.
"""


def test_citations_name_the_version_of_the_project() -> None:
    version = version_of(ROOT)
    assert cited_versions(ROOT) == {"CITATION.cff": version, "README.md": version}


def test_the_notes_are_the_entries_of_one_version() -> None:
    assert section_of(CHANGELOG, "1.2.0") == "### Added\n\n- A verb."
    assert section_of(CHANGELOG, "1.1.0") == "- Before."


@pytest.mark.parametrize("version", ["1.3.0", "1.2", "1.0.0", "0.9.0"])
def test_a_version_needs_a_dated_section_with_entries(version: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(version)):
        section_of(CHANGELOG, version)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a version, its changelog, its citations and the tool."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "release.py", tmp_path / "tools")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n', encoding="utf-8")
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
    (tmp_path / "CITATION.cff").write_text("version: 1.2.0\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("  version = {1.2.0},\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")


def check(folder: Path) -> tuple[int, str]:
    command = [sys.executable, folder / "tools" / "release.py", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_clean_checkout_of_a_new_version_can_be_released(checkout: Path) -> None:
    assert check(checkout) == (0, "")


def test_a_checkout_that_cannot_be_released_is_refused(checkout: Path) -> None:
    def assert_refused(name: str) -> None:
        code, message = check(checkout)
        assert (code, message.count("\n")) == (1, 1)
        assert name in message

    (checkout / "new.py").touch()
    assert_refused("new.py")
    (checkout / "CITATION.cff").write_text("version: 1.1.0\n", encoding="utf-8")
    assert_refused("CITATION.cff")
    git(checkout, "checkout", "--quiet", "CITATION.cff")
    commit(checkout)
    git(checkout, "tag", "v1.2.0")
    assert_refused("v1.2.0")
    (checkout / "pyproject.toml").write_text('[project]\nversion = "1.3.0"\n', encoding="utf-8")
    assert_refused("1.3.0")


def test_each_version_of_python_is_used_once_and_none_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\necho 3 10 /usr/bin/python3.10\n", encoding="utf-8")
    old.chmod(0o755)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = ["no-such-python", str(old), sys.executable, sys.executable]
    assert interpreters(names) == {here: sys.executable}
    with pytest.raises(ReleaseError, match=r"3\.11"):
        interpreters(names[:2])


@pytest.mark.slow
def test_an_environment_has_no_compiler_no_package_and_no_settings_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEEDFUL_ISA", "avx2")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    environment = Environment.empty(sys.executable, tmp_path / "empty")
    look = (
        "import importlib.util as u, os, shutil; "
        "print(*map(shutil.which, ('cc', 'gcc', 'git')), *map(u.find_spec, ('numpy', 'heedful')), "
        "os.environ.get('HEEDFUL_ISA'))"
    )
    assert environment.run("python", "-c", look)[0] == "None None None None None None\n"
    assert environment.run("python", "-c", "print(input())", text="a\n") == ("a\n", "")
    with pytest.raises(ReleaseError, match="3"):
        environment.run("python", "-c", "import sys; print('no', file=sys.stderr); sys.exit(3)")
    assert environment.run("python", "-c", "raise SystemExit(3)", code=3) == ("", "")


@pytest.mark.slow
def test_the_service_of_an_installation_is_started_asked_and_ended(tmp_path: Path) -> None:
    serve(Environment(Path(sys.executable).parent, tmp_path))


def test_the_notes_have_the_checksums_of_the_files(checkout: Path) -> None:
    dist = checkout / "dist"
    dist.mkdir()
    (dist / "heedful-1.2.0.tar.gz").write_bytes(b"abc")
    (dist / "other.txt").touch()
    text = notes(checkout, dist)
    assert text.startswith("# heedful 1.2.0\n\n### Added\n\n- A verb.\n\n")
    # The digest of "abc" is that of FIPS 180-4's example.
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert text.endswith(f"```\n{sha256}  heedful-1.2.0.tar.gz\n```\n")
