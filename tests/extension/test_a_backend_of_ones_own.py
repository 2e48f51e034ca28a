"""A backend outside of heedful works with every search, through the translator."""

import math

import pytest
from bigram_backend import bigrams
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.decoding.translator import Translator
from heedful.errors import InputError

SEARCHES = {
    "greedy": SearchOptions(strategy=Greedy()),
    "beam": SearchOptions(strategy=BeamSearch(beam_size=4), n_best=3),
    "beam of one": SearchOptions(strategy=BeamSearch(beam_size=1)),
    "diverse beam": SearchOptions(strategy=DiverseBeamSearch(beam_size=4, num_groups=2), n_best=2),
    "sampling": SearchOptions(strategy=Sampling(top_p=0.9, seed=3), n_best=5),
    "constraints": SearchOptions(no_repeat_ngram_size=2, repetition_penalty=1.2, min_length=3, n_best=2),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_runs_over_it_and_scores_what_it_finds(name: str) -> None:
    translator, options = Translator(memorised(), engine=bigrams(memorised())), SEARCHES[name]
    assert translator.engine_in_use == "bigrams"
    sources = [source for source, _ in PAIRS[:5]]
    for found in translator.translations(sources, options=options):
        assert len(found.hypotheses) == options.n_best
        ids = [each.written_ids for each in found.hypotheses]
        scored = translator.score([found.source] * len(ids), ids, options=options)
        assert [each.log_prob for each in scored] == close(
            [each.log_prob for each in found.hypotheses], FLOAT64.SENTENCE
        )


def test_minimum_bayes_risk_chooses_among_its_samples() -> None:
    translator, [source] = Translator(memorised(), engine=bigrams(memorised())), [PAIRS[0][0]]
    sampling = Sampling(seed=3)
    samples = translator.translations([source], options=SearchOptions(strategy=sampling, n_best=9))
    options = SearchOptions(strategy=MinimumBayesRisk(samples=9, sampling=sampling), n_best=2)
    [chosen] = translator.translations([source], options=options)
    assert len(chosen.hypotheses) == 2
    assert {each.text for each in chosen.hypotheses} <= {each.text for each in samples[0].hypotheses}


def test_greedy_search_follows_the_most_frequent_bigrams() -> None:
    translator = Translator(memorised(), engine=bigrams(memorised()))
    tgt = memorised().tokenizers.tgt
    firsts = [tgt.encode(target)[0] for _, target in PAIRS]
    most_frequent = max(set(firsts), key=lambda each: (firsts.count(each), -each))
    found = translator.translations([PAIRS[0][0]], options=SEARCHES["greedy"])[0].hypotheses[0]
    assert found.ids[0] == most_frequent
    share = (firsts.count(most_frequent) + 1e-3) / (len(PAIRS) + 1e-3 * tgt.vocab_size)
    assert found.token_log_probs[0] == close(math.log(share), FLOAT64.ROW)


def test_what_needs_attention_is_refused() -> None:
    translator = Translator(memorised(), engine=bigrams(memorised()))
    with pytest.raises(InputError, match=r"coverage_penalty=0\.2"):
        translator.translate(["the cat"], options=SearchOptions(coverage_penalty=0.2))
