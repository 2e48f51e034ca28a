"""A search with a shortlist against the same one that has everything else forbidden to it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_engines import engine_of, log_probs_of
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, assert_close, close

from heedful import Translator
from heedful.decoding.backends.native import EngineShortlist, EngineStep
from heedful.decoding.backends.torch import ModelStep, RestrictedStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.translation import Translation
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle
from heedful.text.special_tokens import SpecialTokens

pytestmark = pytest.mark.by_class

PRECISIONS: tuple[Precision, ...] = ("float32", "bf16", "int8")
VOCABULARY = 333
SOURCES = [source for source, _ in PAIRS] + ["the cat", "", "dog dog sleeps the cat ?", "."]


@cache
def model() -> Transformer:
    torch.manual_seed(1)
    sizes = ModelConfig(
        d_model=64, num_heads=2, d_ff=96, num_encoder_layers=1, num_decoder_layers=1, tied="target",
        output_bias=True, src_vocab_size=41, tgt_vocab_size=VOCABULARY,
    )  # fmt: skip
    found = Transformer.from_config(sizes).eval()
    with torch.no_grad():
        for weight in found.parameters():
            weight.add_(0.15 * torch.randn_like(weight))
        # In int8, most weights of every other output are halfway between two numbers.
        halves = torch.arange(64) + 0.5
        halves[-1] = 127.0
        outputs = found.output.weight
        outputs[::2] = 0.004 * torch.rand(len(outputs[::2]), 1) * halves * outputs[::2].sign()
    return found


def sentences(count: int, longest: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 41, rng.integers(1, longest + 1)).tolist() for _ in range(count)]


def sets(count: int, seed: int) -> list[NDArray[np.int64]]:
    """Some ids for each sentence, from one to most of them."""
    rng = np.random.default_rng(seed)
    return [np.flatnonzero(rng.random(VOCABULARY) < rng.random() ** 3 + 0.01) for _ in range(count)]


def steps(
    precision: Precision, sources: list[list[int]], allowed: Sequence[NDArray[np.int64]] | None
) -> EngineStep:
    engine = engine_of(model(), precision)
    return EngineStep(
        engine, sources, shortlist=None if allowed is None else EngineShortlist(engine, allowed)
    )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_engine_has_the_probabilities_of_what_is_left(precision: Precision) -> None:
    sources, allowed = sentences(30, 10, seed=4), sets(30, seed=5)
    whole, restricted = steps(precision, sources, None), steps(precision, sources, allowed)
    sentence, ids = np.arange(30), torch.ones(30, dtype=torch.int64)
    rng = np.random.default_rng(6)
    for _ in range(3):
        every, tokens = log_probs_of(whole(ids)).double(), restricted(ids)
        found, (values, best) = log_probs_of(tokens), tokens.top(7, [0, 8, 999], renormalize=False)
        renormalised, same = tokens.top(7, [0, 8, 999], renormalize=True)
        np.testing.assert_array_equal(same, best)
        for row, b in enumerate(sentence):
            wanted = torch.full((VOCABULARY,), -torch.inf, dtype=torch.float64)
            wanted[allowed[b]] = every[row, allowed[b]].log_softmax(-1)
            assert_close(found[row].double(), wanted, FLOAT32.MODEL)
            left = [i for i in allowed[b].tolist() if i not in (0, 8)]
            order = sorted(left, key=lambda i: (-float(found[row, i]), i))[:7]
            assert best[row, : len(order)].tolist() == order
            assert_close(values[row, : len(order)], found[row, order], FLOAT32.ELEMENT)
            assert (values[row, len(order) :] == -np.inf).all()
            if len(left) <= 7:
                assert np.exp(renormalised[row]).sum() == close(float(len(left) > 0), FLOAT32.ROW)
        rows = rng.integers(0, len(ids), 40)
        sentence, ids = sentence[rows], torch.from_numpy(rng.integers(1, 41, 40))
        for step in (whole, restricted):
            step.reorder(torch.from_numpy(rows))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_in_the_engine_neighbours_do_not_change_a_bit(precision: Precision) -> None:
    sources, allowed = sentences(30, 10, seed=7), sets(30, seed=8)
    ids = torch.ones(30, dtype=torch.int64)
    together = steps(precision, sources, allowed)(ids)
    every, (values, best) = log_probs_of(together), together.top(5, [1], renormalize=True)
    for row, (source, own) in enumerate(zip(sources, allowed, strict=True)):
        alone = steps(precision, [source], [own])(ids[:1])
        assert torch.equal(log_probs_of(alone)[0], every[row])
        own_values, own_best = alone.top(5, [1], renormalize=True)
        np.testing.assert_array_equal(own_values[0], values[row])
        np.testing.assert_array_equal(own_best[0], best[row])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_in_the_engine_everything_is_as_nothing_to_the_last_bit(precision: Precision) -> None:
    sources, ids = sentences(30, 10, seed=9), torch.ones(30, dtype=torch.int64)
    some = sets(15, seed=10)
    every = [np.arange(VOCABULARY)] * 15
    without, within = steps(precision, sources, None)(ids), steps(precision, sources, [*every, *some])(ids)
    assert torch.equal(log_probs_of(within)[:15], log_probs_of(without)[:15])
    for renormalize in (False, True):
        found = within.top(6, [0, 3], renormalize=renormalize)
        for ours, theirs in zip(found, without.top(6, [0, 3], renormalize=renormalize), strict=True):
            np.testing.assert_array_equal(ours[:15], theirs[:15])


def test_torch_has_the_probabilities_of_what_is_left() -> None:
    src = torch.tensor([[5, 6, 7], [8, 9, 10]])
    own = np.asarray([2, 5, 300])
    with torch.inference_mode():
        every = log_probs_of(ModelStep(model(), src)(np.ones(2, dtype=np.int64)))
        step = RestrictedStep(
            ModelStep(model(), src),
            [np.arange(VOCABULARY), own],
            vocab_size=VOCABULARY,
            device=torch.device("cpu"),
        )
        step.reorder(np.array([1, 0, 0]))
        found = log_probs_of(step(np.ones(3, dtype=np.int64)))
    assert_close(found[1:], every[[0, 0]], FLOAT32.MODEL)  # torch multiplies three rows otherwise than two
    assert_close(found[0, own], every[1, own].log_softmax(-1), FLOAT32.MODEL)
    assert int(found[0].isfinite().sum()) == 3


# Of texts: a shortlist that leaves each sentence a few of the pieces.

OPTIONS = {
    "greedy": SearchOptions(strategy=BeamSearch(beam_size=1)),
    "beam": SearchOptions(strategy=BeamSearch(beam_size=4), n_best=4),
    "renormalised": SearchOptions(strategy=BeamSearch(beam_size=3), renormalize=True),
    "without repetition": SearchOptions(
        strategy=BeamSearch(beam_size=3), no_repeat_ngram_size=2, repetition_penalty=1.3
    ),
    "groups": SearchOptions(
        strategy=DiverseBeamSearch(beam_size=4, num_groups=2, diversity_penalty=0.5), n_best=4
    ),
    "forced ends": SearchOptions(
        strategy=BeamSearch(beam_size=2), forced_first_id=7, forced_last_id=2, max_length=4
    ),
    "sampled": SearchOptions(n_best=3, strategy=Sampling(seed=3)),
}


def shortlist_of(bundle: Bundle, *, candidates: int, frequent: int = 2) -> Shortlist:
    src = bundle.tokenizers.src.encode_batch([source for source, _ in PAIRS])
    tgt = bundle.tokenizers.tgt.encode_batch([target for _, target in PAIRS])
    return Shortlist.learn(src, tgt, bundle, candidates=candidates, frequent=frequent, record={})


def translator(engine: str, shortlist: Shortlist | None, **settings: object) -> Translator:
    return Translator(memorised(), engine=engine, shortlist=shortlist, **settings)  # type: ignore[arg-type]


def assert_same(found: Sequence[Translation], wanted: Sequence[Translation]) -> None:
    assert [each.text for each in found] == [each.text for each in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert [each.ids for each in ours.hypotheses] == [each.ids for each in theirs.hypotheses]
        for one, other in zip(ours.hypotheses, theirs.hypotheses, strict=True):
            assert one.token_log_probs == close(other.token_log_probs, FLOAT32.MODEL)


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("name", ["greedy", "beam", "sampled"])
def test_a_sentence_is_searched_as_if_all_else_were_suppressed(name: str, engine: str) -> None:
    bundle = memorised()
    shortlist, special_tokens = (
        shortlist_of(bundle, candidates=1),
        SpecialTokens.of(bundle.config, bundle.tokenizers),
    )
    tgt, options = bundle.tokenizers.tgt, replace(OPTIONS[name], renormalize=True)
    found = translator(engine, shortlist).translations(SOURCES, options=options)
    unrestricted = translator(engine, None)
    for source, ours in zip(SOURCES, found, strict=True):
        allowed = shortlist.ids(special_tokens.source(bundle.tokenizers.src.encode(source))).tolist()
        others = set(range(tgt.vocab_size)) - set(allowed) | {tgt.pad_id, tgt.bos_id}
        same = replace(options, suppressed_ids=tuple(others))
        assert_same([ours], unrestricted.translations([source], options=same))
    if name != "sampled":
        assert [each.text for each in found] != unrestricted.translate(SOURCES, options=options)


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_shortlist_of_everything_changes_no_bit(name: str, engine: str) -> None:
    shortlist = shortlist_of(memorised(), candidates=0, frequent=10_000)
    with_it, without = translator(engine, shortlist), translator(engine, None)
    wanted = without.translations(SOURCES, options=OPTIONS[name])
    assert with_it.translations(SOURCES, options=OPTIONS[name]) == wanted


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_neither_batch_nor_order_change_a_bit(
    name: str, precision: Precision, use_engine: Callable[[Precision], None]
) -> None:
    use_engine(precision)
    shortlist, options = shortlist_of(memorised(), candidates=1), OPTIONS[name]
    every = translator("native", shortlist, precision=precision)
    one_by_one = translator("native", shortlist, precision=precision, batch_size=1)
    wanted = every.translations(SOURCES * 3, options=options)
    assert one_by_one.translations(SOURCES * 3, options=options) == wanted
    assert every.translations((SOURCES * 3)[::-1], options=options) == wanted[::-1]


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_what_a_search_finds_is_scored_the_same(engine: str) -> None:
    shortlist = shortlist_of(memorised(), candidates=1)
    restricted = translator(engine, shortlist)
    prefixes = ["die Katze", *[""] * (len(SOURCES) - 1)]
    found = restricted.translations(SOURCES, options=OPTIONS["beam"], prefixes=prefixes)
    assert found[0].text.startswith("die Katze")
    for source, prefix, each in zip(SOURCES, prefixes, found, strict=True):
        for hypothesis in each.hypotheses:
            scored = restricted.score(
                [source], [hypothesis.written_ids], options=OPTIONS["beam"], prefixes=[prefix]
            )
            assert scored[0].score == close(hypothesis.score, FLOAT32.SENTENCE)
    impossible = next(i for i in range(40, 50) if i not in shortlist.ids([]))
    assert restricted.score(["."], [[impossible]])[0].score == -np.inf


def test_a_prefix_may_have_what_the_shortlist_has_not() -> None:
    shortlist = shortlist_of(memorised(), candidates=0, frequent=0)
    for engine in ("auto", "torch"):
        texts = translator(engine, shortlist).translations(SOURCES[:2], prefixes=["die Katze", ""])
        assert texts[0].text.startswith("die Katze")
        assert "Katze" not in texts[1].text


def test_two_models_write_together_with_one_shortlist_as_with_torch() -> None:
    shortlist = shortlist_of(memorised(), candidates=1)
    found, wanted = (
        translator(engine, shortlist, ensemble=[memorised()]).translations(SOURCES)
        for engine in ("auto", "torch")
    )
    assert_same(found, wanted)
