"""`heedful export`: from a bundle or run to the files of another engine, and what is refused."""

from pathlib import Path

import pytest
from command_line import Outcome, heedful, refusal
from ctranslate2_files import translator
from full_disk import files_limited_to
from small_models import small_model
from small_tokenizers import tagged_pair
from tiny_bundle import PAIRS, memorised, save_memorised

from heedful.settings.run import Config, LanguageConfig
from heedful.storage.bundle import Bundle, save_bundle, save_model


def names_in(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


def test_a_run_becomes_a_ctranslate2_model(tmp_path: Path) -> None:
    save_memorised(tmp_path / "run" / "best")
    output = tmp_path / "models" / "exported"
    outcome = heedful("export", tmp_path / "run", "--to", "ctranslate2", "--output", output)
    assert outcome == Outcome(0, f"{output}\n", "")
    assert names_in(output.parent) == {"exported"}
    theirs = translator(output, compute_type="default")
    tokenizers = memorised().tokenizers
    for source, target in PAIRS:
        tokens = tokenizers.src.tokens(tokenizers.src.encode(source))
        found = theirs.translate_batch([tokens])[0].hypotheses[0]
        assert found == tokenizers.tgt.tokens(tokenizers.tgt.encode(target))


@pytest.mark.parametrize(
    ("target", "files"),
    [
        ("marian", {"config.json", "model.safetensors", "source.spm", "target.spm", "vocab.json"}),
        pytest.param(
            "onnx",
            {"encoder.onnx", "decoder_step.onnx", "onnx_model.json", "tokenizer.model"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_bundle_becomes_the_files_of_each_target(target: str, files: set[str], tmp_path: Path) -> None:
    bundle, output = save_memorised(tmp_path / "bundle"), tmp_path / "exported"
    assert heedful("export", bundle, "--to", target, "--output", output) == Outcome(0, f"{output}\n", "")
    assert files | {"README.md"} <= names_in(output)
    assert names_in(tmp_path) == {"bundle", "exported"}


def test_the_quantization_is_passed_on(tmp_path: Path) -> None:
    bundle, output = save_memorised(tmp_path / "bundle"), tmp_path / "exported"
    outcome = heedful("export", bundle, "--to", "ctranslate2", "-o", output, "--quantization", "int8")
    assert outcome.code == 0
    assert "with weights in int8" in (output / "README.md").read_text(encoding="utf-8")


def test_the_languages_may_be_chosen(tmp_path: Path) -> None:
    size = tagged_pair().src.vocab_size
    model = small_model(src_vocab_size=size, tgt_vocab_size=size, src_pad_id=1, tgt_pad_id=1)
    config = Config(model=model.config, languages=LanguageConfig(src_tag="__en__", tgt_tag="__de__"))
    save_bundle(Bundle(config, tagged_pair(), model), tmp_path / "bundle", card="")
    output = tmp_path / "exported"
    outcome = heedful("export", tmp_path / "bundle", "--to=ctranslate2", "-o", output, "--tgt-lang", "fr")
    assert outcome.code == 0
    text = (output / "README.md").read_text(encoding="utf-8")
    assert 'target_prefix=[["__fr__"]] * len(lines)' in text
    assert "`__en__` and `__fr__` name the languages" in text
    outcome = heedful(
        "export", tmp_path / "bundle", "--to=ctranslate2", "-o", tmp_path / "b", "--tgt-lang", "es"
    )
    assert "'es' is not a tag of this model" in refusal(outcome)


@pytest.mark.parametrize(
    ("source", "output", "options", "named"),
    [
        ("bundle", "exported", ["--to", "onxx"], "'onnx'"),
        ("bundle", "exported", ["--to", "onnx", "--quantization", "int8"], "--quantization"),
        ("bundle", "exported", ["--to", "ctranslate2", "--quantization", "int7"], "'int7'"),
        *(("bundle", "bundle", ["--to", target], "bundle: ") for target in ("ctranslate2", "marian", "onnx")),
        ("ids", "exported", ["--to", "ctranslate2"], "tokenizer"),
        (".", "exported", ["--to", "ctranslate2"], "bundle"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    source: str, output: str, options: list[str], named: str, tmp_path: Path
) -> None:
    bundle, model = save_memorised(tmp_path / "bundle"), small_model()
    save_model(model, tmp_path / "ids", card="")
    before = names_in(bundle)
    outcome = heedful("export", tmp_path / source, *options, "--output", tmp_path / output)
    assert named in refusal(outcome)
    assert (names_in(tmp_path), names_in(bundle)) == ({"bundle", "ids"}, before)


@pytest.mark.parametrize("target", ["ctranslate2", "marian"])
def test_a_full_disk_leaves_nothing(target: str, tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    with files_limited_to(10_000):
        outcome = heedful("export", bundle, "--to", target, "--output", tmp_path / "exported")
    assert "cannot be written" in refusal(outcome)
    assert names_in(tmp_path) == {"bundle"}
