"""The class of a tokenizer counts in either of the files that may name it, and decides between mBARTs."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pretrained_models import FAMILIES, imported
from small_tokenizers import phrases, sentencepiece_model

from heedful.errors import InteropError
from heedful.interop.huggingface.fairseq_families import (
    MBART_LANGUAGES,
    MORE_LANGUAGES_50,
    mbart_class,
)
from heedful.interop.huggingface.pretrained import read_pretrained

TAGS = {
    "MBartTokenizer": MBART_LANGUAGES,
    "MBart50Tokenizer": [*MBART_LANGUAGES, *MORE_LANGUAGES_50],
}


@pytest.fixture(params=TAGS)
def published(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A model with SentencePiece's file and tags after its tokens, as published; no class is named."""
    name: str = request.param
    FAMILIES["mbart-50" if "50" in name else "mbart"].save(tmp_path)
    model = sentencepiece_model(sum(phrases(), ()), "unigram", 200)
    rows = 201 + len(TAGS[name]) + 1
    for file in tmp_path.glob("*token*"):
        file.unlink()
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model)
    change(tmp_path, "config.json", vocab_size=rows)
    yield name, tmp_path


def change(directory: Path, file: str, **values: object) -> None:
    path = directory / file
    settings = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(settings | values))


def kind_of(directory: Path) -> str:
    return mbart_class(read_pretrained(directory))


@pytest.mark.parametrize("evidence", ["config", "tokenizer", "fast", "codes", "old codes", "rows"])
def test_mbarts_are_told_apart_by_all_that_names_them(evidence: str, published: tuple[str, Path]) -> None:
    name, directory = published
    if evidence != "rows":
        change(directory, "config.json", vocab_size=99)
    if evidence == "config":
        change(directory, "config.json", tokenizer_class=name)
    elif evidence in ("tokenizer", "fast"):
        change(directory, "config.json", tokenizer_class="PreTrainedTokenizerFast")
        full = name + "Fast" * (evidence == "fast")
        change(directory, "tokenizer_config.json", tokenizer_class=full)
    elif evidence == "codes":
        change(directory, "tokenizer_config.json", additional_special_tokens=TAGS[name])
    elif evidence == "old codes":
        tokens = {tag: 201 + i for i, tag in enumerate(TAGS[name])}
        change(directory, "added_tokens.json", **tokens)
    assert kind_of(directory) == name


def test_an_mbart_that_nothing_tells_is_refused(published: tuple[str, Path]) -> None:
    _, directory = published
    change(directory, "config.json", vocab_size=99)
    with pytest.raises(InteropError, match="tokenizer_class"):
        kind_of(directory)
    change(directory, "tokenizer_config.json", additional_special_tokens=TAGS["MBart50Tokenizer"])
    change(directory, "config.json", tokenizer_class="MBartTokenizer")
    with pytest.raises(InteropError, match="MBartTokenizer"):
        kind_of(directory)


@pytest.mark.parametrize(
    ("family", "options"),
    [("marian", {}), ("m2m100", {"tgt_lang": "de"}), ("bart", {}), ("t5", {}), ("pegasus", {}), ("fsmt", {})],
)
@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_class_of_another_family_is_refused_by_name(
    family: str, options: Mapping[str, Any], file: str, tmp_path: Path
) -> None:
    FAMILIES[family].save(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("tokenizer_class", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    change(tmp_path, file, tokenizer_class="SMALL100Tokenizer")
    with pytest.raises(InteropError, match=f"{file}.*SMALL100Tokenizer"):
        imported(FAMILIES[family].layout, tmp_path, **options)
