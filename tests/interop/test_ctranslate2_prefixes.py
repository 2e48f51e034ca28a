"""Prefixes that force or bias an output, and alternatives after them, as CTranslate2 has them."""

from typing import Any

import ctranslate2
import pytest
from ctranslate2_models import (
    EOS,
    MAX_LENGTH,
    engine,
    random_bundle,
    sentences,
    source_tokens,
    target_tokens,
)
from option_models import SRC_VOCAB, TGT_VOCAB

from heedful.decoding.beam import BeamSearch
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.storage.bundle import Bundle

OPTIONS = SearchOptions(
    length_penalty=0.0, length_normalization="average", suppressed_ids=(), max_length=MAX_LENGTH
)
SOURCES = sentences(20, SRC_VOCAB, (1, 4, 7, 11), seed=3)
PREFIXES = sentences(20, TGT_VOCAB, (0, 2, 3, 1, 5), seed=8)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return random_bundle()


@pytest.fixture(scope="module")
def theirs(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> ctranslate2.Translator:
    return engine(bundle, tmp_path_factory.mktemp("ct2") / "model")


def found_there(theirs: ctranslate2.Translator, bundle: Bundle, **settings: Any) -> list[list[list[str]]]:  # noqa: ANN401
    results = theirs.translate_batch(
        source_tokens(bundle, SOURCES), target_prefix=target_tokens(bundle, PREFIXES), length_penalty=0,
        max_decoding_length=MAX_LENGTH, return_end_token=True, **{"min_decoding_length": 0, **settings},
    )  # fmt: skip
    return [result.hypotheses for result in results]


def tokens_of(bundle: Bundle, found: list[list[Hypothesis]]) -> list[list[list[str]]]:
    return [target_tokens(bundle, [[*each.ids, *[EOS] * each.finished] for each in one]) for one in found]


def found_here(bundle: Bundle, options: SearchOptions) -> list[list[list[str]]]:
    framed = [[*ids, EOS] for ids in SOURCES]
    found = Translator(bundle, engine="torch").search_ids(framed, options=options, prefixes=PREFIXES)
    return tokens_of(bundle, found)


def test_greedy_outputs_go_on_alike_after_prefixes_of_any_length(
    bundle: Bundle, theirs: ctranslate2.Translator
) -> None:
    options = SearchOptions(**vars(OPTIONS) | {"strategy": BeamSearch(beam_size=1)})
    assert found_here(bundle, options) == found_there(theirs, bundle, beam_size=1)


@pytest.mark.parametrize("bias", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_lean_alike(
    bundle: Bundle, theirs: ctranslate2.Translator, beam_size: int, bias: float
) -> None:
    options = SearchOptions(
        **vars(OPTIONS) | {"strategy": BeamSearch(beam_size=beam_size), "prefix_bias": bias}
    )
    expected = found_there(theirs, bundle, beam_size=beam_size, prefix_bias_beta=bias)
    assert found_here(bundle, options) == expected


@pytest.mark.parametrize("count", [1, 4])
def test_alternatives_part_after_the_prefix_at_the_same_pieces(
    bundle: Bundle, theirs: ctranslate2.Translator, count: int
) -> None:
    """There, no output ends right after its prefix; here, a minimal length sees to it."""
    texts, prefixes = map(bundle.tokenizers.src.decode, SOURCES), map(bundle.tokenizers.tgt.decode, PREFIXES)
    options = SearchOptions(**vars(OPTIONS) | {"strategy": BeamSearch(beam_size=1), "min_length": 9})
    found = Translator(bundle).alternatives(
        list(texts), prefixes=list(prefixes), count=count, options=options
    )
    expected = found_there(
        theirs, bundle, beam_size=1, num_hypotheses=count, return_alternatives=True, min_decoding_length=9
    )
    ids = [[[*each.ids, *[EOS] * each.finished] for each in translation.hypotheses] for translation in found]
    assert [target_tokens(bundle, one) for one in ids] == expected
    assert [one[0][:-1][: len(p)] for one, p in zip(ids, PREFIXES, strict=True)] == PREFIXES
