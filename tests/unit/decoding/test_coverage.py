"""The coverage penalty of models: its attention is the one that a recorder sees in a full forward pass."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from machine_class import need_native
from numpy.typing import NDArray
from searches import searched
from small_models import small_model
from tiny_bundle import PAIRS, SURE, memorised
from tolerances import FLOAT32, assert_close, close, format_of

from heedful.decoding.backends.choice import EngineChoice, choose_backend
from heedful.decoding.backends.protocol import Backend
from heedful.decoding.backends.torch import ModelStep, record_cross_attention
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import CoverageTracker
from heedful.decoding.steps import StepFunction
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.task import SearchTask
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle

pytestmark = pytest.mark.by_class

PAD, BOS, EOS = 0, 2, 3
SOURCES, LINES = [[5, 6, 7, 8, EOS], [9, EOS], [6, 6, 10, EOS]], [source for source, _ in PAIRS]
COVERED = SearchOptions(n_best=4, coverage_penalty=0.5)


def model_of(num_layers: int) -> Transformer:
    model = small_model(3, num_decoder_layers=num_layers, d_model=32, d_ff=32).eval()
    with torch.no_grad():
        for weight in model.parameters():  # larger than at the start, so that attention is uneven
            weight.mul_(25.0 if weight.ndim > 1 else 1.0)
    return model


def recorded_coverage(models: Sequence[Transformer], source: list[int], written: Sequence[int]) -> float:
    """The sum of equation 14, of maps that a full forward pass over the one sentence has recorded."""
    means = []
    for model in models:
        layer = max(1, model.config.num_decoder_layers - 1)
        means.append(attention_map(model, source, written, layer))
    sums = np.mean(means, axis=0).sum(axis=0).tolist()
    assert len(sums) == len(source)
    return sum(math.log(min(each, 1.0)) for each in sums)


def attention_map(
    model: Transformer, source: Sequence[int], written: Sequence[int], layer: int
) -> NDArray[np.float64]:
    """The mean of the heads of a decoder layer's cross-attention, in a full forward pass."""
    with torch.inference_mode(), record_attention(model) as recorder:
        model(torch.tensor([[*source]]), torch.tensor([[BOS, *written[:-1]]]))
    name = f"decoder.layers.{layer - 1}.cross_attention"
    [weights] = [each.weights[0] for each in recorder.maps if each.name == name]
    mean: NDArray[np.float64] = weights.double().mean(dim=0).numpy()
    return mean


engines = pytest.mark.parametrize("engine", ["torch", "native"])


def backend_of(models: list[Transformer], engine: EngineChoice) -> Backend:
    if engine == "native":
        need_native()
    return choose_backend(models, engine=engine)


@engines
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("is_forced", [False, True])
def test_the_attention_is_that_of_the_last_layer_but_one_in_a_full_pass(
    is_forced: bool, num_layers: int, engine: EngineChoice
) -> None:
    model = model_of(num_layers)
    outputs = [[7, 4, 10, 4, EOS], [6, 8, 8], [5, 9, 4, EOS]]
    backend = backend_of([model], engine)
    found = [0.0] * 3
    rows, last_ids = [0, 1, 2], [BOS] * 3
    forced = backend.forced_step(SOURCES, outputs, start_id=BOS, coverage=True)
    with forced if is_forced else backend.step(SOURCES, coverage=True) as step:
        for place in range(5):
            step(np.array(last_ids))
            assert isinstance(step, CoverageTracker)
            for row, value in zip(rows, step.coverage().tolist(), strict=True):
                found[row] = value
            going_on = [i for i, row in enumerate(rows) if len(outputs[row]) > place + 1][::-1]
            if not going_on:
                break
            step.reorder(np.array(going_on, dtype=np.int64))
            rows = [rows[i] for i in going_on]
            last_ids = [outputs[row][place] for row in rows]
    wanted = [recorded_coverage([model], *pair) for pair in zip(SOURCES, outputs, strict=True)]
    assert found == close(wanted, FLOAT32.SENTENCE)
    assert min(wanted) < -0.3


@engines
@pytest.mark.parametrize("layer", [None, 1, 2, 3])
def test_the_attention_of_outputs_is_the_recorded_one_of_each_layer(
    layer: int | None, engine: EngineChoice
) -> None:
    models = [model_of(3), model_of(3)]
    with torch.no_grad():
        for weight in models[1].parameters():
            weight.mul_(0.7)
    outputs = [[7, 4, 10, 4, EOS], [6, 8, 8], [5, 9, 4, EOS]]
    backend = backend_of(models, engine)
    found = backend.attention(SOURCES, outputs, start_id=BOS, layer=layer)
    for source, output, weights in zip(SOURCES, outputs, found, strict=True):
        assert weights.shape == (len(output), len(source))
        wanted = np.mean([attention_map(model, source, output, layer or 2) for model in models], axis=0)
        assert_close(weights, wanted, FLOAT32.MODEL)
    with pytest.raises(InputError, match="layer 4"):
        backend.attention(SOURCES, outputs, start_id=BOS, layer=4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy": BeamSearch(beam_size=1), "n_best": 1},
        {"strategy": DiverseBeamSearch(diversity_penalty=1.0)},
    ],
)
@pytest.mark.parametrize("num_models", [1, 2])
def test_a_score_is_equation_14_and_scoring_gives_it_too(num_models: int, changes: dict[str, object]) -> None:
    bundles = ensemble(num_models)
    options = replace(COVERED, **changes)  # type: ignore[arg-type]
    translator = Translator(bundles[0], ensemble=bundles[1:])
    src = bundles[0].tokenizers.src
    assert translator.translations(LINES) == Translator(bundles[0], ensemble=bundles[1:]).translations(LINES)
    for line, translation in zip(LINES, translator.translations(LINES, options=options), strict=True):
        hypotheses = translation.hypotheses
        source = [*src.encode(line), src.eos_id]
        for each in hypotheses:
            coverage = recorded_coverage([one.model for one in bundles], source, each.written_ids)
            plain = each.log_prob / options.penalty(len(each.written_ids))
            assert each.score == close(plain + 0.5 * coverage, FLOAT32.SENTENCE)
        given = [each.written_ids for each in hypotheses]
        scored = translator.score([line] * len(given), given, options=options)
        assert [each.score for each in scored] == close([h.score for h in hypotheses], FLOAT32.SENTENCE)
        assert [each.log_prob for each in scored] == close([h.log_prob for h in hypotheses], FLOAT32.SENTENCE)


def ensemble(num_models: int) -> list[Bundle]:
    others = [copy.deepcopy(memorised()) for _ in range(num_models - 1)]
    with torch.no_grad():
        for other in others:
            for weight in other.model.parameters():
                weight.mul_(0.9)
    return [memorised(), *others]


def task_of(limits: list[int], options: SearchOptions) -> SearchTask:
    return SearchTask(max_lengths=limits, start_id=BOS, eos_id=EOS, pad_id=PAD, options=options)


def test_a_penalty_of_zero_changes_no_bit() -> None:
    model = model_of(2)
    src = torch.full((3, 5), PAD)
    for row, source in zip(src, SOURCES, strict=True):
        row[: len(source)] = torch.tensor(source)

    def found(step: StepFunction, options: SearchOptions) -> object:
        return searched(step, task_of([12] * 3, options))

    with torch.inference_mode(), record_cross_attention([model]) as attention:
        zero = SearchOptions(n_best=4, coverage_penalty=0.0)
        covering = CoverageTracker(ModelStep(model, src), lambda: attention.latest()[:, 0], lengths=[5, 2, 4])
        listened = found(covering, zero)
    with torch.inference_mode():
        assert found(ModelStep(model, src), SearchOptions(n_best=4)) == listened


def test_both_engines_find_the_same() -> None:
    need_native()
    by_engine = [
        Translator(memorised(), engine=engine).translations(LINES, options=COVERED)  # type: ignore[arg-type]
        for engine in ("native", "torch")
    ]
    for ours, theirs in zip(*by_engine, strict=True):
        assert [each.ids for each in ours.hypotheses] == [each.ids for each in theirs.hypotheses]
        scores = [[each.score for each in one.hypotheses] for one in (ours, theirs)]
        assert scores[0] == close(scores[1], FLOAT32.SENTENCE)


@pytest.mark.parametrize(("engine", "precision"), [("torch", "bf16"), ("native", "bf16"), ("native", "int8")])
def test_rounded_models_are_scored_as_they_were_found(
    engine: EngineChoice, precision: Precision, use_engine: Callable[[Precision], None]
) -> None:
    if engine == "native":
        use_engine(precision)
    translator = Translator(memorised(), engine=engine, precision=precision)
    for translation in translator.translations(LINES, options=COVERED):
        given = [each.written_ids for each in translation.hypotheses]
        scored = translator.score([translation.source] * len(given), given, options=COVERED)
        scores = [each.score for each in translation.hypotheses]
        # Batches of other shapes may be rounded otherwise.
        assert [each.score for each in scored] == close(scores, format_of(precision).SENTENCE.at(SURE))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"coverage_penalty=0\.2"):
        SearchOptions(coverage_penalty=0.2, strategy=Sampling())
    model = model_of(1).requires_grad_(False)
    with pytest.raises(InputError, match=r"coverage_penalty=0\.5"):
        searched(ModelStep(model, torch.tensor([[5, EOS]])), task_of([3], COVERED))
