"""Batches of a model that reads the tag of a language and writes that of another, as NLLB does."""

from pathlib import Path

import numpy as np
import pytest
from small_tokenizers import LANGUAGES, nllb_pair, phrases

from heedful.data.batches import BatchSource
from heedful.data.files import ParallelText
from heedful.data.store import build_store
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, LanguageConfig
from heedful.text import SpecialTokens, TokenizerPair

ENGLISH, GERMAN = phrases()


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    return nllb_pair()


@pytest.fixture(scope="module")
def template(pair: TokenizerPair) -> SpecialTokens:
    """As `heedful train --init` has it from the bundle of an NLLB model."""
    languages = LanguageConfig(src_tag="eng_Latn", tgt_tag="deu_Latn")
    model = ModelConfig(decoder_start_id=pair.tgt.eos_id, src_pad_id=1, tgt_pad_id=1)
    return SpecialTokens.of(Config(model=model, languages=languages), pair)


def test_the_tags_are_learned_in_their_places(
    tmp_path: Path, pair: TokenizerPair, template: SpecialTokens
) -> None:
    text = ParallelText(list(ENGLISH[:2]), list(GERMAN[:2]))
    store = build_store(text, pair, max_length=200, template=template, cache_dir=tmp_path)
    batch = BatchSource(store, pair, tokens=4000, seed=1, template=template).batch(np.array([0, 1]), epoch=0)
    english, german = pair.src.tag_id("eng_Latn"), pair.tgt.tag_id("deu_Latn")
    start, eos, pad = pair.tgt.eos_id, pair.tgt.eos_id, pair.tgt.pad_id
    for row in (0, 1):
        src, tgt = pair.src.encode(ENGLISH[row]), pair.tgt.encode(GERMAN[row])
        assert _unpadded(batch.src[row].tolist(), pad) == [english, *src, eos]
        assert _unpadded(batch.tgt_in[row].tolist(), pad) == [start, german, *tgt]
        assert _unpadded(batch.tgt_out[row].tolist(), pad) == [german, *tgt, eos]
    assert batch.num_tgt_tokens == sum(len(pair.tgt.encode(line)) + 2 for line in GERMAN[:2])


def test_lengths_count_tags(tmp_path: Path, pair: TokenizerPair, template: SpecialTokens) -> None:
    text = ParallelText([ENGLISH[0]], [GERMAN[0]])
    store = build_store(text, pair, max_length=200, template=template, cache_dir=tmp_path)
    src, tgt = len(pair.src.encode(ENGLISH[0])) + 2, len(pair.tgt.encode(GERMAN[0])) + 2
    assert (store.src_lengths[0], store.tgt_lengths[0]) == (src, tgt)
    assert (store.report.longest_src, store.report.longest_tgt) == (src, tgt)
    both = ParallelText([ENGLISH[0], "a"], [GERMAN[0], "b"])
    shorter = build_store(both, pair, max_length=max(src, tgt) - 1, template=template, cache_dir=tmp_path)
    assert (shorter.report.num_kept, shorter.report.num_too_long) == (1, 1)


def test_each_framing_has_its_own_store(tmp_path: Path, pair: TokenizerPair, template: SpecialTokens) -> None:
    text = ParallelText(list(ENGLISH), list(GERMAN))
    plain = SpecialTokens.plain(pair)
    paths = {
        build_store(text, pair, max_length=200, template=each, cache_dir=tmp_path).path
        for each in (template, plain, _swapped(pair))
    }
    assert len(paths) == 3
    bare = build_store(text, pair, max_length=200, cache_dir=tmp_path).path
    started = SpecialTokens(src_suffix=(2,), tgt_suffix=(2,), start_id=2)
    same = build_store(text, pair, max_length=200, template=started, cache_dir=tmp_path).path
    assert bare == same  # what the decoder starts with is no part of a store
    assert bare in paths


def _swapped(pair: TokenizerPair) -> SpecialTokens:
    languages = LanguageConfig(src_tag=LANGUAGES[2], tgt_tag=LANGUAGES[0])
    return SpecialTokens.of(Config(languages=languages), pair)


def _unpadded(ids: list[int], pad_id: int) -> list[int]:
    while ids[-1] == pad_id:
        ids.pop()
    return ids
