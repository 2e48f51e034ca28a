"""Where kernels come from, and what happens where they cannot."""

from collections.abc import Iterator
from pathlib import Path

import platformdirs
import pytest
import torch
from command_line import heedful

from heedful.nn import kernels
from heedful.training.shared_team import using_threads


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache, and no library loaded before or after."""
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    kernels.library.cache_clear()
    yield tmp_path / "heedful"
    kernels.library.cache_clear()


def applied() -> bool:
    with using_threads(1), kernels.using_kernels(wanted=True):
        return kernels.kernels_apply_to(torch.zeros(2, 3))


def test_a_compiled_library_is_kept_for_the_next_process(fresh: Path) -> None:
    if not applied():
        pytest.skip("no C compiler")
    (kept,) = fresh.iterdir()
    compiled_at = kept.stat().st_mtime_ns
    kernels.library.cache_clear()
    assert applied()
    assert [path.stat().st_mtime_ns for path in fresh.iterdir()] == [compiled_at]


def test_without_a_compiler_torch_computes(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    assert not applied()
    assert not fresh.exists()


@pytest.mark.parametrize("compiler", ["false", "true", "no-such-compiler"])
def test_a_compiler_that_fails_is_as_none(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert not applied()
    assert not list(fresh.glob("*"))


def test_a_damaged_library_is_as_none(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not applied():
        pytest.skip("no C compiler")
    (kept,) = fresh.iterdir()
    elsewhere = fresh / "elsewhere"  # the loader knows a path that it has loaded
    elsewhere.mkdir()
    (elsewhere / kept.name).write_bytes(b"no library")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: elsewhere)
    kernels.library.cache_clear()
    assert not applied()


def test_kernels_that_must_be_compiled_need_a_compiler(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    result = heedful("bench", "train", "--preset", "tiny", "--steps", 1, "--set", "train.kernels=compiled")
    assert result.code == 2
    assert "C compiler" in result.err
    assert not fresh.exists()
