import math
from pathlib import Path

import pytest
from small_tokenizers import phrases
from tiny_bundle import PAIRS, memorised, save_memorised
from tolerances import FLOAT32, close

from heedful.data.batches import BatchSource
from heedful.data.files import ParallelText, parallel_lines
from heedful.data.store import build_store
from heedful.decoding.options import search_options
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError
from heedful.evaluation.scoring import Perplexity, ScoredPair, ScoredToken, score_pairs
from heedful.training.step import measure_nll

pytestmark = pytest.mark.by_class


def pair(target: str, *log_probs: float) -> ScoredPair:
    tokens = tuple(ScoredToken("x", -math.inf, value) for value in log_probs)
    return ScoredPair("", target, -math.inf, -math.inf, sum(log_probs), tokens)


def scored(
    path: Path, sources: list[str], targets: list[str], overrides: dict[str, object] | None = None
) -> list[ScoredPair]:
    translator = Translator.load(path, precision="float32")
    options = search_options(overrides or {}, translator.bundle.config.decode)
    pairs = parallel_lines(sources, targets, src_name="sources", tgt_name="targets")
    return list(score_pairs(translator, pairs, options=options))


def test_it_is_that_of_validation_on_the_same_pairs(tmp_path: Path) -> None:
    sources, targets = [src for src, _ in PAIRS], [tgt for _, tgt in PAIRS]
    sources, targets = [*sources, *phrases()[0][:40]], [*targets, *phrases()[1][:40]]
    bundle = memorised()
    store = build_store(
        ParallelText(sources, targets), bundle.tokenizers, max_length=500, cache_dir=tmp_path / "cache"
    )
    batches = BatchSource(store, bundle.tokenizers, tokens=200, seed=1).batches(0)
    wanted = measure_nll(bundle.model, batches, precision="float32")
    found = Perplexity()
    for each in scored(save_memorised(tmp_path / "bundle"), sources, targets):
        found.add(each)
    assert found.num_tokens == store.report.num_tgt_tokens
    assert -found.model_log_prob / found.num_tokens == close(wanted["nll"], FLOAT32.MODEL)
    assert found.per_token == close(wanted["perplexity"], FLOAT32.MODEL)
    assert found.per_token > 2


def test_a_pair_of_nothing_is_not_counted() -> None:
    found = Perplexity()
    found.add(pair(""))
    assert (found.num_pairs, found.num_tokens, found.num_words) == (0, 0, 0)
    assert math.isnan(found.per_token)
    assert math.isnan(found.per_word)


@pytest.mark.parametrize("log_prob", [-1e4, -math.inf])
def test_beyond_what_numbers_hold_it_is_infinite(log_prob: float) -> None:
    found = Perplexity()
    found.add(pair("a", log_prob))
    assert found.per_token == math.inf


def test_pairs_have_the_numbers_of_the_translator_and_the_pieces_of_the_target(tmp_path: Path) -> None:
    sources, targets = [src for src, _ in PAIRS], [tgt for _, tgt in PAIRS]
    overrides = {"length_penalty": 1.0, "length_normalization": "power"}
    found = scored(save_memorised(tmp_path / "bundle"), [*sources, ""], [*targets, ""], overrides)
    wanted = Translator(memorised(), precision="float32").score(sources, targets)
    tokenizer = memorised().tokenizers.tgt
    for one, other, target in zip(found, wanted, targets, strict=False):
        assert one.log_prob == close(other.log_prob, FLOAT32.SENTENCE)
        assert one.score == close(other.log_prob / len(one.tokens), FLOAT32.SENTENCE)
        assert [token.token for token in one.tokens] == [*tokenizer.tokens(tokenizer.encode(target)), "</s>"]
        assert sum(token.log_prob for token in one.tokens) == one.log_prob
    assert found[-1] == ScoredPair("", "", 0.0, 0.0, 0.0, ())


def test_sides_of_unequal_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="targets"):
        scored(save_memorised(tmp_path / "bundle"), ["a", "b"], ["a"])
