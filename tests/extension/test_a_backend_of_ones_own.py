"""A backend that is written here alone works with every search, through the translator."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray
from tiny_bundle import PAIRS, memorised

from heedful.bundle import Bundle
from heedful.decoding.backend import Allowed
from heedful.decoding.generator import Generator, StepwiseGenerator
from heedful.decoding.options import Sampling, SearchOptions
from heedful.decoding.steps import ArrayTokens, StepFunction
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.precision import Precision


class BigramStep:
    """What follows a token depends on that token alone, and on the sentence not at all."""

    def __init__(self, log_probs_VV: NDArray[np.float64]) -> None:
        self._log_probs_VV = log_probs_VV

    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        return ArrayTokens(self._log_probs_VV[last_ids])

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """Nothing is remembered."""


class BigramBackend:
    """Counts of which token follows which, plus one."""

    name = "bigrams"
    precision: Precision = "float32"
    parallel_batches = 2

    def __init__(self, texts: Sequence[Sequence[int]], *, start_id: int, vocab_size: int) -> None:
        counts_VV = np.full((vocab_size, vocab_size), 1e-3)
        for ids in texts:
            for before, after in zip([start_id, *ids], ids, strict=False):
                counts_VV[before, after] += 1
        self._log_probs_VV = np.log(counts_VV / counts_VV.sum(axis=1, keepdims=True))

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        assert sources
        assert threads >= 1
        assert allowed is None
        yield BigramStep(self._log_probs_VV)

    @contextmanager
    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
    ) -> Iterator[StepFunction]:
        assert len(sources) == len(outputs)
        assert start_id >= 0
        with self.step(sources, threads=threads, allowed=allowed) as step:
            yield step


def bigrams(bundle: Bundle, own: StepwiseGenerator) -> Generator:
    tgt = bundle.tokenizers.tgt
    texts = [[*tgt.encode(target), tgt.eos_id] for _, target in PAIRS]
    return own.over(BigramBackend(texts, start_id=tgt.bos_id, vocab_size=tgt.vocab_size))


SEARCHES = {
    "greedy": SearchOptions(beam_size=1),
    "beam": SearchOptions(beam_size=4, n_best=3),
    "groups": SearchOptions(beam_size=4, num_groups=2, n_best=2, diversity_penalty=0.5),
    "sampling": SearchOptions(n_best=5, sampling=Sampling(top_p=0.9, seed=3)),
    "constraints": SearchOptions(no_repeat_ngram_size=2, repetition_penalty=1.2, min_length=3, n_best=2),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_runs_over_it_and_scores_what_it_finds(name: str) -> None:
    translator, options = Translator(memorised(), engine=bigrams), SEARCHES[name]
    assert translator.engine_in_use == "bigrams"
    sources = [source for source, _ in PAIRS[:5]]
    for found in translator.translations(sources, options=options):
        assert len(found.hypotheses) == options.n_best
        ids = [each.written_ids for each in found.hypotheses]
        scored = translator.score([found.source] * len(ids), ids, options=options)
        assert [each.log_prob for each in scored] == pytest.approx(
            [each.log_prob for each in found.hypotheses], abs=1e-9
        )


def test_greedy_search_follows_the_most_frequent_bigrams() -> None:
    translator = Translator(memorised(), engine=bigrams)
    tgt = memorised().tokenizers.tgt
    firsts = [tgt.encode(target)[0] for _, target in PAIRS]
    most_frequent = max(set(firsts), key=lambda each: (firsts.count(each), -each))
    found = translator.translations([PAIRS[0][0]], options=SEARCHES["greedy"])[0].hypotheses[0]
    assert found.ids[0] == most_frequent
    share = (firsts.count(most_frequent) + 1e-3) / (len(PAIRS) + 1e-3 * tgt.vocab_size)
    assert found.token_log_probs[0] == pytest.approx(math.log(share))


def test_what_needs_attention_is_refused() -> None:
    translator = Translator(memorised(), engine=bigrams)
    with pytest.raises(InputError, match="engine='bigrams': no coverage penalty there"):
        translator.translate(["the cat"], options=SearchOptions(coverage_penalty=0.2))
