"""Every native function with arguments that cannot be: it says so, whatever they are, and reads nothing."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from machine_class import every_level, need_level
from numpy.typing import NDArray
from small_engines import engine_of, model_with
from tolerances import FLOAT32, close

from heedful.decoding.backends.engine import Engine, address_of
from heedful.decoding.backends.native import EngineShortlist, EngineStep
from heedful.runtime.native import Attention, Functions, Shortlist, functions_of

OK, BAD_ARGUMENT = 0, 2
HUGE = [2**31, 2**40, 2**62, 2**63 - 1]
NEGATIVE = [-1, -(2**31), -(2**63)]
OUTSIDE = [*HUGE, *NEGATIVE]
Ids = NDArray[np.int64]
ROUNDS = 200


@pytest.fixture(params=every_level())
def engine(request: pytest.FixtureRequest) -> Engine:
    return engine_of(model_with({}), "float32", request.param)


@pytest.fixture(params=every_level())
def functions(request: pytest.FixtureRequest) -> Functions:
    need_level(request.param)
    return functions_of(request.param)


def ids_of(*values: int) -> Ids:
    return np.array(values, np.int64)


def spoiled(rng: np.random.Generator, good: Ids, bad: list[int]) -> Ids:
    """One of the numbers becomes one of the bad ones."""
    found = good.copy()
    found[rng.integers(len(found))] = bad[rng.integers(len(bad))]
    return found


def test_encode(engine: Engine) -> None:
    rng, size = np.random.default_rng(1), engine.vocab_size
    positions = np.zeros((9, engine.width), np.float32)
    memory = [np.empty((9, 2 * engine.width), np.float32) for _ in range(engine.num_layers)]
    pointers = (ctypes.c_void_p * engine.num_layers)(*map(address_of, memory))

    def encode(
        ids: Ids, starts: Ids, count: int, known: int, threads: int, recorded: Attention | None = None
    ) -> int:
        attention = None if recorded is None else ctypes.byref(recorded)
        status: int = engine._functions.encode(
            ctypes.byref(engine._model), threads, address_of(ids), address_of(starts), count,
            address_of(positions), known, pointers, attention, None,
        )  # fmt: skip
        return status

    ids, starts = rng.integers(0, size, 9), ids_of(0, 4, 4, 9)
    assert encode(ids, starts, 3, 9, 1) == OK
    for threads in (2, 65, 2**20, 2**62):
        assert encode(ids, starts, 3, 9, threads) == OK
    for _ in range(ROUNDS):
        assert encode(spoiled(rng, ids, [size, *OUTSIDE]), starts, 3, 9, 1) == BAD_ARGUMENT
    for bad_starts in ((1, 4, 4, 9), (-1, 4, 4, 9), (0, 4, 3, 9), (0, 5, -(2**62), 9), (0, 9, 4, 9)):
        assert encode(ids, ids_of(*bad_starts), 3, 9, 1) == BAD_ARGUMENT
    good = {"count": 3, "known": 9, "threads": 1}
    for key, values in {"count": (0, -1), "known": (4, 0, -1), "threads": (0, -5)}.items():
        for value in values:
            assert encode(ids, starts, **good | {key: value}) == BAD_ARGUMENT
    weights = np.full((9, engine.num_encoder_layers, engine.num_heads, 6), -1, np.float32)
    for width in (4, 0, -1):
        recorded = Attention(0, width, None, address_of(weights), None)
        assert encode(ids, starts, 3, 9, 1, recorded) == BAD_ARGUMENT
    assert encode(ids, starts, 3, 9, 1, Attention(0, 6, None, address_of(weights), None)) == OK
    assert weights[0, 0, 0, :4].sum() == close(1, FLOAT32.ROW)
    assert not weights[0, 0, 0, 4:].any()


def test_step(engine: Engine) -> None:
    rng, size = np.random.default_rng(2), engine.vocab_size
    step = EngineStep(engine, [[5, 6], [7], [8, 9, 10]])
    past, stride = step._past, step._past.stride
    positions = np.zeros((stride, engine.width), np.float32)
    cache = np.empty((3, engine.num_layers, 2 * engine.width), np.float32)
    states = np.empty((3, engine.width), np.float32)

    def take(
        ids: Ids, outputs: Ids, places: Ids, *,
        rows: int = 3, known: int = stride, threads: int = 1, recorded: Attention | None = None,
    ) -> int:  # fmt: skip
        status: int = engine._functions.step(
            ctypes.byref(engine._model), threads, ctypes.byref(past), address_of(ids), address_of(outputs),
            address_of(places), rows, address_of(positions), known, address_of(cache), address_of(states),
            None if recorded is None else ctypes.byref(recorded),
        )  # fmt: skip
        return status

    ids, outputs, places = ids_of(1, 2, 3), ids_of(0, 1, 2), ids_of(0, 0, 0)
    assert take(ids, outputs, places) == OK
    for _ in range(ROUNDS):
        assert take(spoiled(rng, ids, [size, *OUTSIDE]), outputs, places) == BAD_ARGUMENT
        assert take(ids, spoiled(rng, outputs, [3, *OUTSIDE]), places) == BAD_ARGUMENT
        assert take(ids, outputs, spoiled(rng, places, [stride, *OUTSIDE])) == BAD_ARGUMENT
    for changes in ({"rows": 0}, {"rows": -1}, {"known": 0}, {"known": -1}, {"threads": 0}, {"threads": -1}):
        assert take(ids, outputs, places, **changes) == BAD_ARGUMENT
    assert take(ids, outputs, places, threads=2**62) == OK
    weights = np.full((3, 4), -1, np.float32)
    assert take(ids, outputs, places, recorded=Attention(0, 4, address_of(weights))) == OK
    assert weights[0, :2].sum() == close(1, FLOAT32.ROW)
    assert not weights[0, 2:].any()
    for layer, width in ((-1, 4), (engine.num_layers, 4), (2**40, 4), (0, 2), (0, 0), (0, -1)):
        assert (
            take(ids, outputs, places, recorded=Attention(layer, width, address_of(weights))) == BAD_ARGUMENT
        )


def test_top_and_log_probs(engine: Engine) -> None:
    size = engine.vocab_size
    states = np.random.default_rng(3).standard_normal((3, engine.width)).astype(np.float32)
    values, best = np.empty((3, size), np.float32), np.empty((3, size), np.int64)
    shortlist = EngineShortlist(engine, [ids_of(1, 2, 7), ids_of(3)])
    listed, sentences = shortlist.address, ids_of(0, 1, 1)

    def call(
        *, count: int | None, rows: int = 3, within: int | None = None, of: Ids | None = None,
        suppressed: Ids | None = None, threads: int = 1,
    ) -> int:  # fmt: skip
        never = np.zeros(1, np.int64) if suppressed is None else suppressed
        num_never = 0 if suppressed is None else len(suppressed)
        rest = () if count is None else (count, address_of(never), num_never, True)
        found = (address_of(values), address_of(best)) if count is not None else (address_of(values),)
        function = engine._functions.log_probs if count is None else engine._functions.top
        status: int = function(
            ctypes.byref(engine._model), threads, address_of(states), rows, within,
            None if of is None else address_of(of), *rest, *found,
        )  # fmt: skip
        return status

    for count in (None, 1, size):
        assert call(count=count) == OK
        assert call(count=count, within=listed, of=sentences) == OK
        for bad in [2, *OUTSIDE]:
            assert call(count=count, within=listed, of=ids_of(0, bad, 1)) == BAD_ARGUMENT
        assert call(count=count, within=listed) == BAD_ARGUMENT
        for changes in ({"rows": 0}, {"rows": -1}, {"threads": 0}, {"threads": -(2**62)}):
            assert call(count=count, **changes) == BAD_ARGUMENT
    for bad in (0, size + 1, *OUTSIDE):
        assert call(count=bad) == BAD_ARGUMENT
    assert call(count=2, suppressed=ids_of(0, size, *OUTSIDE)) == OK  # ids that there are not
    assert call(count=2, suppressed=ids_of(size, *OUTSIDE), within=listed, of=sentences) == OK
    original = Shortlist.from_address(listed)
    for group_size in (0, -1, -(2**63)):
        wrong = Shortlist(group_size, *(getattr(original, name) for name, _ in Shortlist._fields_[1:]))
        assert call(count=2, within=ctypes.addressof(wrong), of=sentences) == BAD_ARGUMENT


def test_pick(engine: Engine) -> None:
    rng, size = np.random.default_rng(4), engine.vocab_size
    arrays = [np.zeros(64 * engine.width, np.uint32), *(np.zeros(64, np.uint32) for _ in range(3))]

    def pick(ids: Ids, count: int) -> int:
        status: int = engine._functions.pick(
            ctypes.byref(engine._model), address_of(ids), count, *map(address_of, arrays)
        )
        return status

    ids = rng.integers(0, size, 20)
    assert pick(ids, 20) == OK
    for _ in range(ROUNDS):
        assert pick(spoiled(rng, ids, [size, *OUTSIDE]), 20) == BAD_ARGUMENT
    for count in (0, -1, -(2**63)):
        assert pick(ids, count) == BAD_ARGUMENT


def kernels_of(functions: Functions, dtype: str) -> dict[str, Callable[[int, int], int]]:
    """Each training kernel, to be called with rows and their width; all arrays are small."""
    x = torch.zeros(256)
    pointer: Any = x.data_ptr()
    dropout = 1, 0, 1.0
    masked = getattr(functions, f"masked_softmax_{dtype}")
    forward, backward = (getattr(functions, f"residual_norm_{name}{dtype}") for name in ("", "backward_"))

    def keep(function: Callable[[int, int], int]) -> Callable[[int, int], int]:
        function.__dict__["array"] = x
        return function

    return {
        "residual_norm": keep(lambda n, w: forward(*[pointer] * 7, n, w, 1e-5, *dropout)),
        "residual_norm_backward": keep(lambda n, w: backward(*[pointer] * 8, n, w, *dropout)),
        "masked_softmax": keep(lambda n, w: masked(pointer, pointer, n, 1, 1, w, 0, 0, 1.0)),
        "masked_softmax_backward": keep(
            lambda n, w: getattr(functions, f"masked_softmax_backward_{dtype}")(*[pointer] * 3, n, w, 1.0)
        ),
        "loss_rows": keep(lambda n, w: getattr(functions, f"loss_rows_{dtype}")(*[pointer] * 4, n, w, 0.9)),
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_kernels(functions: Functions, dtype: str) -> None:
    for name, kernel in kernels_of(functions, dtype).items():
        for bad in NEGATIVE:
            assert kernel(bad, 4) == BAD_ARGUMENT, name
        for bad in (0, 65_537, *OUTSIDE):
            assert kernel(1, bad) == BAD_ARGUMENT, name
            assert kernel(0, bad) == BAD_ARGUMENT, name
        assert kernel(0, 4) == OK, name
    masked = getattr(functions, f"masked_softmax_{dtype}")
    x = torch.zeros(64)
    for heads, queries, of_row, of_query in ((-1, 1, 0, 0), (1, -1, 0, 0), (1, 1, -1, 0), (1, 1, 0, -1)):
        assert masked(x.data_ptr(), x.data_ptr(), 1, heads, queries, 4, of_row, of_query, 1.0) == BAD_ARGUMENT
    loss = getattr(functions, f"loss_rows_{dtype}")
    for target in (8, *OUTSIDE):
        targets, logits, sums = torch.tensor([3, target]), torch.zeros(2, 8), torch.zeros(2, 2)
        pointers = (each.data_ptr() for each in (logits, targets, *sums))
        assert loss(*pointers, 2, 8, 0.9) == BAD_ARGUMENT
        assert not logits.any()
