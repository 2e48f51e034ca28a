"""`heedful import`: from a file to a bundle with the same logits, and what is refused."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from command_line import Outcome, heedful, refusal
from huggingface_hub import ModelCard
from imported_models import SRC_VOCAB, SYSTEMS, TGT_VOCAB, System, random_model, real_logits
from safetensors.torch import save_file
from tolerances import FLOAT32, assert_close
from torch import Tensor

from heedful import Translator, load_bundle, load_model
from heedful.errors import BundleError
from heedful.interop.layouts import DIRECTORY_LAYOUTS, LAYOUTS
from heedful.settings.presets import PRESETS

NPTEL = SYSTEMS["nptel-lecture"]
GOLDEN = Path(__file__).parent.parent / "golden"


def run_import(checkpoint: Path, output: Path, system: System, *more: object) -> Outcome:
    settings = [f"--set=model.{key}={str(value).lower()}" for key, value in system.settings.items()]
    return heedful("import", checkpoint, "--layout", system.layout, "--output", output, *settings, *more)


def saved(system: System, path: Path) -> dict[str, Tensor]:
    tensors = random_model(system).state_dict()
    torch.save(tensors, path)
    return tensors


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_a_file_becomes_a_bundle_with_the_same_logits(system: System, tmp_path: Path) -> None:
    saved(system, tmp_path / "model.pt")
    outcome = run_import(tmp_path / "model.pt", tmp_path / "bundle", system)
    assert outcome == Outcome(0, f"{tmp_path / 'bundle'}\n", "")
    assert ModelCard.load(tmp_path / "bundle" / "README.md").data.library_name == "heedful"
    model = load_model(tmp_path / "bundle")
    assert not model.training
    assert_close(real_logits(model), real_logits(random_model(system)), FLOAT32.MODEL)


def wrapped(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save({"epoch": 3, "settings": argparse.Namespace(n_head=8), "model": tensors}, path)


def of_several_processes(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in tensors.items()}}, path)


def of_the_old_format(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


def as_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    save_file(tensors, path.with_suffix(".safetensors"))


@pytest.mark.parametrize("write", [wrapped, of_several_processes, of_the_old_format, as_safetensors])
def test_weights_may_be_stored_in_other_forms(
    write: Callable[[dict[str, Tensor], Path], None], tmp_path: Path
) -> None:
    theirs = random_model(NPTEL)
    write(theirs.state_dict(), tmp_path / "model.pt")
    [file] = tmp_path.iterdir()
    assert run_import(file, tmp_path / "bundle", NPTEL).code == 0
    model = load_model(tmp_path / "bundle")
    assert_close(real_logits(model), real_logits(theirs), FLOAT32.MODEL)


@pytest.mark.parametrize(
    ("source", "settings", "dropout"),
    [
        ("model.safetensors", [], 0.0),
        ("model.safetensors", ["--set", "model.dropout=0.2"], 0.2),
        *(
            (GOLDEN / name, [], 0.0)
            for name in ("marian/student", "marian/post", "aren-transliteration/int8")
        ),
    ],
)
def test_regularisation_that_no_file_states_is_off(
    source: str | Path, settings: list[str], dropout: float, tmp_path: Path
) -> None:
    """Fine-tuning keeps it, and a model that was trained without dropout would lose much of what it knows."""
    save_file(random_model(NPTEL).state_dict(), tmp_path / "model.safetensors")
    if source == "model.safetensors":
        settings = [*settings, *(f"--set=model.{key}={value}" for key, value in NPTEL.settings.items())]
    outcome = heedful("import", tmp_path / source, "--output", tmp_path / "bundle", *settings)
    assert outcome.code == 0, outcome.err
    config = json.loads((tmp_path / "bundle" / "config.json").read_text(encoding="utf-8"))["config"]
    assert (config["model"]["dropout"], config["train"]["label_smoothing"]) == (dropout, 0.0)


class Burglar:
    """An object that would make a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_file_with_code_is_refused_and_not_executed(tmp_path: Path) -> None:
    torch.save({"model": Burglar(tmp_path / "broken in")}, tmp_path / "model.pt")
    message = refusal(run_import(tmp_path / "model.pt", tmp_path / "bundle", NPTEL))
    assert "model.pt: not weights that can be read without running code" in message
    assert "torch.save(model.state_dict(), FILE)" in message
    assert not (tmp_path / "broken in").exists()
    assert not (tmp_path / "bundle").exists()


def test_files_without_weights_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no weights\n", encoding="utf-8")
    (tmp_path / "cut.safetensors").write_bytes(b"x" * 30)
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "numbers.pt")
    for name in ("text.pt", "cut.safetensors", "list.pt", "numbers.pt", "none.pt"):
        assert name in refusal(run_import(tmp_path / name, tmp_path / "bundle", NPTEL))
    torch.save({"a": torch.zeros(2, 2)}, tmp_path / "other.pt")
    assert "--layout" in refusal(heedful("import", tmp_path / "other.pt", "-o", tmp_path / "bundle"))


FIRST = "encoder.layers.0.attention.queries.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop(FIRST), f"the weight '{FIRST}' is missing"),
        (lambda tensors: tensors.update(more=torch.zeros(3)), "the weight 'more' is unknown"),
        (lambda tensors: tensors.update({FIRST: torch.zeros(12, 7)}), f"'{FIRST}' has shape (12, 7), but"),
        (lambda tensors: tensors.update({"decoder.fc_out.bias": torch.zeros(3)}), "decoder.fc_out.bias"),
        (lambda tensors: tensors.update({"encoder.word_embedding.weight": torch.zeros(3)}), "be a matrix"),
        (lambda tensors: tensors.clear(), "holds no weights"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_named(
    change: Callable[[dict[str, Tensor]], object], message: str, tmp_path: Path
) -> None:
    tensors = saved(NPTEL, tmp_path / "model.pt")
    change(tensors)
    torch.save(dict(tensors), tmp_path / "model.pt")
    assert message in refusal(run_import(tmp_path / "model.pt", tmp_path / "bundle", NPTEL))


@pytest.mark.parametrize("name", LAYOUTS)
def test_weights_of_another_layout_are_refused(name: str, tmp_path: Path) -> None:
    other = "annotated" if name != "annotated" else "nptel-lecture"
    saved(SYSTEMS[other], tmp_path / "model.pt")
    system = System(name, lambda: None, {"num_heads": 3, "scale_embeddings": False})  # type: ignore[arg-type,return-value]
    message = refusal(run_import(tmp_path / "model.pt", tmp_path / "bundle", system))
    assert f"layout {name!r}" in message


HEADS = ["--set", "model.num_heads=3"]
SCALE = ["--set", "model.scale_embeddings=true"]
WORDS = ["--src-vocab", "src", "--tgt-vocab"]
# The system, the options, and what is named.
REFUSED: list[tuple[str, list[str], list[str]]] = [
    ("nptel-lecture", ["--layout", "nptel-lecture"], ["--set model.num_heads=N"]),
    ("nptel-lecture", ["--layout", "nptel-lecture", "--set", "model.num_heads=5"], [f"'{FIRST}'"]),
    *(
        ("nptel-lecture", ["--layout", "nptel-lecture", *HEADS, "--set", setting], [named])
        for setting, named in (
            ("model.d_model=8", "model.d_model=8"),
            ("model.tied=all", "model.tied=all"),
            ("model.dropuot=0", "'model.dropuot'"),
            ("modle.d=3", "'modle'"),
            ("num_heads=3", "section.key=value"),
        )
    ),
    ("nptel-lecture", ["--layout", "nptel-lecture", *HEADS, "--src-vocab", "src"], ["--tgt-vocab"]),
    (
        "nptel-lecture",
        ["--layout", "nptel-lecture", *HEADS, *WORDS, "src"],
        ["target", "18 tokens", "19 rows"],
    ),
    ("nptel-lecture", ["--layout", "nptel-lecture", *HEADS, "-o", "."], ["exists"]),
    ("nptel-lecture", ["--layout", "nptel-lectures"], ["'nptel-lecture'"]),
    ("jadore, emb", ["--layout", "jadore"], ["model.scale_embeddings=true", "jadore-prj"]),
    ("jadore, emb", SCALE, ["jadore and jadore-prj", "--layout"]),
    ("jadore, emb", ["--layout", "jadore", *SCALE, *HEADS, *WORDS, "tgt"], ["unknown words"]),
]


@pytest.mark.parametrize(("system", "options", "named"), REFUSED)
def test_options_that_cannot_be_are_one_line(
    system: str, options: list[str], named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(SYSTEMS[system], tmp_path / "model.pt")
    for name, size in (("src", SRC_VOCAB), ("tgt", TGT_VOCAB)):
        Path(name).write_text("\n".join(["<pad>", "<s>", "</s>", *(f"w{i}" for i in range(size - 3))]))
    output = [] if "-o" in options else ["-o", "bundle"]
    message = refusal(heedful("import", "model.pt", *options, *output))
    assert all(each in message for each in named), message


def test_every_layout_is_named_in_the_help() -> None:
    shown = "".join(heedful("import", "--help").out.split())
    assert all(name in shown for name in (*LAYOUTS, *DIRECTORY_LAYOUTS))


@pytest.mark.parametrize("name", ["torch", "nptel-lecture", "kaggle-notebook", "adeveloperdiary"])
def test_the_layout_of_a_file_is_recognised(name: str, tmp_path: Path) -> None:
    system = SYSTEMS[name]
    saved(system, tmp_path / "model.pt")
    settings = [f"--set=model.{key}={str(value).lower()}" for key, value in system.settings.items()]
    outcome = heedful("import", tmp_path / "model.pt", "-o", tmp_path / "bundle", *settings)
    assert outcome == Outcome(0, f"{tmp_path / 'bundle'}\n", "")
    card = (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")
    assert f"layout `{system.layout}`" in card


def test_without_vocabularies_text_is_refused_and_ids_work(tmp_path: Path) -> None:
    saved(NPTEL, tmp_path / "model.pt")
    run_import(tmp_path / "model.pt", tmp_path / "bundle", NPTEL)
    with pytest.raises(BundleError):
        load_bundle(tmp_path / "bundle")
    assert "has no tokenizer" in refusal(heedful("translate", tmp_path / "bundle", stdin=b"a\n"))
    logits = load_model(tmp_path / "bundle")(torch.tensor([[5, 3]]), torch.tensor([[2]]))
    assert logits.shape == (1, 1, TGT_VOCAB)


def words(size: int) -> list[str]:
    return ["<pad>", "<unk>", "<s>", "</s>", *(f"w{i}" for i in range(size - 4))]


@pytest.mark.parametrize("as_json", [False, True])
def test_with_vocabularies_the_bundle_takes_text(tmp_path: Path, as_json: bool) -> None:
    saved(NPTEL, tmp_path / "model.pt")
    files = []
    for name, size in (("src", SRC_VOCAB), ("tgt", TGT_VOCAB)):
        file = tmp_path / f"{name}.{'json' if as_json else 'txt'}"
        ids = {word: i for i, word in enumerate(words(size))}
        file.write_text(json.dumps(ids) if as_json else "\n".join([*words(size), ""]), encoding="utf-8")
        files.append(file)
    more = ["--src-vocab", files[0], "--tgt-vocab", files[1], "--set", "decode.max_length_offset=3"]
    assert run_import(tmp_path / "model.pt", tmp_path / "bundle", NPTEL, *more).code == 0
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.tokenizers.src.encode("w0 w12 nothing") == [4, 16, 1]
    assert bundle.tokenizers.tgt.decode([4, 18, 3]) == "w0 w14"
    assert not bundle.tokenizers.joint
    (text,) = Translator(bundle).translate(["w3 w1 w4"])
    assert heedful("translate", tmp_path / "bundle", stdin=b"w3 w1 w4\n").out == f"{text}\n"


def test_a_vocabulary_without_unknown_words_gets_a_token_that_is_never_written(tmp_path: Path) -> None:
    system = SYSTEMS["kaggle-notebook"]
    saved(system, tmp_path / "model.pt")
    for name, size in (("src", SRC_VOCAB), ("tgt", TGT_VOCAB)):
        lines = ["<pad>", "<sos>", "<eos>", *(f"w{i}" for i in range(size - 3))]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    more = ["--src-vocab", tmp_path / "src", "--tgt-vocab", tmp_path / "tgt"]
    assert run_import(tmp_path / "model.pt", tmp_path / "bundle", system, *more).code == 0
    bundle = load_bundle(tmp_path / "bundle")
    found = real_logits(bundle.model)
    assert (found[:, TGT_VOCAB:].softmax(-1).shape, float(found[:, TGT_VOCAB:].max())) == ((12, 1), -1e4)
    assert_close(found[:, :TGT_VOCAB], real_logits(random_model(system)), FLOAT32.MODEL)
    assert bundle.tokenizers.src.encode("w1 other") == [4, SRC_VOCAB]
    assert len(Translator(bundle).translate(["w1 other"])) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"<pad>\n<unk>\n<s>\n", "there is no token such as '</s>'"),
        ("v.txt", b"<pad>\n<unk>\n<s>\n</s>\na\na\n", "'a', of id 5, is repeated"),
        ("v.txt", b"<pad>\n<unk>\n<s>\n</s>\n\na\n", "'', of id 4, is empty or contains a space"),
        ("v.txt", b"\xff\n", "not UTF-8 at byte 0"),
        ("v.json", b"{", "not valid JSON"),
        ("v.json", b'{"a": 1}', "neither a list of tokens nor an object"),
        ("v.json", b"[1, 2]", "neither a list of tokens nor an object"),
    ],
)
def test_a_vocabulary_that_cannot_be_used_is_one_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    saved(NPTEL, tmp_path / "model.pt")
    (tmp_path / name).write_bytes(content)
    more = ["--src-vocab", tmp_path / name, "--tgt-vocab", tmp_path / name]
    found = refusal(run_import(tmp_path / "model.pt", tmp_path / "bundle", NPTEL, *more))
    assert message in found
    assert name in found


def test_the_five_systems_have_a_preset_and_a_layout_of_the_same_name() -> None:
    names = {"abhishek-thread", "nptel-lecture", "kaggle-notebook", "adeveloperdiary", "jadore"}
    assert names <= set(PRESETS)
    assert names <= set(LAYOUTS)
