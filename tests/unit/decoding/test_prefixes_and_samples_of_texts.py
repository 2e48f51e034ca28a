"""Prefixes and samples from text to text."""

import pytest
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import InputError

LINES = [source for source, _ in PAIRS]
FREE = SearchOptions(n_best=4, strategy=Sampling(temperature=3.0, top_k=30), max_length_offset=5)


def test_a_translation_begins_with_its_prefix() -> None:
    translator = Translator(memorised())
    prefixes = ["der Hund", "", "die Katze sieht die", "der", "", "schläft die"]
    for beam_size in (1, 4):
        options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), n_best=beam_size)
        found = translator.translations(LINES, options=options, prefixes=prefixes)
        free = translator.translations(LINES, options=options)
        for prefix, translation, without in zip(prefixes, found, free, strict=True):
            assert all(each.text.startswith(prefix) for each in translation.hypotheses)
            if not prefix:
                assert translation.text == without.text
    assert found[0].text == "der Hund schläft ."
    assert found[0].hypotheses[0].token_log_probs[0] < -2  # the model's own: "der" is no guess of it


def test_a_prefix_stands_after_the_language() -> None:
    bundle = nllb_like()
    tgt = bundle.tokenizers.tgt
    options = SearchOptions(strategy=BeamSearch(beam_size=2), n_best=2, max_length_offset=6)
    [found] = Translator(bundle).translations(["a cat and a dog"], options=options, prefixes=["the house"])
    for each in found.hypotheses:
        assert list(each.ids[:3]) == [tgt.tag_id("deu_Latn"), *tgt.encode("the house")][:3]
        assert each.token_log_probs[0] == 0.0 > each.token_log_probs[1]


def test_a_stream_takes_prefixes_line_by_line() -> None:
    translator = Translator(memorised())
    prefixes = ["der Hund", "", "die", "der", "", "schläft die"]
    expected = translator.translations(LINES, prefixes=prefixes)
    for chunk_lines in (1, 4, 100):
        given = (prefix + "\n" for prefix in prefixes)
        stream = translator.translate_lines(LINES, prefixes=given, chunk_lines=chunk_lines)
        assert [each.text for each in stream] == [each.text for each in expected]


def test_prefixes_that_cannot_be_are_named() -> None:
    translator = Translator(memorised())
    with pytest.raises(InputError, match=r"^prefixes: 1 for 2 texts"):
        translator.translations(LINES[:2], prefixes=["der"])
    stream = translator.translate_lines(LINES[:3], prefixes=["der", "die"], chunk_lines=2)
    assert [next(stream).source, next(stream).source] == LINES[:2]
    with pytest.raises(InputError, match=r"^line 3: has no prefix"):
        next(stream)


def test_a_prefix_may_be_as_long_as_the_output_and_no_longer() -> None:
    translator, prefix = Translator(memorised()), "die Katze sieht den Hund ."
    length = len(translator.bundle.tokenizers.tgt.encode(prefix))
    [found] = translator.translations(LINES[:1], options=SearchOptions(max_length=length), prefixes=[prefix])
    assert (found.text, found.hypotheses[0].finished) == (prefix, False)
    short = SearchOptions(max_length=length - 1)
    message = rf"^line 2: a prefix of {length} tokens, but the translation may have {length - 1}; "
    with pytest.raises(InputError, match=message):
        translator.translations(LINES[:2], options=short, prefixes=["", prefix])


def hypotheses(translation: Translation) -> list[tuple[int, ...]]:
    return [each.ids for each in translation.hypotheses]


def test_samples_depend_on_their_own_line_alone() -> None:
    bundle = memorised()
    together = Translator(bundle).translations([*LINES, "", LINES[0]], options=FREE)
    assert hypotheses(together[0]) == hypotheses(together[-1])
    assert len({ids for each in together for ids in hypotheses(each)}) > 15
    alone = Translator(bundle, batch_tokens=1).translations(LINES, options=FREE)
    turned = Translator(bundle, batch_tokens=20).translations(LINES[::-1], options=FREE)[::-1]
    for one, other, another in zip(together, alone, turned, strict=False):
        assert hypotheses(one) == hypotheses(other) == hypotheses(another)
