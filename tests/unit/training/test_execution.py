import os
import subprocess
import sys

import pytest
import torch
from machine_class import as_class, skip_here
from process_state import changes, process_state

from heedful.runtime.native import Native
from heedful.training import execution as module
from heedful.training.execution import (
    TrainingPrecision,
    autocast,
    emulation_warning,
    float32_matmul_precision,
    resolve_precision,
)

pytestmark = pytest.mark.by_class


CPU = torch.device("cpu")


@pytest.mark.parametrize("wanted", ["float32", "bf16"])
def test_what_is_asked_for_is_taken(wanted: str) -> None:
    assert resolve_precision(wanted, CPU) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("capabilities", "wanted"),
    [
        ({"avx2": True}, "float32"),
        ({"avx512_bf16": False, "amx_bf16": False}, "float32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
        ({"bf16": True}, "bf16"),
    ],
)
def test_auto_is_bf16_where_the_processor_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], wanted: str
) -> None:
    monkeypatch.delenv("HEEDFUL_BF16")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr("heedful.runtime.native.native", lambda: Native("avx512_bf16", None, None, ()))
    assert resolve_precision("auto", CPU) == wanted
    monkeypatch.setattr("heedful.runtime.native.native", lambda: Native("avx2", None, "forced", ()))
    assert resolve_precision("auto", CPU) == "float32"


@pytest.mark.parametrize(("bf16", "wanted"), [(False, "float32"), (True, "bf16")])
def test_the_environment_can_choose_for_auto(bf16: bool, wanted: str) -> None:
    with as_class(bf16=bf16):
        assert resolve_precision("auto", CPU) == wanted


@pytest.mark.parametrize("supported", [False, True])
def test_auto_is_bf16_where_the_gpu_supports_it(monkeypatch: pytest.MonkeyPatch, supported: bool) -> None:
    def asked(including_emulation: bool = True) -> bool:
        return supported or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", asked)
    assert resolve_precision("auto", torch.device("cuda")) == ("bf16" if supported else "float32")


def timed(monkeypatch: pytest.MonkeyPatch, *, bf16: float, reason: str | None) -> None:
    """Let a product in bf16 take so many times as long as in float32."""
    monkeypatch.setattr(module, "why_no_bf16", lambda: reason)
    monkeypatch.setattr(module, "_time_matmul", {torch.bfloat16: 0.002 * bf16, torch.float32: 0.002}.get)


@pytest.mark.parametrize("reason", ["this CPU has no bf16 instructions", "HEEDFUL_ISA=avx2 forbids bf16"])
def test_emulated_bf16_is_warned_of_with_its_measured_cost(
    monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    timed(monkeypatch, bf16=25.5, reason=reason)
    assert emulation_warning("float32", CPU) is None
    assert emulation_warning("bf16", torch.device("cuda")) is None
    assert emulation_warning("bf16", CPU) == (
        f"train.precision=bf16: {reason}: a matrix multiplication takes 25.5 times as long as in float32; "
        "take train.precision=float32"
    )


@pytest.mark.parametrize(("bf16", "reason"), [(25.5, None), (0.8, "HEEDFUL_ISA=avx2 forbids bf16")])
def test_bf16_that_costs_nothing_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, bf16: float, reason: str | None
) -> None:
    """HEEDFUL_ISA restricts the native library; torch may still have the instructions."""
    timed(monkeypatch, bf16=bf16, reason=reason)
    assert emulation_warning("bf16", CPU) is None


def test_the_cost_of_emulation_is_a_time() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert module._time_matmul(dtype) > 0.0


def test_other_devices_stay_in_float32() -> None:
    assert resolve_precision("auto", torch.device("meta")) == "float32"


def test_products_are_taken_in_the_precision_and_weights_stay_as_they_are() -> None:
    layer, x = torch.nn.Linear(3, 5), torch.randn(2, 3)
    with autocast("bf16", CPU):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight.dtype == torch.float32
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32
    with autocast("float32", CPU):
        assert layer(x).dtype == torch.float32


@pytest.mark.parametrize(
    ("precision", "other", "wanted"), [("bf16", "float32", "high"), ("float32", "bf16", "highest")]
)
def test_products_of_float32_on_a_gpu_are_settled_for_the_step_alone(
    precision: TrainingPrecision, other: TrainingPrecision, wanted: str
) -> None:
    """Whatever the program around has set, and it finds that again; a CPU's are never touched."""
    gpu = torch.device("cuda")
    untouched = process_state()
    with float32_matmul_precision(other, gpu):
        before = process_state()
        with float32_matmul_precision(precision, gpu):
            assert torch.get_float32_matmul_precision() == wanted
        assert changes(before, process_state()) == []
        with float32_matmul_precision(precision, CPU):
            assert changes(before, process_state()) == []
    assert changes(untouched, process_state()) == []


SHAPES = 60  # more than are kept
PROGRAM = f"""
import torch
from heedful.training.memory import memory_for_steps

weight = torch.zeros(64, 64, dtype=torch.bfloat16)
with memory_for_steps():
    for _ in range(2):
        for rows in range(8, 8 + 8 * {SHAPES}, 8):
            torch.zeros(rows, 64, dtype=torch.bfloat16) @ weight
"""


def num_prepared(**settings: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "ONEDNN_VERBOSE": "profile_create", **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.count("create:cache_miss,cpu,matmul")


@pytest.mark.slow
def test_few_prepared_products_are_kept_unless_the_user_says_how_many() -> None:
    with_as_many_as_shapes = num_prepared(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1000")
    if not with_as_many_as_shapes:
        skip_here("oneDNN in bfloat16")
    assert with_as_many_as_shapes == SHAPES
    assert num_prepared() == 2 * SHAPES
