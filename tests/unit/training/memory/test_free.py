"""Files as Linux shows them, in a folder; and those of this machine."""

from pathlib import Path

import pytest
import torch

from heedful.training.memory.free import free_memory

CPU = torch.device("cpu")
MIB = 1 << 20
UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="ascii")


def machine(root: Path, *, available: int, group: str) -> Path:
    kib = available // 1024
    write(root / "proc/meminfo", f"MemTotal: {2 * kib} kB\nMemFree: {kib // 2} kB\nMemAvailable: {kib} kB")
    write(root / "proc/self/cgroup", group)
    return root


def group(directory: Path, files: tuple[str, str, str], *, limit: int | str, taken: int, cache: int) -> None:
    for name, content in zip(files, (limit, taken, f"anon 5\n{files[2]} {cache}"), strict=False):
        write(directory / ("memory.stat" if name == files[2] else name), str(content))


def test_a_machine_without_groups_has_what_is_available(tmp_path: Path) -> None:
    assert free_memory(CPU, root=machine(tmp_path, available=700 * MIB, group="0::/")) == 700 * MIB


@pytest.mark.parametrize(
    ("group_line", "below", "files"),
    [("0::/a/b", "sys/fs/cgroup", UNIFIED), ("4:cpu,memory:/a/b", "sys/fs/cgroup/memory", LEGACY)],
)
def test_the_tightest_of_all_groups_counts_and_file_cache_is_free(
    tmp_path: Path, group_line: str, below: str, files: tuple[str, str, str]
) -> None:
    root = machine(tmp_path, available=700 * MIB, group=f"3:cpuset:/x\n{group_line}")
    top = root / below
    group(top / "a/b", files, limit=900 * MIB, taken=100 * MIB, cache=50 * MIB)
    assert free_memory(CPU, root=root) == 700 * MIB
    group(top / "a", files, limit=600 * MIB, taken=300 * MIB, cache=50 * MIB)
    assert free_memory(CPU, root=root) == 350 * MIB
    group(top, files, limit=500 * MIB, taken=300 * MIB, cache=10 * MIB)
    assert free_memory(CPU, root=root) == 210 * MIB


def test_a_group_without_a_limit_limits_nothing(tmp_path: Path) -> None:
    root = machine(tmp_path, available=700 * MIB, group="0::/a")
    group(root / "sys/fs/cgroup/a", UNIFIED, limit="max", taken=600 * MIB, cache=0)
    assert free_memory(CPU, root=root) == 700 * MIB


def test_a_container_that_hides_its_outer_groups_shows_its_own_at_the_top(tmp_path: Path) -> None:
    root = machine(tmp_path, available=700 * MIB, group="4:memory:/docker/0123")
    group(root / "sys/fs/cgroup/memory", LEGACY, limit=300 * MIB, taken=100 * MIB, cache=0)
    assert free_memory(CPU, root=root) == 200 * MIB


@pytest.mark.parametrize(("limit", "free"), [(900 * MIB, 400), (400 * MIB, 0), ("unlimited", 700)])
def test_a_limit_of_addresses_counts(tmp_path: Path, limit: int | str, free: int) -> None:
    root = machine(tmp_path, available=700 * MIB, group="0::/")
    write(
        root / "proc/self/limits",
        f"Max cpu time  unlimited  unlimited\nMax address space  {limit}  unlimited",
    )
    write(root / "proc/self/status", f"VmPeak: 5 kB\nVmSize: {500 * 1024} kB")
    assert free_memory(CPU, root=root) == free * MIB


def test_a_system_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert free_memory(CPU, root=tmp_path) is None


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="needs Linux")
def test_this_machine_has_some() -> None:
    free = free_memory(CPU)
    assert free is not None
    assert MIB < free < 1 << 50
