"""Which level of the native library is in use, and what is said where there is none."""

import ctypes
import math
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from machine_class import every_level, need_level
from tolerances import FLOAT32, assert_close

from heedful.errors import ConfigError
from heedful.runtime import native as module
from heedful.runtime.native import Native, cpu_has_bf16, functions_of, native, why_no_bf16

pytestmark = pytest.mark.by_class

HERE = [level.name for level in native().levels if level.why_not is None]
needs_library = pytest.mark.skipif(not HERE, reason=native().describe())


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Native]]:
    """Loads anew, with HEEDFUL_ISA and with the folders that are given."""

    def load(isa: str | None = None, folders: list[Path] | None = None) -> Native:
        monkeypatch.delenv("HEEDFUL_ISA", raising=False)
        if isa is not None:
            monkeypatch.setenv("HEEDFUL_ISA", isa)
        if folders is not None:
            monkeypatch.setattr(module, "_folders", lambda: iter(folders))
        native.cache_clear()
        module._load.cache_clear()
        return native()

    yield load
    monkeypatch.undo()
    native.cache_clear()
    module._load.cache_clear()


@needs_library
def test_the_best_level_is_chosen(fresh: Callable[..., Native]) -> None:
    assert fresh().level == HERE[-1]
    assert fresh("").level == HERE[-1]


@needs_library
@pytest.mark.parametrize("level", HERE)
def test_a_lower_level_can_be_forced(fresh: Callable[..., Native], level: str) -> None:
    found = fresh(level.upper())
    assert found.level == level
    assert (f"HEEDFUL_ISA={level} forces it" in found.describe()) == (level != HERE[-1])


@needs_library
def test_a_level_that_is_not_there_is_refused_in_one_line(fresh: Callable[..., Native]) -> None:
    missing = next((level for level in fresh().levels if level.why_not), None)
    with pytest.raises(ConfigError, match=f"HEEDFUL_ISA=avx3: .* no such level; it has {HERE[0]}"):
        fresh("avx3")
    if missing is not None:
        with pytest.raises(ConfigError, match=f"HEEDFUL_ISA={missing.name}: not on this machine: the "):
            fresh(missing.name)


@needs_library
def test_the_slowest_level_needs_nothing() -> None:
    assert HERE[0] == {"aarch64": "neon", "arm64": "neon"}.get(platform.machine(), "baseline")


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(), reason="reads Linux"
)
@needs_library
def test_levels_are_what_the_system_says_of_the_cpu() -> None:
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split("flags", 1)[1].split("\n")[0].split())
    needed = {
        "avx2": {"avx2", "fma", "f16c"},
        "avx_vnni": {"avx_vnni"},
        "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"},
        "avx512_vnni": {"avx512f", "avx512_vnni"},
        "avx512_bf16": {"avx512f", "avx512_vnni", "avx512_bf16"},
        "amx": {"amx_tile", "amx_int8", "amx_bf16", "avx512_bf16"},
    }
    for level in native().levels:
        assert (level.why_not is None) == (needed.get(level.name, set()) <= flags)


def test_without_a_library_the_reason_is_what_the_installation_left(
    fresh: Callable[..., Native], tmp_path: Path
) -> None:
    assert "reinstall" in fresh(None, [tmp_path]).describe()
    (tmp_path / "native-library.txt").write_text("the build failed\n", encoding="utf-8")
    found = fresh(None, [tmp_path])
    assert found.level is None and found.functions is None
    assert found.describe() == "no native library: the build failed"


def test_a_damaged_library_is_none_and_is_named(fresh: Callable[..., Native], tmp_path: Path) -> None:
    (tmp_path / "libheedful.so").write_bytes(b"no library")
    found = fresh(None, [tmp_path])
    assert found.level is None
    assert f"{tmp_path / 'libheedful.so'} cannot be loaded" in found.describe()


@needs_library
def test_a_library_of_another_version_or_layout_is_not_used(
    fresh: Callable[..., Native], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = next(path for folder in module._folders() for path in folder.glob("libheedful.*"))
    shutil.copy(path, tmp_path / path.name)
    with monkeypatch.context() as changed:
        changed.setattr(module, "VERSION", module.VERSION + 1)
        assert "is of version" in fresh(None, [tmp_path]).describe()
    with monkeypatch.context() as changed:
        changed.setattr(module, "_STRUCTURES", (module.Norm, *module._STRUCTURES[1:]))
        assert "has another Norm" in fresh(None, [tmp_path]).describe()


def test_bfloat16_needs_instructions_and_a_level_that_has_them(
    fresh: Callable[..., Native], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HEEDFUL_BF16")
    for has_instructions in (False, True):
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda has=has_instructions: {"avx512_bf16": has})
        for level in HERE:
            fresh(level)
            assert cpu_has_bf16() == (has_instructions and level in module.BF16_LEVELS)
            if not has_instructions:
                assert why_no_bf16() == "this CPU has no bf16 instructions"
            elif level not in module.BF16_LEVELS:
                assert why_no_bf16() == f"HEEDFUL_ISA={level} forbids bf16"
        fresh("avx2", [tmp_path])
        assert not cpu_has_bf16()  # without a library, too
        fresh(None, [tmp_path])
        assert cpu_has_bf16() == has_instructions


@needs_library
def test_with_a_torch_that_does_not_say_the_library_does(
    fresh: Callable[..., Native], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEEDFUL_BF16")
    monkeypatch.delattr("torch.cpu.get_capabilities")
    levels = fresh(None).levels
    assert cpu_has_bf16() == any(each.name in module.BF16_LEVELS and not each.why_not for each in levels)


def test_the_environment_decides_about_bfloat16_whatever_the_machine_has(
    fresh: Callable[..., Native], monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in (None, *HERE):
        fresh(level)
        for value, wanted in (("on", True), ("OFF", False)):
            monkeypatch.setenv("HEEDFUL_BF16", value)
            assert cpu_has_bf16() == wanted
    monkeypatch.setenv("HEEDFUL_BF16", "yes")
    with pytest.raises(ConfigError, match="HEEDFUL_BF16=yes: must be on or off"):
        cpu_has_bf16()


@pytest.mark.parametrize("level", every_level())
def test_exponentials_are_right_to_one_ulp(level: str) -> None:
    need_level(level)
    x = np.linspace(-87.33, 0.0, 200_003, dtype=np.float32)
    found = x.copy()
    functions_of(level).exponentials(found.ctypes.data, len(found))
    wanted = np.exp(x.astype(np.float64))
    assert (np.abs(found - wanted) / np.spacing(wanted.astype(np.float32))).max() <= 1.0
    special = np.asarray([0.0, -0.0, -np.inf, np.nan, -88.0, -1e30], np.float32)
    functions_of(level).exponentials(special.ctypes.data, len(special))
    assert special[:3].tolist() == [1.0, 1.0, 0.0] and math.isnan(special[3]) and not special[4:].any()


@pytest.mark.parametrize("level", every_level())
def test_int8_is_exact_at_every_level(level: str) -> None:
    """Whatever the instructions, the sums are those of the whole numbers."""
    need_level(level)
    functions, rng = functions_of(level), np.random.default_rng(1)
    panel, group = functions.panel, functions.groups[2]
    rows, num_in, num_out = 13, 96, 5 * panel
    limit = functions.weight_limit
    weight = rng.choice([-limit, limit, 1], (num_out, num_in)).astype(np.int8)  # what overflows first
    packed = weight.reshape(-1, panel, num_in // group, group).transpose(0, 2, 1, 3).copy()
    x = rng.choice([-1.0, 1.0, 0.3], (rows, num_in)).astype(np.float32)
    scale, bias = rng.random(num_out).astype(np.float32), rng.standard_normal(num_out).astype(np.float32)
    sums = -128 * weight.sum(axis=1, dtype=np.int32)
    arrays = (packed, bias, scale, sums)
    layer = module.Linear(num_in, num_out, *(each.ctypes.data for each in arrays))
    y = np.empty((rows, num_out), np.float32)
    assert not functions.linear(ctypes.byref(layer), 2, 0, 1, x.ctypes.data, rows, y.ctypes.data)
    row_scale = np.abs(x).max(axis=1) / np.float32(127.0)
    whole = np.rint(x * (np.float32(1.0) / row_scale)[:, None]).astype(np.int64)
    wanted = (whole @ weight.T.astype(np.int64)) * row_scale[:, None].astype(np.float64) * scale + bias
    assert_close(y, wanted, FLOAT32.ELEMENT)
