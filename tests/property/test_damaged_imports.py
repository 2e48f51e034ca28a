"""Models from elsewhere, damaged: what `heedful import` reads."""

import argparse
import gc
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from argos_packages import make_package, packed
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
from imported_models import SYSTEMS, TGT_VOCAB, random_model
from pretrained_models import FAMILIES
from safetensors.torch import load_file, save_file
from torch import Tensor

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.interop.conversion import read_checkpoint
from heedful.interop.fairseq_dictionaries import read_dictionaries
from heedful.interop.layouts import read_layout, recognise
from heedful.interop.marian_files import MODEL_OPTIONS, parse_options
from heedful.interop.vocabulary import read_tokenizers
from heedful.settings.model import ModelConfig
from heedful.storage.bundle import Bundle, load_tokenizers, read_bundle
from heedful.storage.torch_weights import assign_weights, meta_model, read_pickled
from heedful.tasks.exchange import import_model
from heedful.text import TokenizerPair

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

DIRECTORIES = [
    "marian", "m2m100", "nllb", "bart", "mbart", "mbart-50", "plbart", "mvp", "fsmt", "pegasus", "blenderbot",
    "blenderbot small", "t5 1.1", "umt5", "byt5", "madlad", "t5gemma", "t5gemma 2",
]  # fmt: skip
TEXT = "The old woman reads a book, doesn't she ? ½ ﬁ"


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    made = {}
    for name in DIRECTORIES:
        made[name] = tmp_path_factory.mktemp("models") / name
        FAMILIES[name].save(made[name])
    split_weights(made["mbart"])
    yield made


def split_weights(directory: Path) -> None:
    """As large models come: an index, and files of some weights each."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    weight_map = {}
    for part in (0, 1):
        name = f"model-0000{part + 1}-of-00002.safetensors"
        some = dict([*tensors.items()][part::2])
        save_file(some, directory / name)
        weight_map |= dict.fromkeys(some, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def import_and_use(layout: str, source: Path) -> None:
    """Import as the command does, then do what any verb does with it; a refusal leaves nothing behind."""
    with suppress(HeedfulError):
        recognise(source)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)  # what is unpacked is seen here too
        output = Path(folder) / "bundle"
        refusal = None
        try:
            import_model(source, layout=layout, output=output)
        except HeedfulError as error:
            refusal = str(error)
        if refusal is not None:
            gc.collect(0)  # the traceback, which may hold what removes a folder at the end
            assert not [*Path(folder).iterdir()]
            raise HeedfulError(refusal)
        found = read_bundle(output)
        if found.has_tokenizers:
            use_bundle(Bundle(found.config, load_tokenizers(output, found.config), found.network))
        else:
            found.model  # noqa: B018


def use_bundle(bundle: Bundle) -> None:
    use_tokenizers(bundle.tokenizers)
    options = replace(SearchOptions.from_config(bundle.config.decode), max_length=2)
    options = replace(options, strategy=BeamSearch(beam_size=1), n_best=1)
    Translator(bundle, engine="torch").translate([TEXT], options=options)


def use_tokenizers(tokenizers: TokenizerPair) -> None:
    for tokenizer in (tokenizers.src, tokenizers.tgt):
        ids = tokenizer.encode(TEXT)
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        tokenizer.decode(ids)
        tokenizer.tokens(ids)
        tokenizer.spans(TEXT)
        tokenizer.tags()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("name", DIRECTORIES)
@few_or_many
def test_settings_and_vocabularies(cases: int, name: str, directories: dict[str, Path]) -> None:
    directory = directories[name]
    documents = {
        file: json.loads(file.read_text(encoding="utf-8")) for file in sorted(directory.glob("*.json"))
    }

    def read(case: tuple[Path, list[Change]]) -> None:
        file, changes = case
        with replaced(file, json_text(changed(documents[file], changes)).encode()):
            import_and_use(FAMILIES[name].layout, directory)

    read_many(cases, st.tuples(st.sampled_from([*documents]), CHANGES), read)


@pytest.mark.parametrize("name", DIRECTORIES)
@few_or_many
def test_bytes_of_all_files(cases: int, name: str, directories: dict[str, Path]) -> None:
    directory = directories[name]
    contents = {file: file.read_bytes() for file in sorted(directory.iterdir())}

    def read(case: tuple[Path, list[Wound]]) -> None:
        file, wounds = case
        with replaced(file, wounded(contents[file], wounds)):
            import_and_use(FAMILIES[name].layout, directory)

    read_many(cases, st.tuples(st.sampled_from([*contents]), WOUNDS), read)


@pytest.fixture(scope="module", params=["ctranslate2", "argos", "argos, packed"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A layout, and a model of it."""
    made = make_package(tmp_path_factory.mktemp("packages"), "en", "de", table_length=9, num_layers=(1, 1))
    shutil.copy(made / "sentencepiece.model", made / "model")
    layout, _, is_packed = request.param.partition(",")
    return layout, packed(made) if is_packed else made / "model" if layout == "ctranslate2" else made


@few_or_many
def test_bytes_of_ctranslate2_and_argos(cases: int, package: tuple[str, Path]) -> None:
    layout, path = package
    files = [path] if path.is_file() else [each for each in sorted(path.rglob("*")) if each.is_file()]
    contents = {file: file.read_bytes() for file in files}

    def read(case: tuple[Path, list[Wound]]) -> None:
        file, wounds = case
        with replaced(file, wounded(contents[file], wounds)):
            import_and_use(layout, path)

    weights = [file for file in files if file.name == "model.bin"]
    read_many(cases, st.tuples(st.sampled_from([*files, *weights * 3]), WOUNDS), read)


@few_or_many
def test_settings_of_ctranslate2_and_argos(cases: int, package: tuple[str, Path]) -> None:
    layout, path = package
    if path.is_file():
        pytest.skip("its settings are the same, packed")
    documents = {file: json.loads(file.read_text(encoding="utf-8")) for file in sorted(path.rglob("*.json"))}

    def read(case: tuple[Path, list[Change]]) -> None:
        file, changes = case
        with replaced(file, json_text(changed(documents[file], changes)).encode()):
            import_and_use(layout, path)

    read_many(cases, st.tuples(st.sampled_from([*documents]), CHANGES), read)


@cache
def tensors_of(name: str) -> dict[str, Tensor]:
    return dict(random_model(SYSTEMS[name]).state_dict())


def other_tensor(tensor: Tensor, number: int) -> object:
    """What may stand in the place of a tensor."""
    size = number % 97
    others: list[object] = [
        torch.zeros(()), torch.zeros(0), torch.zeros(0, 5), torch.zeros(size), torch.zeros(size, 1, 2),
        torch.zeros(1).expand(2**20, 2**20), torch.zeros(1, dtype=torch.float16).expand(2**40),
        tensor.double(), tensor.half(), tensor.long(), tensor.bool(), tensor.to(torch.complex64),
        tensor.t() if tensor.ndim == 2 else tensor[None], tensor[:-1], torch.cat([tensor, tensor]),
        tensor * float("nan"), tensor * 1e38, tensor.to_sparse(), None, size, "text", [tensor], {"a": tensor},
        tensor.to("meta"), tensor.to(torch.float8_e4m3fn), torch.zeros(2**16, 1), torch.zeros(1, 2**16),
        torch.ones(1),
    ]  # fmt: skip
    return others[number % len(others)]


NAMES = st.sampled_from(
    [
        "",
        "x",
        "encoder.layers.999999.x",
        "module.",
        "encoder.layers.0." + "a." * 300,
        "embed_positions",
        "pe",
        "out.weight",
    ]
) | st.text(max_size=20)
TENSOR_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["tensor", "tensor", "remove", "rename", "swap"]),
        st.integers(0, 999),
        st.integers(0, 9999),
        NAMES,
    ),
    min_size=1,
    max_size=3,
)


def changed_items(
    items: Mapping[str, Any],
    changes: list[tuple[str, int, int, str]],
    other: Callable[[Any, int], object],
    *,
    missing: object,
) -> dict[Any, Any]:
    """A copy of tensors by name with some replaced, removed, renamed or put elsewhere."""
    found: dict[Any, Any] = dict(items)
    for action, where, number, text in changes:
        if not found:
            break
        name = [*found][where % len(found)]
        if action == "tensor":
            found[name] = other(items.get(name, missing), number)
        elif action == "rename":
            found[text] = found.pop(name)
        elif action == "swap":
            second = [*found][number % len(found)]
            found[name], found[second] = found[second], found[name]
        else:
            del found[name]
    return found


@few_or_many
def test_state_dicts(cases: int, tmp_path: Path) -> None:
    arguments = {
        "arch": "transformer", "encoder_attention_heads": 3, "decoder_attention_heads": 3, "dropout": 0.1,
        "activation_fn": "relu", "no_scale_embedding": False, "encoder_normalize_before": False, "lr": [0.1],
        "encoder": {"layers": 3},
    }  # fmt: skip

    def read(case: tuple[str, list[tuple[str, int, int, str]], list[Change], int]) -> None:
        name, tensor_changes, changes, form = case
        tensors = changed_items(tensors_of(name), tensor_changes, other_tensor, missing=torch.ones(2, 2))
        file = tmp_path / "model.pt"
        file.unlink(missing_ok=True)
        beside = changed(arguments, changes) if form > 1 else arguments
        is_namespace = isinstance(beside, dict) and form % 2
        saved = {"model": tensors, "args": argparse.Namespace(**beside) if is_namespace else beside}
        torch.save(tensors if form == 0 else saved, file, _use_new_zipfile_serialization=form != 5)
        found = read_checkpoint(file)
        imported = read_layout(
            SYSTEMS[name].layout, found.tensors, settings=SYSTEMS[name].settings, beside=found.beside
        )
        assign_weights(meta_model(imported.config), imported.weights)

    read_many(
        cases * 4, st.tuples(st.sampled_from([*SYSTEMS]), TENSOR_CHANGES, CHANGES, st.integers(0, 6)), read
    )


@few_or_many
def test_bytes_of_saved_tensors(cases: int, tmp_path: Path) -> None:
    contents = {}
    for name, zipped in (("zip.pt", True), ("old.pt", False)):
        buffer = io.BytesIO()
        torch.save({"model": tensors_of("torch"), "epoch": 3}, buffer, _use_new_zipfile_serialization=zipped)
        contents[name] = buffer.getvalue()
    save_file({n: t.contiguous().clone() for n, t in tensors_of("torch").items()}, tmp_path / "x.safetensors")
    contents["x.safetensors"] = (tmp_path / "x.safetensors").read_bytes()

    def read(case: tuple[str, list[Wound]]) -> None:
        name, wounds = case
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).write_bytes(wounded(contents[name], wounds))
        found = read_checkpoint(tmp_path / name)
        read_layout("torch", found.tensors, settings=SYSTEMS["torch"].settings, beside=found.beside)

    read_many(cases * 2, st.tuples(st.sampled_from([*contents]), WOUNDS), read)


WORDS = ["<pad>", "<unk>", "<s>", "</s>", *(f"w{i}" for i in range(TGT_VOCAB - 5)), "é"]


@few_or_many
def test_vocabularies_of_words(cases: int, tmp_path: Path) -> None:
    lines, by_word = "\n".join(WORDS) + "\n", {word: i for i, word in enumerate(WORDS)}
    counts = "".join(f"w{i} {i}\n" for i in range(TGT_VOCAB - 4))
    config = ModelConfig(src_vocab_size=TGT_VOCAB, tgt_vocab_size=TGT_VOCAB)

    def read(case: tuple[str, list[Wound], list[Change]]) -> None:
        kind, wounds, changes = case
        file = tmp_path / ("words.json" if "json" in kind else "words.txt")
        plain = lines if kind == "lines" else counts
        document = WORDS if kind == "json list" else by_word
        content = json_text(changed(document, changes)) if "json" in kind else plain
        file.write_bytes(wounded(content.encode(), wounds) if kind != "json" else content.encode())
        pair = read_dictionaries(file, file, config) if kind == "counts" else read_tokenizers(file, file)
        use_tokenizers(pair)

    kinds = st.sampled_from(["lines", "counts", "json", "json", "json list", "json bytes"])
    read_many(cases * 2, st.tuples(kinds, WOUNDS, CHANGES), read)


MARIAN = Path(__file__).parent.parent / "golden" / "marian"
MARIAN_FILES = {
    "post-separate": ["model.npz", "decoder.yml", "vocab.src.yml", "vocab.trg.txt"],
    "student": ["model.bin", "decoder.yml", "vocab.spm", "lex.s2t.bin"],
}


@few_or_many
def test_files_of_marian(cases: int, tmp_path: Path) -> None:
    contents = {}
    for name, files in MARIAN_FILES.items():
        shutil.copytree(MARIAN / name, tmp_path / name)
        contents |= {(name, file): (MARIAN / name / file).read_bytes() for file in files}

    def read(case: tuple[tuple[str, str], list[Wound]]) -> None:
        (name, file), wounds = case
        with replaced(tmp_path / name / file, wounded(contents[name, file], wounds)):
            import_and_use("marian-native", tmp_path / name)

    read_many(cases * 2, st.tuples(st.sampled_from([*contents]), WOUNDS), read)


def other_array(array: Any, number: int) -> Any:  # noqa: ANN401
    """What may stand in the place of an array of Marian."""
    size, array = number % 97, np.atleast_2d(array)
    others = [
        np.zeros(()), np.zeros(0), np.zeros((1, size), np.float32), np.zeros((size, 2), np.float32),
        array.T, array[:, :-1], array[:-1], np.concatenate([array, array]), array[None], array.astype("f8"),
        array.astype("f2"), array.astype(">f4"), array.astype("i4"), array.astype("c8"), array * np.nan,
        array.astype("f8") * 1e38, np.array([None, 3], object), np.array("text"), array.reshape(-1),
        np.asfortranarray(array), np.zeros((1, 1), np.float32), np.zeros((2**16, 1), np.float32),
    ]  # fmt: skip
    return others[number % len(others)]


@few_or_many
def test_arrays_and_options_of_marian(cases: int, tmp_path: Path) -> None:
    models = {}
    for name in ("post", "pre", "rms", "ssru"):
        shutil.copytree(MARIAN / name, tmp_path / name)
        with np.load(MARIAN / name / "model.npz") as arrays:
            models[name] = dict(arrays)

    def read(case: tuple[str, list[tuple[str, int, int, str]], list[Change]]) -> None:
        name, array_changes, changes = case
        arrays = changed_items(models[name], array_changes, other_array, missing=np.ones((2, 2)))
        if arrays.get(MODEL_OPTIONS) is models[name][MODEL_OPTIONS]:
            values = changed(parse_options(arrays[MODEL_OPTIONS].tobytes()), changes)
            lines = [f"{key}: {value}" for key, value in values.items()] if isinstance(values, dict) else []
            arrays[MODEL_OPTIONS] = np.frombuffer("\n".join(lines).encode(errors="replace") + b"\0", np.int8)
        file = tmp_path / name / "model.npz"
        file.unlink()  # it may be mapped
        with zipfile.ZipFile(file, "w") as archive:
            for each, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{each}.npy"), "w") as member:
                    np.lib.format.write_array(member, np.asarray(array))
        import_and_use("marian-native", tmp_path / name)

    read_many(cases, st.tuples(st.sampled_from([*models]), TENSOR_CHANGES, CHANGES | st.just([])), read)


@few_or_many
def test_archives_of_marian(cases: int, tmp_path: Path) -> None:
    file = tmp_path / "opus.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted((MARIAN / "post").iterdir()):
            archive.write(each, each.name)
    content = file.read_bytes()

    def read(wounds: list[Wound]) -> None:
        with replaced(file, wounded(content, wounds)):
            import_and_use("marian-native", file)

    read_many(cases, WOUNDS, read)


OPENNMT = Path(__file__).parent.parent / "golden" / "opennmt"


@few_or_many
def test_files_of_opennmt_and_eole(cases: int, tmp_path: Path) -> None:
    names = {"opennmt-py": "model_step_7.pt", "eole": ""}
    contents = {}
    for layout in names:
        shutil.copytree(OPENNMT / layout / "interleaved", tmp_path / layout)
        (tmp_path / layout / "judged.safetensors").unlink()
        files = sorted((tmp_path / layout).iterdir())
        contents |= {(layout, file): file.read_bytes() for file in files}

    def read(case: tuple[tuple[str, Path], list[Wound]]) -> None:
        (layout, file), wounds = case
        with replaced(file, wounded(contents[layout, file], wounds)):
            import_and_use(layout, tmp_path / layout / names[layout])

    read_many(cases * 2, st.tuples(st.sampled_from([*contents]), WOUNDS), read)


@few_or_many
def test_settings_of_opennmt_and_eole(cases: int, tmp_path: Path) -> None:
    saved: Any = read_pickled(OPENNMT / "opennmt-py" / "interleaved" / "model_step_7.pt")
    shutil.copytree(OPENNMT / "eole" / "interleaved", tmp_path / "eole")
    documents = {
        file: json.loads((tmp_path / "eole" / file).read_text()) for file in ("config.json", "vocab.json")
    }
    options = {key: value for key, value in vars(saved["opt"]).items() if value is not None}
    inner = {"opt": options, "vocab": saved["vocab"], "generator": {"weight": 1, "bias": 1}}

    def read(case: tuple[str, list[Change]]) -> None:
        name, changes = case
        if name in documents:
            content = json_text(changed(documents[name], changes)).encode()
            with replaced(tmp_path / "eole" / name, content):
                import_and_use("eole", tmp_path / "eole")
            return
        found = changed(inner[name], changes)
        found = argparse.Namespace(**found) if name == "opt" and isinstance(found, dict) else found
        torch.save(saved | {name: found}, tmp_path / "model.pt")
        import_and_use("opennmt-py", tmp_path / "model.pt")

    read_many(cases, st.tuples(st.sampled_from([*documents, *inner]), CHANGES), read)
