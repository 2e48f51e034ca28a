"""NaN and infinity in a model reach the log-probabilities, at every level, and are reported, never written.

In int8 a row is scaled by its largest number: one that is not finite must not become a row of zeros.
"""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch
from machine_class import every_computation, need_native
from small_engines import engine_of, log_probs_of, model_with, padded
from tiny_bundle import memorised

from heedful import Translator
from heedful.decoding.backends.engine import address_of
from heedful.decoding.backends.native import EngineStep
from heedful.decoding.backends.torch import ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import NextTokens
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.settings.options import Precision

computations = pytest.mark.parametrize(("level", "precision"), every_computation())
BAD = [np.nan, np.inf, -np.inf]
SEARCHES = {
    "greedy": SearchOptions(strategy=BeamSearch(beam_size=1)),
    "beam": SearchOptions(strategy=BeamSearch(beam_size=3)),
    "sampled": SearchOptions(strategy=Sampling(), n_best=2),
    "renormalised": SearchOptions(strategy=BeamSearch(beam_size=2), renormalize=True),
}


def broken(bad: float, *, tgt_id: int) -> Transformer:
    """A model that knows no number for one token of the target."""
    model = model_with({"tied": "none"})
    with torch.no_grad():
        model.decoder.embedding.tokens.weight[tgt_id, 5] = bad
    return model


def assert_second_is_no_number(tokens: NextTokens) -> None:
    found = log_probs_of(tokens)
    assert found[1].isnan().all()
    assert found[0].isfinite().all()
    assert found[2].isfinite().all()


@pytest.mark.parametrize("bad", BAD)
@computations
def test_a_fed_token_that_is_no_number_spoils_its_own_output(
    precision: Precision, level: str, bad: float
) -> None:
    engine = engine_of(broken(bad, tgt_id=9), precision, level)
    step = EngineStep(engine, [[5, 6], [8, 5], [7]])
    for _ in range(2):  # in the second step it stands in the past
        tokens = step(torch.tensor([3, 9, 4]))
        assert_second_is_no_number(tokens)
        with pytest.raises(InputError, match="not numbers"):
            tokens.top(3, (), renormalize=False)
        with pytest.raises(InputError, match="not numbers"):
            tokens.top(3, (0, 1), renormalize=True)
    assert log_probs_of(tokens[np.array([0, 2])]).isfinite().all()


@pytest.mark.parametrize("bad", BAD)
def test_torch_says_the_same(bad: float) -> None:
    with torch.inference_mode():
        step = ModelStep(broken(bad, tgt_id=9), padded([[5, 6], [8, 5], [7]]))
        for _ in range(2):
            assert_second_is_no_number(step(torch.tensor([3, 9, 4])))


@pytest.mark.parametrize("bad", BAD)
@computations
def test_a_linear_layer_alone_keeps_it_in_its_row(precision: Precision, level: str, bad: float) -> None:
    model = model_with({})
    engine = engine_of(model, precision, level)
    layer = engine._linear(["decoder.layers.0.feed_forward.inner"])
    x = np.random.default_rng(1).standard_normal((7, model.config.d_model)).astype(np.float32)
    x[3, 17] = bad
    y = np.zeros((7, layer.out), np.float32)
    number = {"float32": 0, "bf16": 1, "int8": 2}[precision]
    status = engine._functions.linear(ctypes.byref(layer), number, 0, 1, address_of(x), len(x), address_of(y))
    assert status == 0
    assert not np.isfinite(y[3, :96]).any()
    assert np.isfinite(np.delete(y, 3, axis=0)).all()


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    ("engine", "precision"), [("native", "float32"), ("native", "int8"), ("torch", "float32")]
)
def test_a_search_reports_it(engine: str, precision: Precision, name: str) -> None:
    if engine == "native":
        need_native()
    bundle = memorised()
    model = Transformer.from_config(bundle.config.model).eval()
    with torch.no_grad():
        model.encoder.layers[1].feed_forward.outer.weight[3, 4] = np.nan  # type: ignore[union-attr, operator]
    translator = Translator(replace(bundle, network=model), engine=engine, precision=precision)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not numbers"):
        translator.translations(["the cat sleeps ."], options=SEARCHES[name])
