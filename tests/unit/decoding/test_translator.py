import copy
import pickle
import re
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from unittest import TestCase

import numpy as np
import pytest
import torch
from tolerances import FLOAT32, close, format_of

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.errors import BundleError, InputError
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.options import Precision
from heedful.settings.run import Config, DecodeConfig, TokenizerConfig
from heedful.storage.bundle import Bundle, save_bundle
from heedful.text import TokenizerPair, train_tokenizers

pytestmark = pytest.mark.by_class

LINES = ["ab ba", "abba baab abab", "a", "bab bab bab bab bab", "b a b a b a", "aab", "abba", "bb aa"]
SHORT = SearchOptions(strategy=BeamSearch(beam_size=3), n_best=3, max_length_offset=4)


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    config = TokenizerConfig(kind="char", vocab_size=20)
    return train_tokenizers(LINES * 4, [line.upper() for line in LINES] * 4, config, seed=1)


def make_bundle(tokenizers: TokenizerPair, **changes: object) -> Bundle:
    size = tokenizers.src.vocab_size
    settings = {
        "d_model": 16, "num_heads": 2, "d_ff": 24, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "src_vocab_size": size, "tgt_vocab_size": size,
    }  # fmt: skip
    torch.manual_seed(3)
    config = Config(
        model=ModelConfig(**{**settings, **changes}),  # type: ignore[arg-type]
        decode=DecodeConfig(beam_size=2, max_length_offset=3),
    )
    model = Transformer.from_config(config.model).eval()
    return Bundle(config=config, tokenizers=tokenizers, network=model)


@pytest.fixture(scope="module")
def bundle(tokenizers: TokenizerPair) -> Bundle:
    return make_bundle(tokenizers)


def test_order_and_number_are_kept_and_empty_lines_stay_empty(bundle: Bundle) -> None:
    texts = ["", *LINES, "  ", "\t", LINES[0], ""]
    found = Translator(bundle).translations(texts, options=SHORT)
    assert [translation.source for translation in found] == texts
    for translation in found:
        if translation.source.strip():
            assert len(translation.hypotheses) >= 1
            assert translation.text == translation.hypotheses[0].text
            assert translation.score == translation.hypotheses[0].score
        else:
            assert (translation.text, translation.score, translation.hypotheses) == ("", 0.0, ())
    assert found[1] == found[-2]  # the same line twice


def test_translate_gives_the_texts(bundle: Bundle) -> None:
    translator = Translator(bundle)
    assert translator.translate(LINES) == [each.text for each in translator.translations(LINES)]
    assert translator.translate([]) == []


@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_batch_size_changes_no_text(bundle: Bundle, beam_size: int) -> None:
    options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), max_length_offset=6)
    alone = Translator(bundle, batch_tokens=1).translations(LINES, options=options)
    for batch_tokens in (20, 50, 10_000):
        together = Translator(bundle, batch_tokens=batch_tokens).translations(LINES, options=options)
        assert [each.text for each in together] == [each.text for each in alone]
        assert [each.score for each in together] == close([each.score for each in alone], FLOAT32.SENTENCE)


def test_the_bundles_own_search_is_the_default(bundle: Bundle) -> None:
    translator = Translator(bundle)
    options = SearchOptions(strategy=BeamSearch(beam_size=2), max_length_offset=3)
    assert translator.translations(LINES) == translator.translations(LINES, options=options)
    assert translator.default_options == options
    limits = [len(bundle.tokenizers.src.encode(line)) + 1 + 3 for line in LINES]
    for translation, limit in zip(translator.translations(LINES), limits, strict=True):
        assert all(len(each.token_log_probs) <= limit for each in translation.hypotheses)


@pytest.mark.parametrize("chunk_lines", [1, 3, 1024])
def test_a_stream_gives_what_a_list_gives(bundle: Bundle, chunk_lines: int) -> None:
    translator = Translator(bundle)
    lines = [*LINES, "", *LINES]
    stream = translator.translate_lines((line + "\n" for line in lines), chunk_lines=chunk_lines)
    assert [each.text for each in stream] == translator.translate(lines)


def test_a_stream_is_read_no_further_than_a_chunk_ahead(bundle: Bundle) -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in LINES:
            read.append(line)
            yield line

    stream = Translator(bundle).translate_lines(lines(), chunk_lines=1)
    for count in range(1, 4):
        next(stream)
        assert len(read) == count


def test_a_line_beyond_learned_positions_is_split_and_named(tokenizers: TokenizerPair) -> None:
    translator = Translator(make_bundle(tokenizers, positions="learned", max_positions=12))
    long = "ababababababa"
    with TestCase().assertLogs() as logs:
        [_, _, whole] = translator.translate(["ab", "", long])
        stream = translator.translate_lines(["ab", "b", "a", long], chunk_lines=2)
        assert [each.text for each in stream][3] == whole
    said = [re.sub(r"\d+ tokens", "N tokens", each.getMessage()) for each in logs.records]
    assert said == [
        f"line {line}: N tokens, above max_positions=12: translated in segments" for line in (3, 4)
    ]


def test_learned_positions_limit_the_output_too(tokenizers: TokenizerPair) -> None:
    translator = Translator(make_bundle(tokenizers, positions="learned", max_positions=12))
    options = SearchOptions(strategy=BeamSearch(beam_size=2), n_best=2, max_length_offset=50, min_length=50)
    [found] = translator.translations(["abababab"], options=options)
    assert [len(each.ids) for each in found.hypotheses] == [12, 12]


def test_the_shorter_of_both_limits_holds(bundle: Bundle) -> None:
    options = SearchOptions(strategy=BeamSearch(beam_size=2), max_length_offset=4, max_length=7, min_length=7)
    found = Translator(bundle).translations(["a", "ababababab"], options=options)
    lengths = [len(translation.hypotheses[0].ids) for translation in found]
    assert lengths == [len(bundle.tokenizers.src.encode("a")) + 1 + 4, 7]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_rounded_products_are_close_and_leave_the_weights_alone(bundle: Bundle, precision: Precision) -> None:
    before = {name: value.clone() for name, value in bundle.model.state_dict().items()}
    exact = Translator(bundle).translations(LINES, options=SHORT)
    rounded = Translator(bundle, precision=precision).translations(LINES, options=SHORT)
    assert [each.score for each in rounded] != [each.score for each in exact]
    assert [each.score for each in rounded] == close(
        [each.score for each in exact], format_of(precision).MODEL
    )
    assert all(torch.equal(value, before[name]) for name, value in bundle.model.state_dict().items())


def test_a_model_in_training_is_left_in_training_and_translates_as_in_use(tokenizers: TokenizerPair) -> None:
    bundle = make_bundle(tokenizers, dropout=0.5)
    expected = Translator(bundle).translate(LINES)
    bundle.model.train()
    assert Translator(bundle).translate(LINES) == expected
    assert bundle.model.training
    logits = bundle.model(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 5]]))
    logits.sum().backward()  # nothing of the search stands in the way of the next training step


def test_bad_arguments_are_input_errors(bundle: Bundle) -> None:
    with pytest.raises(InputError, match="precision='int3'"):
        Translator(bundle, precision="int3")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="batch_tokens=0"):
        Translator(bundle, batch_tokens=0)
    with pytest.raises(InputError, match="chunk_lines=0"):
        next(Translator(bundle).translate_lines(["ab"], chunk_lines=0))


@pytest.mark.parametrize(
    ("texts", "prefixes", "message"),
    [
        ("the cat", None, "texts='the cat'"),
        *((texts, None, "texts") for texts in ({"the cat"}, {"the cat": 1}, None, [None], [b"a"])),
        (["the cat", None], None, "texts: number 2"),
        (["the cat"], "d", "prefixes='d'"),
        (["the cat"], [None], "prefixes: number 1"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(
    bundle: Bundle, texts: list[str], prefixes: list[str] | None, message: str
) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        Translator(bundle).translations(texts, prefixes=prefixes)


def test_lines_of_a_text_are_translated_one_by_one(bundle: Bundle) -> None:
    translator = Translator(bundle)
    first, second = translator.translate(["ab ba", "abba"])
    assert translator.translate(["ab ba\nabba", " ab ba\n\n  abba\n"]) == [
        f"{first}\n{second}",
        f"{first}\n\n  {second}",
    ]


def test_texts_may_be_a_stream(bundle: Bundle) -> None:
    translator = Translator(bundle)
    wanted = translator.translate(LINES)
    assert translator.translate(line for line in LINES) == wanted  # type: ignore[arg-type]
    assert translator.translate(np.array(LINES)) == wanted  # type: ignore[arg-type]
    with pytest.raises(InputError, match="texts: number 1"):
        translator.translate(iter([None]))  # type: ignore[arg-type]


def _translated(pair: tuple[Translator, str]) -> list[str]:
    translator, text = pair
    return translator.translate([text])


def test_a_translator_is_copied_and_sent_to_other_processes(bundle: Bundle, tmp_path: Path) -> None:
    save_bundle(bundle, tmp_path / "bundle")
    for translator in (
        Translator(tmp_path / "bundle"),
        Translator(tmp_path / "bundle", engine="torch", batch_tokens=7),
        Translator(bundle, ensemble=[bundle]),
    ):
        wanted = translator.translate(LINES)
        again = pickle.loads(pickle.dumps(translator))
        assert (again.translate(LINES), copy.deepcopy(translator).translate(LINES)) == (wanted, wanted)
        assert (again.engine_in_use, again.batch_tokens) == (
            translator.engine_in_use,
            translator.batch_tokens,
        )
    translator = Translator(tmp_path / "bundle")
    with get_context("spawn").Pool(1) as pool:
        assert pool.map(_translated, [(translator, LINES[0])]) == [translator.translate(LINES[:1])]
    sent = pickle.dumps(translator)
    (tmp_path / "bundle" / "model.safetensors").write_bytes(b"")
    with pytest.raises(BundleError, match="load it again"):
        pickle.loads(sent)
