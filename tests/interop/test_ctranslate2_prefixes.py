"""Outputs go on after prefixes as CTranslate2's do."""

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

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
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
