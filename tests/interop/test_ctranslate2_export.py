"""What lies in an exported CTranslate2 directory: a README that works, vocabularies, quantised weights."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from ctranslate2_files import translator
from ctranslate2_models import EOS, engine, random_bundle, source_tokens
from option_models import option_config
from small_tokenizers import marian_pair, nllb_pair, phrases, tagged_pair
from tiny_bundle import PAIRS, memorised

from heedful.decoding.translator import Translator
from heedful.errors import InteropError, MissingExtraError, install_hint
from heedful.interop.ctranslate2.export import NUM_POSITIONS, export_ctranslate2, token_names
from heedful.interop.vocabulary import unique_names
from heedful.model.transformer import Transformer
from heedful.settings.run import Config, DecodeConfig, LanguageConfig
from heedful.storage.bundle import Bundle
from heedful.text import TokenizerPair

SEARCH = DecodeConfig(
    length_penalty=1.0, length_normalization="power", early_stopping="first", renormalize=True,
    max_length=16, max_length_offset=100,
)  # fmt: skip


def translate_as_the_readme_says(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    monkeypatch.chdir(directory)
    code = (directory / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    names: dict[str, Callable[..., list[str]]] = {}
    exec(code, names)
    return names["translate"]


def random_model_for(tokenizers: TokenizerPair, languages: LanguageConfig) -> Bundle:
    src, tgt = tokenizers.src, tokenizers.tgt
    torch.manual_seed(5)
    sizes = option_config(
        src_vocab_size=src.vocab_size + 3, tgt_vocab_size=tgt.vocab_size + 3,  # as padded vocabularies are
        src_pad_id=src.pad_id, tgt_pad_id=tgt.pad_id, tied="none", output_bias=True,
    )  # fmt: skip
    model = Transformer.from_config(sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        model.output.bias[tgt.vocab_size :] = -100.0
    return Bundle(Config(model=sizes, languages=languages, decode=SEARCH), tokenizers, model)


def marian(directory: Path) -> Bundle:
    return random_model_for(marian_pair(directory / "tokenizers"), LanguageConfig())


def m2m100(_: Path) -> Bundle:
    return random_model_for(tagged_pair(), LanguageConfig(src_tag="en", tgt_tag="de"))


def nllb(_: Path) -> Bundle:
    return random_model_for(nllb_pair(), LanguageConfig(src_tag="eng_Latn", src_tag_position="last"))


@pytest.mark.parametrize("build", [marian, m2m100, nllb])
def test_the_readme_translates_with_every_kind_of_tokenizer(
    build: Callable[[Path], Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = build(tmp_path)
    export_ctranslate2(bundle, tmp_path / "model")
    translate = translate_as_the_readme_says(tmp_path / "model", monkeypatch)
    lines = [*phrases()[0][:12], "unknown: ☃"]
    assert translate(lines) == Translator(bundle).translate(lines)


def test_names_are_unique_and_no_piece_loses_its_name() -> None:
    assert unique_names(["a", "b", "a", "a<2>", "b"], {}) == ["a", "b", "a<2><2>", "a<2>", "b<4>"]
    assert unique_names(["[UNK]", "<unk>"], {0: "<unk>"}) == ["<unk>", "<unk><1>"]


def test_both_sides_name_unknown_and_end_alike(tmp_path: Path) -> None:
    bundle = random_bundle()
    names = token_names(bundle)
    assert (names.src[0], names.src[EOS]) == (names.tgt[0], names.tgt[EOS]) == ("<unk>", "</s>")
    theirs = engine(bundle, tmp_path / "model")
    known, unknown = source_tokens(bundle, [[5, 0, 7]]), [[*source_tokens(bundle, [[5]])[0], "☃", "▁r7"]]
    target = [["▁t5"]]
    assert theirs.score_batch(known, target)[0].log_probs == theirs.score_batch(unknown, target)[0].log_probs


@pytest.mark.parametrize("start_id", [None, 1, 7])
def test_the_decoder_starts_with_its_start_token(start_id: int | None, tmp_path: Path) -> None:
    export_ctranslate2(_with_start(random_bundle(), start_id), tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text())
    assert saved["decoder_start_token"] == {None: "<s>", 1: "<pad>", 7: "▁t7"}[start_id]


def _with_start(bundle: Bundle, start_id: int | None) -> Bundle:
    return replace(bundle, config=Config(model=bundle.config.model.replace(decoder_start_id=start_id)))


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16", "bfloat16"])
def test_quantised_weights_are_smaller_and_translate(quantization: str, tmp_path: Path) -> None:
    bundle = memorised()
    before = {name: weight.clone() for name, weight in bundle.model.state_dict().items()}
    export_ctranslate2(bundle, tmp_path / "float32")
    export_ctranslate2(bundle, tmp_path / "quantised", quantization=quantization)
    assert all(torch.equal(weight, before[name]) for name, weight in bundle.model.state_dict().items())
    full, small = (_bytes_of(tmp_path / name) for name in ("float32", "quantised"))
    assert small < 0.9 * full  # a table of positions is most of this small model
    ctranslate2.set_log_level(40)  # it warns of types that this CPU does not have
    theirs = translator(tmp_path / "quantised", compute_type="default")
    tokenizers = bundle.tokenizers
    for source, target in PAIRS:
        tokens = tokenizers.src.tokens(tokenizers.src.encode(source))
        assert "".join(theirs.translate_batch([tokens])[0].hypotheses[0]) == _joined(tokenizers, target)


def _bytes_of(directory: Path) -> int:
    return (directory / "model.bin").stat().st_size


def _joined(tokenizers: TokenizerPair, text: str) -> str:
    pieces: Sequence[str] = tokenizers.tgt.tokens(tokenizers.tgt.encode(text))
    return "".join(pieces)


def test_positions_end_where_the_readme_says(tmp_path: Path) -> None:
    bundle = random_bundle()
    theirs = engine(bundle, tmp_path / "model")
    assert f"end at {NUM_POSITIONS:,} tokens" in (tmp_path / "model" / "README.md").read_text()
    longest = [["▁r5"] * (NUM_POSITIONS - 1)]  # and the end token
    assert theirs.translate_batch(longest, max_input_length=0, max_decoding_length=1)
    with pytest.raises(RuntimeError, match="2048"):
        theirs.translate_batch([[*longest[0], "▁r5"]], max_input_length=0, max_decoding_length=1)


def test_an_unknown_quantization_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(InteropError, match=r"quantization 'int9'.*int\d+"):
        export_ctranslate2(memorised(), tmp_path / "model", quantization="int9")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_ctranslate2_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2.specs.model_spec", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_hint("interop"))):
        export_ctranslate2(memorised(), tmp_path / "model")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"beam_size=4", "length_penalty=0.6", 'suppress_sequences=[["<pad>"], ["<s>"]]', "patience=2"}),
        ({"beam_size": 1}, {"beam_size=1"}),
        ({"early_stopping": "first", "max_length": 99}, {"max_decoding_length=99"}),
        (
            {"min_length": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.5},
            {"min_decoding_length=3", "no_repeat_ngram_size=2", "repetition_penalty=1.5", "patience=2"},
        ),
        ({"forced_first_id": 7}, {'target_prefix=[["▁t7"]] * len(lines)', "patience=2"}),
        ({"suppressed_ids": [5, 6]}, {'suppress_sequences=[["▁t5"], ["▁t6"]]', "patience=2"}),
    ],
)
def test_the_readme_passes_on_how_the_bundle_searches(
    settings: dict[str, Any], expected: set[str], tmp_path: Path
) -> None:
    bundle = random_bundle()
    config = bundle.config.replace(decode=DecodeConfig.model_validate(settings).model_dump())
    export_ctranslate2(replace(bundle, config=config), tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    arguments = {line.strip().rstrip(",") for line in text.splitlines()}
    assert expected <= arguments
    assert ("patience=2" in arguments) == ("patience=2" in expected)
