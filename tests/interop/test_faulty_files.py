"""Faults of files from elsewhere that once ended in a traceback, in a wait or in all of the memory."""

import argparse
import io
import json
import pickle
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from imported_models import SYSTEMS, random_model
from pretrained_models import FAMILIES

from heedful.errors import ConfigError, HeedfulError, InteropError, TokenizerError
from heedful.interop.conversion import read_checkpoint
from heedful.interop.fairseq_dictionaries import read_dictionary
from heedful.interop.huggingface.pretrained import ImportOptions
from heedful.interop.layouts import read_directory, read_layout, recognise
from heedful.interop.vocabulary import read_tokenizers, read_words
from heedful.tasks.exchange import import_model

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
LAYOUTS = {"marian": "marian", "nllb": "m2m100", "mbart": "bart"}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    made = {}
    for name in LAYOUTS:
        made[name] = tmp_path_factory.mktemp("models") / name
        FAMILIES[name].save(made[name])
    yield made


def refusal(directory: Path, name: str) -> str:
    with pytest.raises(HeedfulError) as caught:
        read_directory(LAYOUTS[name], directory, ImportOptions(settings={}))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def copy_with(saved: dict[str, Path], tmp_path: Path, name: str, file: str, **changes: Any) -> Path:  # noqa: ANN401
    shutil.copytree(saved[name], tmp_path / name)
    settings = json.loads((tmp_path / name / file).read_text(encoding="utf-8")) | changes
    (tmp_path / name / file).write_text(json.dumps(settings), encoding="utf-8")
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "file", "changes", "message"),
    [
        ("marian", "tokenizer_config.json", {"added_tokens_decoder": [3]}, "[3] is not an added token"),
        (
            "marian",
            "tokenizer_config.json",
            {"added_tokens_decoder": {"0": None}},
            "None is not an added token",
        ),
        (
            "marian",
            "tokenizer_config.json",
            {"added_tokens_decoder": {"0": {"content": {}}}},
            "tokenizer_config.json: ",
        ),
        ("nllb", "tokenizer.json", {"added_tokens": "</s>"}, "'</s>' is not an added token"),
        ("marian", "generation_config.json", {"max_length": [9]}, "max_length=[9]: must be a whole number"),
        ("marian", "generation_config.json", {"max_length": 10**30}, "max_length=1000000000000000"),
        ("marian", "generation_config.json", {"length_penalty": 10**390}, "length_penalty="),
        ("marian", "generation_config.json", {"length_penalty": {}}, "length_penalty={}: must be a number"),
        ("marian", "generation_config.json", {"min_length": "5"}, "min_length='5': must be a whole number"),
        ("marian", "generation_config.json", {"num_beams": True}, "num_beams=True: must be a whole number"),
        ("marian", "generation_config.json", {"num_beams": 10**9}, "decode.beam_size=1000000000"),
        ("marian", "generation_config.json", {"early_stopping": [1]}, "early_stopping=[1] is unknown"),
        ("marian", "generation_config.json", {"bad_words_ids": [3]}, "bad_words_ids has 3"),
        ("marian", "generation_config.json", {"bad_words_ids": [["a"]]}, "'a' is not the id of a token"),
        ("marian", "generation_config.json", {"suppress_tokens": 5.5}, "5.5 is not the id of a token"),
        ("marian", "generation_config.json", {"decoder_start_token_id": 2**63}, "decoder_start_token_id="),
        (
            "marian",
            "generation_config.json",
            {"decoder_start_token_id": 10**6},
            "must be below model.tgt_vocab",
        ),
        ("marian", "generation_config.json", {"forced_eos_token_id": 10**6}, "must be below model.tgt_vocab"),
        ("mbart", "generation_config.json", {"decoder_start_token_id": "x"}, "decoder_start_token_id='x'"),
        (
            "marian",
            "config.json",
            {"activation_function": ["relu"]},
            "activation_function=['relu'] is unknown",
        ),
        ("marian", "config.json", {"model_type": {}}, "model_type is {}"),
        ("marian", "config.json", {"dropout": 10**390}, "model.dropout="),
        ("marian", "config.json", {"encoder_layers": 10**9}, "contradicts the weights"),
        (
            "nllb",
            "tokenizer_config.json",
            {"src_lang": ["eng_Latn"]},
            "src_lang=['eng_Latn']: must be a text",
        ),
        ("mbart", "tokenizer_config.json", {"tgt_lang": 3}, "tgt_lang=3: must be a text"),
    ],
)
def test_a_value_of_another_type_or_size_is_named(
    saved: dict[str, Path], tmp_path: Path, name: str, file: str, changes: dict[str, Any], message: str
) -> None:
    assert message in refusal(copy_with(saved, tmp_path, name, file, **changes), name)


@pytest.mark.parametrize(
    "file", ["config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"]
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (DEEP.encode(), "nested more than 64 deep"),
        (b'{"a": ' * 100_000, "nested more than 64 deep"),
        (b'{"num_beams": 1, "num_beams": 2}', "the key 'num_beams' is repeated"),
        (b"\xff{}", "not UTF-8 at byte 0"),
        (b"[1, 2", "not valid JSON"),
    ],
)
def test_json_beyond_its_limits_is_named_with_its_file(
    saved: dict[str, Path], tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    shutil.copytree(saved["marian"], tmp_path / "marian")
    (tmp_path / "marian" / file).write_bytes(content)
    assert f"{file}: {message}" in refusal(tmp_path / "marian", "marian")


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/etc/passwd", "..", "a/b", "", 3, None])
def test_weights_in_parts_stand_beside_their_index(
    saved: dict[str, Path], tmp_path: Path, name: object
) -> None:
    shutil.copytree(saved["marian"], tmp_path / "marian")
    weights = tmp_path / "marian" / "model.safetensors"
    (tmp_path / "other").mkdir()
    weights.rename(tmp_path / "other" / "model.safetensors")
    index = json.dumps({"weight_map": {"model.shared.weight": name}})
    (tmp_path / "marian" / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    assert "is not the name of a file next to it" in refusal(tmp_path / "marian", "marian")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_vocabularies_may_have_the_line_ends_of_windows(tmp_path: Path, end: str) -> None:
    words = ["<pad>", "<unk>", "<s>", "</s>", "das", "Haus"]
    (tmp_path / "words").write_bytes(("\ufeff" + end.join([*words, ""])).encode())
    assert read_words(tmp_path / "words") == words
    assert read_tokenizers(tmp_path / "words", tmp_path / "words").src.encode("das Haus") == [4, 5]
    (tmp_path / "dict").write_bytes(f"das 3{end}Haus 2 #fairseq:overwrite{end}".encode())
    assert read_dictionary(tmp_path / "dict", 6)[4:] == ["das", "Haus"]


def test_a_vocabulary_that_is_no_list_of_texts_is_named(tmp_path: Path) -> None:
    for content in (
        b"[[]]",
        b'{"a": true}',
        b'{"a": 5}',
        b"3",
        b'["\\ud800"]',
        DEEP.encode(),
        b'{"a": 0, "a": 1}',
    ):
        (tmp_path / "words.json").write_bytes(content)
        with pytest.raises(InteropError, match=r"words\.json: "):
            read_words(tmp_path / "words.json")


def refusal_of(path: Path) -> str:
    with pytest.raises(InteropError) as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(1).expand(2**30, 2**30), "but the file holds fewer numbers"),
        (torch.zeros(1, dtype=torch.float16).expand(2**40), "but the file holds fewer numbers"),
        (torch.zeros(2, 2).to_sparse(), "not of plain numbers"),
        (torch.zeros(2, device="meta"), "not of plain numbers"),
        (torch.zeros(2, dtype=torch.complex64), "not of plain numbers"),
        ([1.0], "is not a tensor but of type list"),
    ],
)
def test_tensors_that_are_more_than_their_file_are_refused(
    tmp_path: Path, tensor: object, message: str
) -> None:
    torch.save({"model": {"weight": tensor}}, tmp_path / "model.pt")
    assert message in refusal_of(tmp_path / "model.pt")


def test_an_archive_that_unpacks_to_more_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"weight": torch.zeros(3_000_000)}, buffer)
    with (
        zipfile.ZipFile(buffer) as plain,
        zipfile.ZipFile(tmp_path / "model.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for each in plain.infolist():
            packed.writestr(each.filename, plain.read(each))
    assert "an archive that is larger when it is unpacked" in refusal_of(tmp_path / "model.pt")


def test_why_a_file_is_refused_is_said_in_a_few_own_words(tmp_path: Path) -> None:
    """And nothing of torch's: it has pages of advice, and warnings about pickles and TorchScript."""
    file = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(50, 50)}, file)
    whole = file.read_bytes()
    with zipfile.ZipFile(tmp_path / "program.pt", "w") as archive:
        archive.writestr("program/constants.pkl", pickle.dumps(()))
    torch.save({"weight": torch.nn.Linear(3, 3)}, tmp_path / "module.pt")
    for content, reason in (
        (whole[:-2000], "damaged, or not written by torch.save"),
        (b"hello", "damaged, or not written by torch.save"),
        (pickle.dumps({"weight": 3}, protocol=4)[:-3], "damaged, or not written by torch.save"),
        ((tmp_path / "program.pt").read_bytes(), "a program of TorchScript"),
        ((tmp_path / "module.pt").read_bytes(), "it asks for 'torch.nn.modules.linear.Linear'"),
    ):
        file.unlink()  # it may be mapped
        file.write_bytes(content)
        with warnings.catch_warnings(record=True) as caught:
            assert f"without running code ({reason});" in refusal_of(file)
        assert not caught


@pytest.mark.parametrize("name", ["model.argosmodel", "model.npz", "model.zip"])
def test_a_truncated_archive_is_named_as_what_it_is(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK\3\4 and no end")
    assert recognise(tmp_path / name) == ("argos" if name.endswith("argosmodel") else "marian-native")
    with pytest.raises(InteropError, match=r"not a model of Marian|cannot be unpacked"):
        import_model(tmp_path / name, output=tmp_path / "bundle")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder_attention_heads": "8"}, "encoder_attention_heads='8': must be a whole number"),
        (
            {"encoder_attention_heads": 0, "decoder_attention_heads": 0},
            "encoder_attention_heads=0: must be a whole number",
        ),
        ({"activation_fn": ["relu"]}, "activation_fn=.* is unknown"),
        ({"moe_freq": torch.ones(3)}, "moe_freq='<Tensor>' is not supported"),
        ({"base_layers": 10**5000}, "base_layers='<a number of .* bits>' is not supported"),
    ],
)
def test_arguments_of_fairseq_of_other_types_are_named(changes: dict[str, Any], message: str) -> None:
    system = SYSTEMS["fairseq"]
    for beside in ({"args": argparse.Namespace(**changes)}, {"cfg": {"model": changes}}):
        with pytest.raises(InteropError, match=message):
            read_layout("fairseq", random_model(system).state_dict(), settings=system.settings, beside=beside)


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ("fairseq", {"encoder.layers.0.layer_norms.5.weight": torch.ones(12)}),
        ("fairseq", {"encoder.layers.0.self_attn.in_proj_weight": torch.ones(4, 12)}),
        ("fairseq", {"encoder.embed_tokens.weight": torch.tensor(1.0)}),
        ("torch", {"transformer.encoder.layers.0.self_attn.in_proj_weight": torch.tensor(1.0)}),
        ("annotated", {"encoder.layers.0.sublayer.0.norm.a_2": torch.ones(0)}),
        ("annotated", {"generator.proj.weight": torch.ones(19, 12, dtype=torch.int64)}),
        ("kaggle-notebook", {"encoder.word_embedding.weight": torch.ones(1, 2**20)}),
        ("nptel-lecture", {"encoder.position_embedding.weight": torch.ones(1, 2**20)}),
    ],
)
def test_tensors_of_shapes_that_cannot_be_are_named(layout: str, changes: dict[str, torch.Tensor]) -> None:
    system = SYSTEMS[layout]
    tensors = random_model(system).state_dict() | changes
    with pytest.raises((InteropError, ConfigError)):
        read_layout(layout, tensors, settings=system.settings)


def test_a_tokenizer_that_the_library_panics_at_is_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    directory = copy_with(saved, tmp_path, "nllb", "tokenizer.json", model={"type": "BPE", "vocab": 3})
    with pytest.raises(TokenizerError, match=r"not a usable tokenizer\.json"):
        read_directory("m2m100", directory, ImportOptions(settings={}))
