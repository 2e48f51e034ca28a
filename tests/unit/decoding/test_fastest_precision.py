"""What "auto" chooses for the precision of a translator."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from machine_class import as_class, every_computation, every_level, need_level, need_native
from numpy.typing import NDArray
from tiny_bundle import PAIRS, memorised

from heedful import Translator
from heedful.decoding.backends import choice
from heedful.decoding.backends.choice import (
    MAX_LOSS,
    Backends,
    Trial,
    Way,
    fastest,
    random_sources,
    try_precisions,
)
from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.backends.torch import TorchTokens
from heedful.decoding.steps import Start, StepFunction
from heedful.errors import InputError
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle

pytestmark = pytest.mark.by_class

SOURCES = [source for source, _ in PAIRS]
NAMES: tuple[Precision, ...] = ("float32", "bf16", "int8")


@pytest.mark.parametrize(
    ("seconds", "losses", "wanted"),
    [
        ((3.0, 2.0, 1.0), (0.0, 0.0, 0.0), "int8"),
        ((3.0, 1.0, 2.0), (0.0, 0.0, 0.0), "bf16"),
        ((1.0, 2.0, 3.0), (0.0, 0.0, 0.0), "float32"),
        ((3.0, 1.0, 0.95), (0.0, 0.0, 0.0), "bf16"),  # what is lost is not worth a twentieth
        ((1.0, 0.95, 0.88), (0.0, 0.0, 0.0), "int8"),  # which adds up
        ((3.0, 2.0, 1.0), (0.0, 0.0, 2 * MAX_LOSS), "bf16"),
        ((3.0, 2.0, 1.0), (0.0, 2 * MAX_LOSS, float("inf")), "float32"),
    ],
)
def test_the_fastest_is_chosen_of_those_that_cost_nothing(
    seconds: tuple[float, ...], losses: tuple[float, ...], wanted: str
) -> None:
    trials = {compiled(name): Trial(*each) for name, *each in zip(NAMES, seconds, losses, strict=True)}
    assert fastest(trials) == ("native", wanted)


def test_a_precision_that_is_not_there_is_not_chosen() -> None:
    assert fastest({compiled("float32"): Trial(3.0, 0.0)}) == compiled("float32")
    assert fastest({compiled("float32"): Trial(3.0, 0.0), compiled("int8"): Trial(1.0, 0.0)})[1] == "int8"


@pytest.mark.parametrize(
    ("engine", "torchs", "int8", "wanted"),
    [
        (1.0, 2.0, 0.5, ("native", "int8")),
        (30.0, 1.0, 20.0, ("torch", "float32")),
        (1.0, 0.95, 2.0, ("native", "float32")),  # a twentieth may be noise
    ],
)
def test_torch_is_chosen_where_it_is_faster_than_the_engine(
    engine: float, torchs: float, int8: float, wanted: Way
) -> None:
    trials = {("native", "float32"): engine, ("native", "int8"): int8, ("torch", "float32"): torchs}
    assert fastest({way: Trial(seconds, 0.0) for way, seconds in trials.items()}) == wanted  # type: ignore[misc]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("level", every_level())
def test_auto_tries_torch_beside_the_engine(monkeypatch: pytest.MonkeyPatch, level: str, bf16: bool) -> None:
    need_level(level)
    with as_class(level=level, bf16=bf16):
        possible = [precision for each, precision in every_computation() if each == level]
        assert_tried(monkeypatch, [*map(compiled, possible), ("torch", "float32")], bf16=bf16)


def assert_tried(monkeypatch: pytest.MonkeyPatch, wanted: list[Way], *, bf16: bool) -> None:
    tried: list[Way] = []

    def torch_is_fastest(starts: dict[Way, Start], **rest: object) -> dict[Way, Trial]:
        tried.extend(starts)
        return {way: Trial(0.1 if way == ("torch", "float32") else 1.0, 0.0) for way in starts}

    monkeypatch.setattr(choice, "try_precisions", torch_is_fastest)
    translator = Translator(fresh(), precision="auto")
    assert (translator.engine_in_use, translator.precision_in_use) == ("torch", "float32")
    assert tried == [*wanted, *([("torch", "bf16")] if bf16 else [])]
    translator.translations(SOURCES[:1])


class HandClock:
    """A clock that only steps move: real ones are late on a busy machine."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = HandClock()


class HandStep:
    """Steps of a given length by the clock, whose logits are off by some noise."""

    def __init__(self, seconds: float, noise: float) -> None:
        self._seconds = seconds
        self._noise = noise
        self._fed = torch.zeros(8, 0, dtype=torch.int64)

    def __call__(self, last_ids: NDArray[np.int64]) -> TorchTokens:
        CLOCK.now += self._seconds
        self._fed = torch.cat([self._fed, torch.from_numpy(last_ids)[:, None]], dim=1)
        logits = torch.stack([(self._fed * place).sum(dim=1).sin() for place in range(1, 8)], dim=1)
        crooked = torch.linspace(-1, 1, 7) ** 3
        return TorchTokens((logits.float() + self._noise * crooked).log_softmax(dim=-1))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self._fed = self._fed[rows]


def compiled(precision: Precision) -> Way:
    return "native", precision


@contextmanager
def started(seconds: float, noise: float) -> Iterator[StepFunction]:
    yield HandStep(seconds, noise)


def test_steps_are_timed_and_compared_with_those_of_float32() -> None:
    starts: dict[Way, Start] = {
        compiled("float32"): partial(started, 0.03, 0.0),
        compiled("bf16"): partial(started, 0.0, 0.02),
        compiled("int8"): partial(started, 0.01, 1.0),
    }
    trials = try_precisions(starts, num_positions=None, clock=CLOCK)
    found = {precision: trial for (_, precision), trial in trials.items()}
    assert [found[name].seconds for name in NAMES] == pytest.approx([0.03, 0.0, 0.01])
    assert found["float32"].loss == 0.0
    assert 0 < found["bf16"].loss < MAX_LOSS < found["int8"].loss
    assert fastest(trials) == compiled("bf16")


def test_a_translator_writes_with_what_was_chosen_and_chooses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = fresh()
    translator = Translator(bundle, precision="auto")
    chosen = translator.precision_in_use
    assert chosen in NAMES
    found = translator.translations(SOURCES)
    assert found == Translator(bundle, precision=chosen).translations(SOURCES)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.delattr(choice, "try_precisions")  # which nobody needs any more
        assert Translator(bundle, precision="auto").precision_in_use == chosen
        with pytest.raises(NameError):
            _ = Translator(fresh(), precision="auto").precision_in_use


def test_weights_that_whole_numbers_cannot_hold_are_found_out() -> None:
    bundle = fresh()
    need_native()
    healthy = trials_of(bundle)["int8"].loss
    for layer in bundle.model.decoder.layers:
        with torch.no_grad():  # one weight of each output dwarfs the others, at an input that is always 0
            layer.feed_forward.inner.bias[0] = -1e4  # type: ignore[union-attr]
            layer.feed_forward.outer.weight[:, 0] = 1e4  # type: ignore[union-attr]
    assert trials_of(bundle)["int8"].loss > max(MAX_LOSS, 10 * healthy)


def test_auto_leaves_models_to_torch_and_refuses_what_cannot_be() -> None:
    bundle = fresh()
    double = replace(bundle, network=bundle.model.double())
    assert Translator(double, precision="auto").precision_in_use in ("float32", "bf16")
    with pytest.raises(InputError, match="engine='torch' computes every model"):
        _ = Translator(double, precision="auto", engine="native").precision_in_use
    with pytest.raises(InputError, match="precision='fast'"):
        Translator(bundle, precision="fast")  # type: ignore[arg-type]


def fresh() -> Bundle:
    """The memorised bundle with a model of its own."""
    return replace(memorised(), network=deepcopy(memorised().model))


def trials_of(bundle: Bundle) -> dict[Precision, Trial]:
    config = bundle.config.model
    sources = random_sources(config.src_vocab_size, pad_id=config.src_pad_id, most=None)
    names = [name for name in NAMES if not NativeBackend.why_not([bundle.model], name)]
    ways = {name: Backends([bundle.model], precision=name, engine="native").searching for name in names}
    starts: dict[Way, Start] = {compiled(name): partial(way.step, sources) for name, way in ways.items()}
    return {name: trial for (_, name), trial in try_precisions(starts, num_positions=None).items()}
