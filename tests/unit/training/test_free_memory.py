"""What this machine has, and limits of control groups as Linux shows them, in a folder."""

from pathlib import Path

import psutil
import pytest
import torch
from damage import limited_memory

from heedful.training.memory import free_memory

CPU = torch.device("cpu")
MIB = 1 << 20
UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="ascii")


def member_of(group: str, root: Path) -> Path:
    write(root / "proc/self/cgroup", group)
    return root


def group(directory: Path, files: tuple[str, str, str], *, limit: int | str, taken: int, cache: int) -> None:
    for name, content in zip(files, (limit, taken, f"anon 5\n{files[2]} {cache}"), strict=False):
        write(directory / ("memory.stat" if name == files[2] else name), str(content))


@pytest.mark.parametrize("group_line", ["0::/", "0::/a"])
def test_without_a_limit_there_is_what_the_machine_has(tmp_path: Path, group_line: str) -> None:
    root = member_of(group_line, tmp_path)
    group(root / "sys/fs/cgroup/a", UNIFIED, limit="max", taken=1, cache=0)
    available = psutil.virtual_memory().available
    assert MIB < free_memory(CPU, root=root) <= psutil.virtual_memory().total
    assert free_memory(CPU, root=root) == pytest.approx(available, rel=0.5)  # others take and give


@pytest.mark.parametrize(
    ("group_line", "below", "files"),
    [("0::/a/b", "sys/fs/cgroup", UNIFIED), ("4:cpu,memory:/a/b", "sys/fs/cgroup/memory", LEGACY)],
)
def test_the_tightest_of_all_groups_counts_and_file_cache_is_free(
    tmp_path: Path, group_line: str, below: str, files: tuple[str, str, str]
) -> None:
    root = member_of(f"3:cpuset:/x\n{group_line}", tmp_path)
    top = root / below
    group(top / "a/b", files, limit=90 * MIB, taken=10 * MIB, cache=5 * MIB)
    assert free_memory(CPU, root=root) == 85 * MIB
    group(top / "a", files, limit=60 * MIB, taken=30 * MIB, cache=5 * MIB)
    assert free_memory(CPU, root=root) == 35 * MIB
    group(top, files, limit=50 * MIB, taken=30 * MIB, cache=1 * MIB)
    assert free_memory(CPU, root=root) == 21 * MIB


def test_a_container_that_hides_its_outer_groups_shows_its_own_at_the_top(tmp_path: Path) -> None:
    root = member_of("4:memory:/docker/0123", tmp_path)
    group(root / "sys/fs/cgroup/memory", LEGACY, limit=30 * MIB, taken=10 * MIB, cache=0)
    assert free_memory(CPU, root=root) == 20 * MIB


@pytest.mark.skipif(not psutil.LINUX, reason="needs Linux")
@pytest.mark.parametrize("limit", [10 * MIB, 40 * MIB])
def test_a_limit_of_addresses_counts(tmp_path: Path, limit: int) -> None:
    with limited_memory(limit):
        assert free_memory(CPU, root=tmp_path) == pytest.approx(limit, abs=4 * MIB)
