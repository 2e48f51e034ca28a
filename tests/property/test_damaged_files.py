"""Every kind of file that heedful reads, damaged: it says so in one line, or uses what it has read."""

import argparse
import gc
import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from argos_packages import make_package, packed
from command_line import heedful
from damage import few_or_many, json_text, read_damaged
from document_files import sample_documents, translated_bytes, upper
from imported_models import SYSTEMS, TGT_VOCAB, random_model
from pretrained_models import FAMILIES
from random_documents import MAKERS, Words
from safetensors.torch import load_file, save_file
from small_models import small_model
from small_tokenizers import marian_pair, moses_pair, nllb_pair, tagged_pair
from ten_pairs import ENGLISH, GERMAN
from tiny_bundle import memorised, save_memorised

from heedful.analysis.curves import draw_curves, read_curves
from heedful.data.files import PairFiles, load_text
from heedful.data.store import ParallelStore, build_store
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist, check_shortlist
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translator import Translator
from heedful.documents.document_file import read_document
from heedful.documents.memory import read_units
from heedful.errors import HeedfulError
from heedful.interop.conversion import read_checkpoint
from heedful.interop.fairseq_dictionaries import read_dictionaries
from heedful.interop.layouts import read_layout, recognise
from heedful.interop.onnx.runtime import SETTINGS_FILE, onnx_settings, read_settings
from heedful.interop.vocabulary import read_tokenizers
from heedful.settings.loading import load_config, to_toml
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, OptimizerConfig
from heedful.storage.bundle import Bundle, load_bundle, load_model, load_tokenizers, read_bundle
from heedful.storage.description import bundle_file_names
from heedful.storage.torch_weights import assign_weights, meta_model
from heedful.tasks.exchange import import_model
from heedful.text import TokenizerPair
from heedful.training.averaging import MovingAverage, average_weights
from heedful.training.checkpoint import TrainingState, latest_checkpoint, load_checkpoint, save_checkpoint
from heedful.training.events import EventLog
from heedful.training.optimizer import build_optimizer
from heedful.training.state import Progress

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")

TEXT = "The old woman reads a book, doesn't she ? the cat sees the dog ½ ﬁ"
GOLDEN = Path(__file__).parent.parent / "golden"
STEP = {"event": "step", "seconds": 0.5, "nll": 2.5, "learning_rate": 0.1, "tokens_per_second": 9}
EVENTS: list[dict[str, Any]] = [
    {"event": "start", "step": 0, "seconds": 0.0},
    STEP | {"step": 1, "loss": 3.0},
    {"event": "validation", "step": 1, "seconds": 1.0, "nll": 2.0, "perplexity": 7.4, "bleu": 1.5},
    STEP | {"step": 2, "loss": 2.0},
]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        make: writes valid files into an empty folder.
        use: reads the folder, and does what any verb does with it.
        repair: see `read_damaged`.
        times: how many cases, of the number that is asked for.
        is_quick: whether its first cases are quick tests.
    """

    make: Callable[[Path], object]
    use: Callable[[Path], object]
    repair: Callable[[Path], tuple[Path, bytes]] | None = None
    times: int = 2
    is_quick: bool = True


# --- models from elsewhere ---------------------------------------------------------------------------------


def import_and_use(layout: str, file: str, folder: Path) -> None:
    """Import as the command does, then translate; a refusal leaves nothing behind."""
    source = folder / file
    with suppress(HeedfulError):
        recognise(source)
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", made)  # what is unpacked is seen here too
        output, refusal = Path(made) / "bundle", None
        try:
            import_model(source, layout=layout, output=output)
        except HeedfulError as error:
            refusal = str(error)
        if refusal is not None:
            gc.collect(0)  # the traceback, which may hold what removes a folder at the end
            assert not [*Path(made).iterdir()]
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


def use_tokenizers(pair: TokenizerPair) -> None:
    for tokenizer in (pair.src, pair.tgt):
        ids = tokenizer.encode(TEXT)
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        tokenizer.decode([*ids, tokenizer.unk_id, tokenizer.vocab_size + 5])
        tokenizer.decode([*ids, tokenizer.unk_id], unknown=["x"] * (len(ids) + 1))
        tokenizer.tokens([*ids, tokenizer.vocab_size + 5])
        tokenizer.spans(TEXT)
        tokenizer.tags()


def make_mbart(folder: Path) -> None:
    """With its weights as large models come: an index, and files of some weights each."""
    FAMILIES["mbart"].save(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{part + 1}-of-00002.safetensors" for part in (0, 1)]
    weight_map = {}
    for part, name in enumerate(names):
        some = dict([*tensors.items()][part::2])
        save_file(some, folder / name)
        weight_map |= dict.fromkeys(some, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def make_argos(folder: Path, *, is_packed: bool = False) -> None:
    made = make_package(folder, "en", "de", table_length=9, num_layers=(1, 1))
    shutil.copy(made / "sentencepiece.model", made / "model")
    if is_packed:
        packed(made).rename(folder / "package.argosmodel")
        shutil.rmtree(made)


def make_opennmt(layout: str, folder: Path) -> None:
    shutil.copytree(GOLDEN / "opennmt" / layout / "interleaved", folder, dirs_exist_ok=True)
    (folder / "judged.safetensors").unlink()


def make_opus(folder: Path) -> None:
    shutil.make_archive(str(folder / "opus"), "zip", GOLDEN / "marian" / "post")


def make_state_dict(name: str, folder: Path, *, beside: object = None, zipped: bool = True) -> None:
    tensors = dict(random_model(SYSTEMS[name]).state_dict())
    saved = tensors if beside is None else {"model": tensors, "args": beside}
    torch.save(saved, folder / "model.pt", _use_new_zipfile_serialization=zipped)


def use_state_dict(name: str, folder: Path) -> None:
    found = read_checkpoint(next(iter(folder.glob("model.*"))))
    system = SYSTEMS[name]
    imported = read_layout(system.layout, found.tensors, settings=system.settings, beside=found.beside)
    assign_weights(meta_model(imported.config), imported.weights)


def make_words(folder: Path) -> None:
    words = ["<pad>", "<unk>", "<s>", "</s>", *(f"w{i}" for i in range(TGT_VOCAB - 5)), "é"]
    (folder / "lines.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (folder / "counts.txt").write_text("".join(f"w{i} {i}\n" for i in range(TGT_VOCAB - 4)))
    (folder / "list.json").write_text(json.dumps(words))
    (folder / "ids.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))


def use_words(folder: Path) -> None:
    config = ModelConfig(src_vocab_size=TGT_VOCAB, tgt_vocab_size=TGT_VOCAB)
    for name in ("lines.txt", "list.json", "ids.json"):
        use_tokenizers(read_tokenizers(folder / name, folder / name))
    use_tokenizers(read_dictionaries(folder / "counts.txt", folder / "counts.txt", config))


# --- bundles and what stands beside them -------------------------------------------------------------------


def use_saved_bundle(folder: Path) -> None:
    for name in bundle_file_names(folder):
        assert (folder / name).parent == folder
    load_model(folder)
    use_bundle(load_bundle(folder))


def repair_bundle(folder: Path) -> tuple[Path, bytes]:
    content = (folder / "config.json").read_bytes()
    try:
        description = json.loads(content)
        sums = dict(description["sha256"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return folder / "config.json", content
    for name in sums:
        if "/" not in name and len(name) < 100 and (folder / name).is_file():
            sums[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    settings = {key: description.get(key) for key in ("config", "scores")}
    sums["settings"] = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return folder / "config.json", json_text(description | {"sha256": sums}).encode()


def make_shortlist(folder: Path) -> None:
    ids = memorised().tokenizers.src.encode_batch(["the cat sleeps .", "the dog sleeps ."])
    shortlist = Shortlist.learn(ids, ids, memorised(), candidates=3, frequent=5, record={})
    shortlist.save(folder / "shortlist.safetensors")


def use_shortlist(folder: Path) -> None:
    shortlist = Shortlist.load(folder / "shortlist.safetensors")
    shortlist.ids([*range(shortlist.src_vocab_size)][:9], besides=[0, 10**6])
    check_shortlist(shortlist, memorised())


def make_onnx_settings(folder: Path) -> None:
    (folder / SETTINGS_FILE).write_text(onnx_settings(memorised()).model_dump_json())


# --- runs --------------------------------------------------------------------------------------------------


def resumable(optimizer: str) -> TrainingState:
    model = small_model(1)
    built = build_optimizer(model, OptimizerConfig.model_validate({"name": optimizer}), precision="float32")
    return TrainingState(model, built, MovingAverage(model, 0.9), Progress(), "data")


def take_step(world: TrainingState) -> None:
    world.progress.step += 1
    src, tgt_in = torch.tensor([[5, 7, 3, 0]]), torch.tensor([[2, 6, 9]])
    world.model.train()(src, tgt_in).pow(2).mean().backward()
    world.optimizer.step()
    world.optimizer.zero_grad()
    assert world.average is not None
    world.average.update(dict(world.model.named_parameters()), world.progress.step)


def make_checkpoint(optimizer: str, folder: Path) -> None:
    world = resumable(optimizer)
    take_step(world)
    save_checkpoint(world, folder)


def use_checkpoint(optimizer: str, folder: Path) -> None:
    latest_checkpoint(folder)
    average_weights([folder / "step-1"] * 2)
    again = resumable(optimizer)
    load_checkpoint(folder / "step-1", again)
    if type(again.progress.step) is int:
        take_step(again)


def repair_checkpoint(folder: Path) -> tuple[Path, bytes]:
    path = folder / "step-1"
    names = ("average.safetensors", "model.safetensors", "state.pt")
    sums = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}
    return path / "checksums.json", json.dumps(sums).encode()


def make_log(folder: Path) -> None:
    (folder / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))


def use_log(folder: Path) -> None:
    try:
        read_curves(folder)
    finally:
        EventLog(folder / "log.jsonl").drop_after(1)


def draw_log(folder: Path) -> None:
    curves = read_curves(folder)
    with TemporaryDirectory() as made:
        draw_curves({"A run": curves}, Path(made) / "curves.png")


# --- text --------------------------------------------------------------------------------------------------


def make_text(ending: str, folder: Path) -> None:
    pairs = [*zip(ENGLISH, GERMAN, strict=True)]
    lines = {
        "txt": [src for src, _ in pairs],
        "tsv": [f"{src}\t{tgt}\r" for src, tgt in pairs],
        "jsonl": [json.dumps({"src": src, "tgt": tgt}) for src, tgt in pairs],
    }[ending.removesuffix(".gz")]
    content = "".join(f"{line}\n" for line in lines).encode()
    is_packed = ending.endswith(".gz")
    (folder / f"text.{ending}").write_bytes(gzip.compress(content, mtime=0) if is_packed else content)


def use_text(ending: str, folder: Path) -> None:
    file = folder / f"text.{ending}"
    text = load_text(PairFiles((file, file) if "txt" in ending else (file,)))
    memorised().tokenizers.src.encode_batch(text.src)
    assert len(text.src) == len(text.tgt)


def make_store(folder: Path, *, keep_text: bool) -> None:
    files = [folder / name for name in ("src", "tgt")]
    for file, lines in zip(files, (ENGLISH, GERMAN), strict=True):
        file.write_text("\n".join([*lines, ""]), encoding="utf-8")
    text = load_text(PairFiles((files[0], files[1])))
    store = build_store(
        text, memorised().tokenizers, max_length=99, cache_dir=folder / "cache", keep_text=keep_text
    )
    store.path.rename(folder / "ids.arrow")
    for path in (*files, *(folder / "cache").iterdir()):
        path.unlink()


def use_store(folder: Path) -> None:
    store = ParallelStore(folder / "ids.arrow")
    assert sum(len(src) + len(tgt) for src, tgt in (store[i] for i in range(len(store)))) > 0
    if store.has_text:
        assert all(isinstance(each, str) for i in range(len(store)) for each in store.text(i))


# --- documents ---------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, Callable[[], bytes]] = {
    **sample_documents(),
    **{f"random.{suffix}": partial(make, Words(1)) for suffix, make in MAKERS.items()},
}


def use_document(name: str, folder: Path) -> None:
    """Translate it; what is written is a document of the format."""
    translated = folder / f"translated-{name}"
    translated.write_bytes(translated_bytes(folder / name, upper))
    try:
        columns = ("text",) if name.endswith(".csv") else ()
        read_document(translated, columns=columns, language="de")
    finally:
        translated.unlink()


def document(name: str) -> Kind:
    make, quick = DOCUMENTS[name], ("a.docx", "b.xlsx", "a.html", "a.md", "a.tmx")
    return Kind(
        lambda folder: (folder / name).write_bytes(make()),
        partial(use_document, name),
        is_quick=name in quick,
    )


OPTIONS_OF_FAIRSEQ: dict[str, Any] = {
    "arch": "transformer", "encoder_attention_heads": 3, "decoder_attention_heads": 3, "dropout": 0.1,
    "activation_fn": "relu", "no_scale_embedding": False, "encoder_normalize_before": False, "lr": [0.1],
    "encoder": {"layers": 3},
}  # fmt: skip
TOKENIZERS: dict[str, Callable[[Path], TokenizerPair]] = {
    "bpe": lambda _: memorised().tokenizers,
    "marian": marian_pair,
    "m2m100": lambda _: tagged_pair(),
    "moses": moses_pair,
    "nllb": lambda _: nllb_pair(),
}


def make_tokenizers(kind: str, folder: Path) -> None:
    with TemporaryDirectory() as made:
        TOKENIZERS[kind](Path(made) / "trained").save(folder)


def family(name: str, *, is_quick: bool = False) -> Kind:
    make = make_mbart if name == "mbart" else FAMILIES[name].save
    return Kind(make, partial(import_and_use, FAMILIES[name].layout, "."), is_quick=is_quick)


def marian(name: str, *, is_quick: bool = False) -> Kind:
    make = partial(shutil.copytree, GOLDEN / "marian" / name, dirs_exist_ok=True)
    return Kind(make, partial(import_and_use, "marian-native", "."), is_quick=is_quick)


OTHER_FAMILIES = [
    "m2m100", "nllb", "bart", "mbart-50", "plbart", "mvp", "fsmt", "pegasus", "blenderbot",
    "blenderbot small", "t5 1.1", "umt5", "byt5", "madlad", "t5gemma", "t5gemma 2",
]  # fmt: skip
KINDS: dict[str, Kind] = {
    **{name: family(name) for name in OTHER_FAMILIES},
    "marian": family("marian", is_quick=True),
    "mbart": family("mbart", is_quick=True),
    "ctranslate2": Kind(make_argos, partial(import_and_use, "ctranslate2", "en_de/model")),
    "argos": Kind(make_argos, partial(import_and_use, "argos", "en_de"), is_quick=False),
    "argos, packed": Kind(
        partial(make_argos, is_packed=True), partial(import_and_use, "argos", "package.argosmodel")
    ),
    **{f"native marian, {name}": marian(name) for name in ("pre", "rms", "ssru", "student")},
    "native marian, post": marian("post-separate", is_quick=True),
    "native marian, packed": Kind(make_opus, partial(import_and_use, "marian-native", "opus.zip")),
    "opennmt-py": Kind(
        partial(make_opennmt, "opennmt-py"), partial(import_and_use, "opennmt-py", "model_step_7.pt")
    ),
    "eole": Kind(partial(make_opennmt, "eole"), partial(import_and_use, "eole", ".")),
    **{
        f"tensors, {name}": Kind(
            partial(make_state_dict, name), partial(use_state_dict, name), is_quick=name == "torch"
        )
        for name in SYSTEMS
    },
    "fairseq, namespace": Kind(
        partial(make_state_dict, "fairseq", beside=argparse.Namespace(**OPTIONS_OF_FAIRSEQ)),
        partial(use_state_dict, "fairseq"),
    ),
    "fairseq, old format": Kind(
        partial(make_state_dict, "fairseq", beside=OPTIONS_OF_FAIRSEQ, zipped=False),
        partial(use_state_dict, "fairseq"),
    ),
    "words": Kind(make_words, use_words),
    **{
        f"tokenizers, {name}": Kind(
            partial(make_tokenizers, name),
            lambda folder: use_tokenizers(TokenizerPair.load(folder)),
            is_quick=name in ("bpe", "marian"),
        )
        for name in TOKENIZERS
    },
    "bundle": Kind(save_memorised, use_saved_bundle, repair_bundle, times=4),
    "shortlist": Kind(make_shortlist, use_shortlist, times=4),
    "settings of onnx": Kind(
        make_onnx_settings, lambda folder: SearchOptions.from_config(read_settings(folder).search), times=4
    ),
    **{
        f"checkpoint, {name}": Kind(
            partial(make_checkpoint, name),
            partial(use_checkpoint, name),
            repair_checkpoint,
            times=4,
            is_quick=name == "adam",
        )
        for name in ("adam", "muon")
    },
    "log": Kind(make_log, use_log),
    "log, drawn": Kind(make_log, draw_log, times=1, is_quick=False),
    **{
        f"text, {ending}": Kind(partial(make_text, ending), partial(use_text, ending))
        for ending in ("txt", "tsv", "jsonl", "txt.gz", "tsv.gz", "jsonl.gz")
    },
    **{f"document, {name}": document(name) for name in DOCUMENTS},
    "memory": Kind(
        lambda folder: (folder / "a.tmx").write_bytes(MAKERS["tmx"](Words(1))),
        lambda folder: list(read_units(folder / "a.tmx", src="en", tgt="fr")),
    ),
    "ids": Kind(partial(make_store, keep_text=False), use_store),
    "ids with text": Kind(partial(make_store, keep_text=True), use_store),
    "settings": Kind(
        lambda folder: (folder / "config.toml").write_text(to_toml(Config())),
        lambda folder: to_toml(load_config(folder / "config.toml")),
        times=4,
        is_quick=False,
    ),
}


@few_or_many
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if kind.is_quick else pytest.mark.slow) for name, kind in KINDS.items()],
)
def test_a_damaged_file_is_refused_in_one_line_or_used(name: str, cases: int, tmp_path: Path) -> None:
    kind, folder = KINDS[name], tmp_path / "files"
    folder.mkdir()
    kind.make(folder)
    read_damaged(cases * kind.times, folder, kind.use, repair=kind.repair)


@pytest.mark.slow
@few_or_many
@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "RUN"],
        ["inspect", "RUN/best", "--json"],
        ["plot", "RUN", "--output", "x.png"],
        ["translate", "RUN", "--max-length", "3"],
        ["average", "RUN", "--last", "1", "--output", "new"],
        ["import", "RUN/checkpoints/step-1/state.pt", "--layout", "torch", "--output", "new"],
        ["train", "--resume", "--output", "RUN"],
    ],
    ids=lambda words: words[0],
)
def test_commands_refuse_a_damaged_run_in_one_line(
    cases: int, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "RUN"
    save_memorised(run / "best")
    (run / "config.toml").write_text(to_toml(memorised().config), encoding="utf-8")
    make_log(run)
    make_checkpoint("adam", run / "checkpoints")

    def use(folder: Path) -> None:
        outcome = heedful(*words, stdin=b"the cat sleeps .\n")
        assert outcome.code in (0, 1, 2)
        if outcome.code:
            assert outcome.err.startswith("error: ")
            assert outcome.err.count("\n") == 1
            assert not Path("new").exists()

    read_damaged(max(1, cases // 4), run, use)
