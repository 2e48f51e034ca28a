from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import TestCase

import pytest
import torch
from machine_class import need_native
from searches import searched
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised
from tolerances import FLOAT32, close

from heedful.analysis.attention_maps import attention_of
from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.backends.torch import ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.sampling import Sampling
from heedful.decoding.task import SearchTask
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.storage.bundle import load_bundle, save_bundle

pytestmark = pytest.mark.by_class


LINES = ["the house", "a cat and a dog", "the girl's lamp is broken"]
GREEDY = SearchOptions(strategy=BeamSearch(beam_size=1), max_length_offset=6)


def test_the_encoder_reads_the_framed_text_and_the_decoder_starts_as_the_model_says() -> None:
    bundle = nllb_like()
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    (translation,) = Translator(bundle).translations([LINES[1]], options=GREEDY)
    ids = [src.tag_id("eng_Latn"), *src.encode(LINES[1]), src.eos_id]
    task = SearchTask(
        max_lengths=[len(ids) + 6], start_id=tgt.eos_id, eos_id=tgt.eos_id, pad_id=tgt.pad_id,
        options=replace(GREEDY, forced_first_id=tgt.tag_id("deu_Latn")),
    )  # fmt: skip
    with torch.inference_mode():
        [[expected]] = searched(ModelStep(bundle.model, torch.tensor([ids])), task)
    assert translation.hypotheses[0].ids == expected.ids
    assert translation.score == close(expected.score, FLOAT32.SENTENCE)


def test_translators_of_several_languages_pack_the_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack = NativeBackend.__init__

    def counted(self: NativeBackend, *arguments: Any) -> None:  # noqa: ANN401
        packed.append(1)
        pack(self, *arguments)

    bundle = nllb_like()
    need_native()
    monkeypatch.setattr(NativeBackend, "__init__", counted)
    german = Translator(bundle)
    for tag in ("deu_Latn", "fra_Latn", "eng_Latn"):
        german.for_languages(tgt_lang=tag).translate(LINES)
    german.translate(LINES)
    assert packed == [1]


def test_other_languages_share_the_model(tmp_path: Path) -> None:
    bundle = nllb_like()
    german = Translator(bundle)
    french = german.for_languages(src_lang="deu_Latn", tgt_lang="fra_Latn")
    assert french.bundle.model is bundle.model
    assert french.translations(LINES)[0].hypotheses[0].ids[0] == bundle.tokenizers.tgt.tag_id("fra_Latn")
    assert french.translate(LINES) != german.translate(LINES)
    assert german.for_languages().translate(LINES) == german.translate(LINES)
    save_bundle(bundle, tmp_path / "bundle", card="# Many languages\n")
    loaded = Translator.load(tmp_path / "bundle", src_lang="deu_Latn", tgt_lang="fra_Latn")
    assert loaded.translate(LINES) == french.translate(LINES)
    assert load_bundle(tmp_path / "bundle").config == bundle.config
    with pytest.raises(InputError, match="tgt_lang: 'ger'"):
        Translator.load(tmp_path / "bundle", tgt_lang="ger")


def test_learned_positions_count_the_frame() -> None:
    words = "a a a a a"
    length = len(nllb_like().tokenizers.src.encode(words)) + 2
    limited = nllb_like(positions="learned", max_positions=length)
    with TestCase().assertLogs() as logs:  # of its outputs, which never end
        assert Translator(limited).translations([words])[0].hypotheses
    assert "segments" not in "".join(logs.output)
    short = nllb_like(positions="learned", max_positions=length - 1)
    with TestCase().assertLogs() as logs:
        Translator(short).translate([words])
    [said] = [line for line in logs.output if "segments" in line]
    assert f"line 1: {length} tokens, above max_positions={length - 1}: translated in segments" in said
    with TestCase().assertLogs() as logs:
        Translator(short).score([words], ["a"])
    [said] = logs.output
    assert f"source line 1: {length} tokens, above max_positions={length - 1}: " in said


def test_attention_is_of_the_framed_pieces() -> None:
    for target in (None, "das Haus"):
        maps = attention_of(Translator(nllb_like()), "the house", target=target)
        assert (maps.source_tokens[0], maps.source_tokens[-1]) == ("eng_Latn", "</s>")
        assert maps.target_in_tokens[:2] == ("</s>", "deu_Latn")
        assert maps.target_tokens[0] == "deu_Latn"
        assert (maps.target_tokens[-1], "Latn" in maps.target) == ("</s>", False)
        assert len(maps.target_in_tokens) == len(maps.target_tokens)


SENTENCES = [source for source, _ in PAIRS]
FREE = SearchOptions(n_best=4, strategy=Sampling(temperature=3.0, top_k=30), max_length_offset=5)


def test_a_translation_begins_with_its_prefix() -> None:
    translator = Translator(memorised())
    prefixes = ["der Hund", "", "die Katze sieht die", "der", "", "schläft die"]
    for beam_size in (1, 4):
        options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), n_best=beam_size)
        found = translator.translations(SENTENCES, options=options, prefixes=prefixes)
        free = translator.translations(SENTENCES, options=options)
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
    expected = translator.translations(SENTENCES, prefixes=prefixes)
    for chunk_lines in (1, 4, 100):
        given = (prefix + "\n" for prefix in prefixes)
        stream = translator.translate_lines(SENTENCES, prefixes=given, chunk_lines=chunk_lines)
        assert [each.text for each in stream] == [each.text for each in expected]


def test_prefixes_that_cannot_be_are_named() -> None:
    translator = Translator(memorised())
    with pytest.raises(InputError, match=r"^prefixes"):
        translator.translations(SENTENCES[:2], prefixes=["der"])
    stream = translator.translate_lines(SENTENCES[:3], prefixes=["der", "die"], chunk_lines=2)
    assert [next(stream).source, next(stream).source] == SENTENCES[:2]
    with pytest.raises(InputError, match=r"^line 3"):
        next(stream)


def test_a_prefix_may_be_as_long_as_the_output_and_no_longer() -> None:
    translator, prefix = Translator(memorised()), "die Katze sieht den Hund ."
    length = len(translator.bundle.tokenizers.tgt.encode(prefix))
    [found] = translator.translations(
        SENTENCES[:1], options=SearchOptions(max_length=length), prefixes=[prefix]
    )
    assert (found.text, found.hypotheses[0].finished) == (prefix, False)
    short = SearchOptions(max_length=length - 1)
    message = rf"^line 2: a prefix of {length} tokens, but the translation may have {length - 1}; "
    with pytest.raises(InputError, match=message):
        translator.translations(SENTENCES[:2], options=short, prefixes=["", prefix])


def hypotheses(translation: Translation) -> list[tuple[int, ...]]:
    return [each.ids for each in translation.hypotheses]


def test_samples_depend_on_their_own_line_alone() -> None:
    bundle = memorised()
    together = Translator(bundle).translations([*SENTENCES, "", SENTENCES[0]], options=FREE)
    assert hypotheses(together[0]) == hypotheses(together[-1])
    assert len({ids for each in together for ids in hypotheses(each)}) > 15
    alone = Translator(bundle, batch_tokens=1).translations(SENTENCES, options=FREE)
    turned = Translator(bundle, batch_tokens=20).translations(SENTENCES[::-1], options=FREE)[::-1]
    for one, other, another in zip(together, alone, turned, strict=False):
        assert hypotheses(one) == hypotheses(other) == hypotheses(another)
