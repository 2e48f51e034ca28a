"""`heedful import DIRECTORY`: languages and settings are taken along, and what may be missing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, heedful, refusal
from pretrained_models import FAMILIES, batch, imported, logits_of
from small_tokenizers import phrases
from tolerances import FLOAT32, assert_close

from heedful import SearchOptions, Translator, load_bundle, load_model
from heedful.decoding.strategies.beam import BeamSearch
from heedful.storage.bundle import Bundle

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]


def test_a_directory_becomes_a_bundle_that_translates_as_it_says(tmp_path: Path) -> None:
    FAMILIES["m2m100"].save(tmp_path / "model")
    outcome = heedful(
        "import", tmp_path / "model", "--layout", "m2m100", "-o", tmp_path / "bundle",
        "--tgt-lang", "fr", "--set", "decode.beam_size=2", "--set", "model.dropout=0.2",
        "--set", "model.alignment_layer=1",
    )  # fmt: skip
    assert outcome == Outcome(0, f"{tmp_path / 'bundle'}\n", "")
    config = load_bundle(tmp_path / "bundle").config
    assert (config.languages.src_tag, config.languages.tgt_tag) == ("__en__", "__fr__")
    assert (config.decode.beam_size, config.decode.length_normalization) == (2, "power")
    assert config.model.dropout == 0.2
    line = phrases()[0][0]
    translated = heedful("translate", tmp_path / "bundle", stdin=f"{line}\n".encode())
    assert (translated.code, translated.out.count("\n")) == (0, 1)


def test_an_unknown_key_that_only_describes_text_is_ignored_on_request(tmp_path: Path) -> None:
    """As MisakiSwift's phonemisers have them: BARTs whose configuration lists the characters."""
    FAMILIES["bart"].save(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"grapheme_chars": "__abc", "phonemes": "__x"}))

    def run(*arguments: str) -> Outcome:
        return heedful("import", tmp_path / "model", "-o", tmp_path / "bundle", *arguments)

    bart, one = ("--layout", "bart"), ("--ignore", "grapheme_chars")
    message = (
        "'grapheme_chars' is unknown, and may change the outputs; if it only describes text, give --ignore"
    )
    assert f"{message} 'grapheme_chars'" in refusal(run(*bart))
    assert "'phonemes' is unknown" in refusal(run(*bart, *one))
    assert "--ignore 'd_model': it is known and followed" in refusal(run(*bart, *one, "--ignore", "d_model"))
    assert "--ignore 'chars': there is no such key" in refusal(run(*bart, "--ignore", "chars"))
    assert "layout 'torch' has no config.json" in refusal(run("--layout", "torch", *one))
    assert not (tmp_path / "bundle").exists()
    assert run(*bart, *one, "--ignore", "phonemes").code == 0
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "Keys of its configuration that were ignored on request: `grapheme_chars`, `phonemes`." in card


@pytest.mark.parametrize(
    "name", ["marian", "m2m100", "bart", "mbart", "plbart", "mvp", "fsmt", "pegasus", "blenderbot"]
)
def test_the_layout_of_a_directory_is_recognised(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    family.save(tmp_path / "model")
    more = ["--tgt-lang", "fr"] if name == "m2m100" else []
    assert heedful("import", tmp_path / "model", "-o", tmp_path / "b", *more).code == 0
    card = (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert f"layout `{family.layout}`" in card
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bloom"}')
    message = refusal(heedful("import", tmp_path / "model", "-o", tmp_path / "c"))
    assert "model_type is 'bloom'; there are marian, m2m_100, bart, mbart, " in message
    (tmp_path / "model" / "config.json").unlink()
    message = refusal(heedful("import", tmp_path / "model", "-o", tmp_path / "c"))
    assert "there is neither model.bin of CTranslate2, nor config.json of transformers" in message


@pytest.mark.representatives(2)
@pytest.mark.parametrize("name", ["marian", "m2m100", "bart", "mbart", "t5 1.1", "byt5"])
def test_without_tokenizer_files_a_bundle_works_on_ids(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    theirs = family.save(tmp_path / "model", strength=0.5)
    for file in (tmp_path / "model").iterdir():
        if file.name not in ("config.json", "generation_config.json", "model.safetensors"):
            file.unlink()
    assert heedful("import", tmp_path / "model", "--layout", family.layout, "-o", tmp_path / "b").code == 0
    ours = load_model(tmp_path / "b")
    src, tgt_in = batch(ours)
    found, wanted = (logits_of(model, src, tgt_in, ours.config) for model in (ours, theirs))
    assert_close(found, wanted, FLOAT32.MODEL)
    assert "has no tokenizer" in refusal(heedful("translate", tmp_path / "b", stdin=b"a\n"))
    more = ("--layout", family.layout, "-o", tmp_path / "c", "--tgt-lang", "de")
    assert "without a tokenizer there are no languages" in refusal(
        heedful("import", tmp_path / "model", *more)
    )


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", ["MBartTokenizer", "MBart50Tokenizer"])
def test_mbart_may_have_a_sentencepiece_model_alone(name: str, tmp_path: Path) -> None:
    """As many of the published ones have it."""
    import transformers

    family = FAMILIES["mbart" if name == "MBartTokenizer" else "mbart-50"]
    family.save(tmp_path / "model")
    theirs: Any = getattr(transformers, name).from_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    shutil.copy(tmp_path / "model-files" / "sentencepiece.bpe.model", tmp_path / "model")
    found, _ = imported("bart", tmp_path / "model")
    assert found.tokenizers is not None
    ours = found.tokenizers.src
    assert ours.vocab_size == len(theirs)
    assert ours.tokens(range(ours.vocab_size)) == theirs.convert_ids_to_tokens(list(range(ours.vocab_size)))
    assert (found.config.languages.src_tag, ours.tag_id("de_DE")) == (
        "en_XX", theirs.convert_tokens_to_ids("de_DE"),
    )  # fmt: skip
    assert ours.encode(" x  日本") == theirs(" x  日本", add_special_tokens=False).input_ids
    for line in (*phrases()[0], *phrases()[1]):
        ids = theirs(line, add_special_tokens=False).input_ids
        assert ours.encode(line) == ids, line
        assert ours.decode([*ids, 2]) == theirs.decode([*ids, 2], skip_special_tokens=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--layout", "marian", "--src-vocab", "a", "--tgt-vocab", "b"],
            "has its own tokenizers; leave them out",
        ),
        (
            ["--layout", "annotated", "--src-lang", "en"],
            "layout 'annotated' has no languages; leave them out",
        ),
        (["--layout", "marina"], "layout 'marina' does not exist; did you mean 'marian'?"),
        (
            ["--layout", "bart"],
            "model_type is 'marian', not 'bart' or 'mbart' or 'mvp' or 'plbart'; give another --layout",
        ),
        (["--layout", "marian", "--set", "decode.beam=3"], "unknown key 'decode.beam'"),
        (["--layout", "marian", "--tgt-lang", "xxx"], "'xxx' is not a tag of this model"),
        (["--layout", "annotated"], "no such file; give the file that torch.save wrote"),
    ],
)
def test_what_does_not_go_together_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    FAMILIES["marian"].save(tmp_path / "model")
    outcome = heedful("import", tmp_path / "model", "-o", tmp_path / "bundle", *arguments)
    assert message in refusal(outcome)
    assert not (tmp_path / "bundle").exists()


LINES = list(phrases()[0][:6])
NEW_TOKENS = 12


def generated(model: Any, tokenizer: Any, texts: list[str], **settings: int) -> list[list[int]]:  # noqa: ANN401
    """What a greedy `generate` writes for each text by itself, after the start token."""
    found = [
        model.generate(
            **tokenizer(text, return_tensors="pt"),
            max_new_tokens=NEW_TOKENS,
            num_beams=1,
            bad_words_ids=[[model.config.pad_token_id]],
            **settings,
        )
        for text in texts
    ]
    end = model.generation_config.eos_token_id
    return [[i for i in row[0].tolist()[1:] if i != end] for row in found]


def ours(name: str, directory: Path, **languages: str) -> list[list[int]]:
    bundle, model = imported(FAMILIES[name].layout, directory)
    translator = Translator(Bundle(bundle.config, bundle.tokenizers, model)).for_languages(**languages)
    options = replace(
        SearchOptions.from_config(bundle.config.decode),
        strategy=BeamSearch(beam_size=1),
        max_length=NEW_TOKENS,
        suppressed_ids=(bundle.tokenizers.tgt.pad_id,),
    )
    found = translator.translations(LINES, options=options)
    end = bundle.tokenizers.tgt.eos_id
    return [[i for i in each.hypotheses[0].ids if i != end] for each in found]


@pytest.mark.parametrize(
    ("name", "src_lang", "tgt_lang"),
    [
        ("m2m100", "__de__", "__fr__"),
        ("nllb", "deu_Latn", "eng_Latn"),
        ("mbart", "de_DE", "fr_XX"),
        ("mbart-50", "de_DE", "fr_XX"),
    ],
)
def test_families_of_many_languages(name: str, src_lang: str, tgt_lang: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    model = FAMILIES[name].save(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.src_lang = src_lang.strip("_")
    key = "decoder_start_token_id" if name == "mbart" else "forced_bos_token_id"
    wanted = generated(model, tokenizer, LINES, **{key: tokenizer.convert_tokens_to_ids(tgt_lang)})
    found = ours(name, tmp_path / "model", src_lang=src_lang.strip("_"), tgt_lang=tgt_lang.strip("_"))
    assert found == wanted
    assert ours(name, tmp_path / "model") != wanted


def test_marian_into_one_of_its_languages(tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    model = FAMILIES["marian"].save(tmp_path / "model")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "model")
    wanted = generated(model, tokenizer, [f">>fra<< {line}" for line in LINES])
    assert ours("marian", tmp_path / "model", tgt_lang="fra") == wanted
    assert ours("marian", tmp_path / "model") != wanted
