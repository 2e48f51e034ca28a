"""Bundles, tokenizers and what stands beside them, damaged: what every verb reads that uses a model."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damage import (
    CHANGES,
    WOUNDS,
    Change,
    Wound,
    changed,
    few_or_many,
    json_text,
    read_many,
    replaced,
    wounded,
)
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save
from small_tokenizers import marian_pair, moses_pair, nllb_pair, tagged_pair
from tiny_bundle import memorised, save_memorised

from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist, check_shortlist
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.interop.onnx.runtime import SETTINGS_FILE, onnx_settings, read_settings
from heedful.storage.bundle import load_bundle, load_model
from heedful.storage.description import bundle_file_names
from heedful.text import TokenizerPair

TEXT = "the cat sees the dog ½ ."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("bundles") / "best")


def use(path: Path) -> None:
    found = load_bundle(path)
    options = replace(SearchOptions.from_config(found.config.decode), max_length=2)
    Translator(found).translate([TEXT], options=replace(options, strategy=BeamSearch(beam_size=1), n_best=1))


def with_right_checksums(description: Any, path: Path) -> Any:  # noqa: ANN401
    """As somebody would write them who wants the bundle to be read."""
    if not isinstance(description, dict) or not isinstance(description.get("sha256"), dict):
        return description
    settings = {key: description.get(key) for key in ("config", "scores")}
    sums = description["sha256"]
    for name in sums:
        if "/" not in name and len(name) < 100 and (path / name).is_file():
            sums[name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    text = json_text(settings)
    try:
        text = json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        text = ""
    sums["settings"] = hashlib.sha256(text.encode()).hexdigest()
    return description


@few_or_many
def test_the_description_of_a_bundle(cases: int, bundle: Path) -> None:
    file = bundle / "config.json"
    document = json.loads(file.read_text(encoding="utf-8"))

    def read(case: tuple[list[Change], bool, bool]) -> None:
        changes, is_whole, is_right = case
        part = document if is_whole else document["config"]
        damaged = changed(part, changes)
        damaged = damaged if is_whole else document | {"config": damaged}
        damaged = with_right_checksums(damaged, bundle) if is_right else damaged
        with replaced(file, json_text(damaged).encode()):
            for name in bundle_file_names(bundle):
                assert (bundle / name).parent == bundle
            load_model(bundle)
            use(bundle)

    read_many(cases * 2, st.tuples(CHANGES, st.booleans(), st.sampled_from([True, True, False])), read)


@few_or_many
def test_bytes_of_a_bundle(cases: int, bundle: Path) -> None:
    contents = {file.name: file.read_bytes() for file in sorted(bundle.iterdir())}
    document = json.loads(contents["config.json"])

    def read(case: tuple[str, list[Wound], bool]) -> None:
        name, wounds, is_right = case
        with replaced(bundle / name, wounded(contents[name], wounds)):
            right = (
                document if not is_right else with_right_checksums(json.loads(json.dumps(document)), bundle)
            )
            if name == "config.json":
                use(bundle)
                return
            with replaced(bundle / "config.json", json.dumps(right).encode()):
                use(bundle)

    read_many(cases * 2, st.tuples(st.sampled_from([*contents]), WOUNDS, st.booleans()), read)


@pytest.mark.representatives(2)
@pytest.mark.parametrize("kind", ["bpe", "marian", "m2m100", "moses", "nllb"])
@few_or_many
def test_tokenizers(cases: int, kind: str, tmp_path: Path) -> None:
    pair = {
        "bpe": lambda: memorised().tokenizers,
        "marian": lambda: marian_pair(tmp_path / "marian"),
        "m2m100": tagged_pair,
        "moses": lambda: moses_pair(tmp_path / "moses"),
        "nllb": nllb_pair,
    }[kind]()
    directory = tmp_path / "saved"
    directory.mkdir()
    pair.save(directory)
    contents = {file: file.read_bytes() for file in sorted(directory.iterdir())}
    documents = {file: json.loads(contents[file]) for file in contents if file.suffix == ".json"}

    def read(case: tuple[Path, list[Wound], list[Change], bool]) -> None:
        file, wounds, changes, as_json = case
        content = wounded(contents[file], wounds)
        if as_json and file in documents:
            content = json_text(changed(documents[file], changes)).encode()
        with replaced(file, content):
            found = TokenizerPair.load(directory)
            for tokenizer in (found.src, found.tgt):
                ids = tokenizer.encode(TEXT)
                assert all(0 <= i < tokenizer.vocab_size for i in ids)
                tokenizer.decode([*ids, tokenizer.unk_id, tokenizer.vocab_size + 5])
                tokenizer.decode([*ids, tokenizer.unk_id], unknown=["x"] * (len(ids) + 1))
                tokenizer.tokens([*ids, tokenizer.vocab_size + 5])
                tokenizer.spans(TEXT)
                tokenizer.tags()

    read_many(cases * 2, st.tuples(st.sampled_from([*contents]), WOUNDS, CHANGES, st.booleans()), read)


@few_or_many
def test_shortlists(cases: int, tmp_path: Path) -> None:
    pair, file = memorised().tokenizers, tmp_path / "shortlist.safetensors"
    ids = pair.src.encode_batch(["the cat sleeps .", "the dog sleeps ."])
    Shortlist.learn(ids, ids, memorised(), candidates=3, frequent=5, record={}).save(file)
    content, arrays = file.read_bytes(), load_file(file)
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata()
    description = json.loads(metadata["heedful-shortlist"])

    def read(case: tuple[list[Wound], list[Change], int]) -> None:
        wounds, changes, form = case
        damaged = wounded(content, wounds)
        if form == 1:
            damaged = save(arrays, metadata={"heedful-shortlist": json_text(changed(description, changes))})
        elif form > 1:
            name, number = [*arrays][form % 3], changes[0].where
            others = [
                arrays[name].astype(np.float32), arrays[name][None], arrays[name][:-1], arrays[name] * -1,
                arrays[name] + number, np.array(number), np.zeros(0, np.int32), np.full(9, 2**31 - 1, "i4"),
            ]  # fmt: skip
            damaged = save(arrays | {name: others[number % len(others)]}, metadata=metadata)
        with replaced(file, damaged):
            shortlist = Shortlist.load(file)
            shortlist.ids([i for i in range(shortlist.src_vocab_size)][:9], besides=[0, 10**6])
            check_shortlist(shortlist, memorised())

    read_many(cases * 4, st.tuples(WOUNDS, CHANGES, st.integers(0, 7)), read)


@few_or_many
def test_settings_of_onnx_models(cases: int, tmp_path: Path) -> None:
    text = onnx_settings(memorised()).model_dump_json()

    def read(case: tuple[list[Wound], list[Change], bool]) -> None:
        wounds, changes, as_json = case
        content = json_text(changed(json.loads(text), changes)) if as_json else text
        damaged = content.encode() if as_json else wounded(content.encode(), wounds)
        (tmp_path / SETTINGS_FILE).write_bytes(damaged)
        SearchOptions.from_config(read_settings(tmp_path).search)

    read_many(cases * 4, st.tuples(WOUNDS, CHANGES, st.booleans()), read)
