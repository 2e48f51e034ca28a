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


# By file: values of keys, and what the message names if it is not the key.
FAULTY: dict[tuple[str, str], list[tuple[str, Any, str]]] = {
    ("marian", "tokenizer_config.json"): [
        ("added_tokens_decoder", value, "tokenizer_config.json")
        for value in ([3], {"0": None}, {"0": {"content": {}}})
    ],
    ("nllb", "tokenizer.json"): [("added_tokens", "</s>", "'</s>'")],
    ("marian", "generation_config.json"): [
        ("max_length", [9], ""), ("max_length", 10**30, ""), ("length_penalty", 10**390, ""),
        ("length_penalty", {}, ""), ("min_length", "5", ""), ("num_beams", True, ""),
        ("num_beams", 10**9, "beam_size"), ("early_stopping", [1], ""), ("bad_words_ids", [3], ""),
        ("bad_words_ids", [["a"]], "'a'"), ("suppress_tokens", 5.5, "5.5"),
        ("decoder_start_token_id", 2**63, ""), ("decoder_start_token_id", 10**6, "model.tgt_vocab"),
        ("forced_eos_token_id", 10**6, "model.tgt_vocab"),
    ],
    ("mbart", "generation_config.json"): [("decoder_start_token_id", "x", "")],
    ("marian", "config.json"): [
        ("activation_function", ["relu"], ""), ("model_type", {}, ""), ("dropout", 10**390, ""),
        ("encoder_layers", 10**9, ""),
    ],
    ("nllb", "tokenizer_config.json"): [("src_lang", ["eng_Latn"], "")],
    ("mbart", "tokenizer_config.json"): [("tgt_lang", 3, "")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "file", "key", "value", "named"),
    [(*place, *fault) for place, faults in FAULTY.items() for fault in faults],
)
def test_a_value_of_another_type_or_size_is_named(
    saved: dict[str, Path], tmp_path: Path, name: str, file: str, key: str, value: object, named: str
) -> None:
    assert (named or key) in refusal(copy_with(saved, tmp_path, name, file, **{key: value}), name)


@pytest.mark.parametrize(
    "file", ["config.json", "generation_config.json", "tokenizer_config.json", "vocab.json"]
)
@pytest.mark.parametrize(
    "content",
    [DEEP.encode(), b'{"a": ' * 100_000, b'{"num_beams": 1, "num_beams": 2}', b"\xff{}", b"[1, 2"],
)
def test_json_beyond_its_limits_is_named_with_its_file(
    saved: dict[str, Path], tmp_path: Path, file: str, content: bytes
) -> None:
    shutil.copytree(saved["marian"], tmp_path / "marian")
    (tmp_path / "marian" / file).write_bytes(content)
    assert f"{file}: " in refusal(tmp_path / "marian", "marian")


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
    bad = (b"[[]]", b'{"a": true}', b'{"a": 5}', b"3", b'["\\ud800"]', DEEP.encode(), b'{"a": 0, "a": 1}')
    for content in bad:
        (tmp_path / "words.json").write_bytes(content)
        with pytest.raises(InteropError, match=r"words\.json: "):
            read_words(tmp_path / "words.json")


def refusal_of(path: Path) -> str:
    with pytest.raises(InteropError) as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(2**30, 2**30),
        torch.zeros(1, dtype=torch.float16).expand(2**40),
        torch.zeros(2, 2).to_sparse(),
        torch.zeros(2, device="meta"),
        torch.zeros(2, dtype=torch.complex64),
        [1.0],
    ],
)
def test_tensors_that_are_more_than_their_file_are_refused(tmp_path: Path, tensor: object) -> None:
    torch.save({"model": {"weight": tensor}}, tmp_path / "model.pt")
    assert "weight" in refusal_of(tmp_path / "model.pt")


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
    with pytest.raises(InteropError, match=name):
        import_model(tmp_path / name, output=tmp_path / "bundle")


@pytest.mark.parametrize(
    "changes",
    [
        {"encoder_attention_heads": "8"},
        {"encoder_attention_heads": 0, "decoder_attention_heads": 0},
        {"activation_fn": ["relu"]},
        {"moe_freq": torch.ones(3)},
        {"base_layers": 10**5000},
    ],
)
def test_arguments_of_fairseq_of_other_types_are_named(changes: dict[str, Any]) -> None:
    system = SYSTEMS["fairseq"]
    for beside in ({"args": argparse.Namespace(**changes)}, {"cfg": {"model": changes}}):
        with pytest.raises(InteropError, match=next(iter(changes))):
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
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        read_directory("m2m100", directory, ImportOptions(settings={}))
