"""The cache of prepared text shrinks, and nothing that is in use goes."""

import os
import time
from pathlib import Path

from heedful.data.store import evict, mark_used

DAY = 24 * 3600


def file(folder: Path, name: str, *, days: float, size: int = 100) -> Path:
    path = folder / name
    path.write_bytes(bytes(size))
    used = time.time() - days * DAY
    os.utime(path, (used, used))
    return path


def store(folder: Path, letter: str, *, days: float) -> Path:
    return file(folder, f"{letter * 40}.arrow", days=days)


def test_the_least_recently_used_go_until_the_rest_fits(tmp_path: Path) -> None:
    oldest, old, recent = (
        store(tmp_path, letter, days=days) for letter, days in zip("abc", (9, 5, 2), strict=True)
    )
    assert evict(tmp_path, max_bytes=300) == []
    assert evict(tmp_path, max_bytes=200) == [oldest]
    mark_used(old)
    assert evict(tmp_path, max_bytes=100) == [recent]
    assert old.exists()


def test_what_was_used_within_a_day_stays(tmp_path: Path) -> None:
    path = store(tmp_path, "a", days=0.5)
    assert evict(tmp_path, max_bytes=0) == []
    assert path.exists()


def test_files_of_others_stay_and_those_of_a_killed_run_go(tmp_path: Path) -> None:
    others = [file(tmp_path, name, days=99) for name in ("notes.txt", "a.arrow", "abc.tmp", "ctranslate2-x")]
    left_over = file(tmp_path, f"{'d' * 40}.x8f.tmp", days=3)
    assert evict(tmp_path, max_bytes=10**9) == [left_over]
    assert evict(tmp_path, max_bytes=0) == []
    assert all(path.exists() for path in others)
