"""Shards as ids: the same from every source; training is as on their text. Jobs: test_resumable_jobs.py."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Outcome, assert_one_clear_line, heedful
from safetensors.torch import load_file
from ten_pairs import ENGLISH, GERMAN, as_options
from tiny_bundle import SOURCES, TARGETS

PAIRS = [*zip(ENGLISH, GERMAN, strict=True)]
SHARDS = {"a": PAIRS[:4], "b": [*PAIRS[4:6], ("", "Nichts."), PAIRS[6]], "c": PAIRS[7:]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of pairs in a folder."""
    write(tmp_path / "in", SHARDS, ".tsv")
    return tmp_path


def write(folder: Path, shards: dict[str, list[tuple[str, str]]], ending: str) -> None:
    folder.mkdir()
    for name, pairs in shards.items():
        if ending == ".parquet":
            pq.write_table(
                pa.table({"src": [a for a, _ in pairs], "tgt": [b for _, b in pairs]}),
                folder / f"{name}.parquet",
            )
            continue
        lines = {
            ".tsv": [f"{a}\t{b}" for a, b in pairs],
            ".jsonl.gz": [json.dumps({"src": a, "tgt": b}) for a, b in pairs],
            ".en": [a for a, _ in pairs],
            ".de": [b for _, b in pairs],
        }[ending]
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / f"{name}{ending}").write_bytes(
            gzip.compress(content) if ending.endswith(".gz") else content
        )


def prepare(folder: Path, *options: object, text: tuple[object, ...] = (), output: object = "out") -> Outcome:
    settings = {"data.cache_dir": folder / "cache", "train.threads": 1, "tokenizer.vocab_size": 150}
    words = text or ("--pairs", folder / "in")
    return heedful(
        "prepare", *words, "--preset", "tiny", *as_options(settings), "-o", folder / str(output), *options
    )


def stores(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.arrow"))]


def train(
    folder: Path, *options: object, output: str = "run", settings: dict[str, object] | None = None
) -> Outcome:
    """Train for some steps, by default on what was prepared."""
    write_validation(folder)
    wanted = {
        "data.cache_dir": folder / "cache", "train.threads": 1, "train.max_steps": 4, "batch.tokens": 60,
        "train.precision": "float32", "valid.decode_sentences": 1, "train.average_checkpoints": 1,
    }  # fmt: skip
    words = options or ("--pairs", folder / "out")
    valid = ["--valid-src", folder / "valid.en", "--valid-tgt", folder / "valid.de"]
    return heedful(
        "train",
        *words,
        *valid,
        "--preset",
        "tiny",
        *as_options(wanted | (settings or {})),
        "-o",
        folder / output,
    )


def write_validation(folder: Path) -> None:
    for side, lines in (("en", SOURCES), ("de", TARGETS)):
        (folder / f"valid.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_training_on_shards_is_training_on_their_text(run: Path, folder: Path) -> None:
    """With one vocabulary, each step takes the same pairs, and the weights are equal bit for bit."""
    vocabulary = ["--set", f"tokenizer.bundle={run}", "--set", "tokenizer.vocab_size=60"]
    outcome = prepare(folder, *vocabulary)
    assert (outcome.code, outcome.err.splitlines()[-1]) == (0, "shards prepared: 3")
    write(folder / "whole", {"all": [pair for pairs in SHARDS.values() for pair in pairs]}, ".tsv")
    whole = ("--pairs", folder / "whole" / "all.tsv", "--set", f"tokenizer.bundle={run}")
    for outcome in (train(folder), train(folder, *whole, output="whole-run")):
        assert outcome.code == 0, outcome.err
    found, expected = (
        load_file(folder / each / "last" / "model.safetensors") for each in ("run", "whole-run")
    )
    assert found.keys() == expected.keys()
    assert all(weight.equal(expected[name]) for name, weight in found.items())
    resumed = heedful("train", "--resume", "-o", folder / "run", "--set", "train.max_steps=6")
    assert resumed.code == 0, resumed.err
    assert "resuming from step 4" in resumed.err


def test_shards_of_every_kind_are_the_same_ids(folder: Path) -> None:
    assert prepare(folder).code == 0
    vocabulary = (folder / "out" / "tokenizer" / "tokenizer.model").read_bytes()
    for ending in (".jsonl.gz", ".parquet", ".en", ".de"):
        write(folder / f"in{ending}", SHARDS, ending)
    sides = ("--src", folder / "in.en" / "*.en", "--tgt", folder / "in.de")
    for number, text in enumerate(
        [("--pairs", folder / "in.jsonl.gz"), ("--pairs", folder / "in.parquet"), sides]
    ):
        outcome = prepare(folder, text=text, output=number)
        assert outcome.code == 0, outcome.err
        assert (folder / str(number) / "tokenizer" / "tokenizer.model").read_bytes() == vocabulary
        assert stores(folder / str(number)) == stores(folder / "out") != []
    assert not [*(folder / "cache").iterdir()]


def test_training_waits_for_all_shards(run: Path, folder: Path) -> None:
    vocabulary = ["--set", f"tokenizer.bundle={run}", "--set", "tokenizer.vocab_size=60"]
    good = (folder / "in" / "c.tsv").read_bytes()
    (folder / "in" / "c.tsv").write_bytes(good + b"no tab\n")
    assert_one_clear_line(prepare(folder), 1, "in/c.tsv")
    assert stores(folder / "out") == []  # the vocabulary is learned from all of them, first
    failed = prepare(folder, *vocabulary, output="ids")
    assert failed.code == 1
    assert "in/c.tsv" in failed.err.splitlines()[-1]
    assert len(stores(folder / "ids")) == 2
    ids = ("--pairs", folder / "ids")
    assert_one_clear_line(train(folder, *ids), 1, "ids: ", "heedful prepare --resume")
    (folder / "in" / "c.tsv").write_bytes(good)
    assert prepare(folder, *vocabulary, "--resume", output="ids").code == 0
    assert train(folder, *ids).code == 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_vocabulary_is_refused(run: Path, folder: Path) -> None:
    """Also where all shards are done."""
    assert prepare(folder).code == 0
    before = contents(folder / "out")
    bundle = ["--set", "tokenizer.vocab_size=60", "--set", f"tokenizer.bundle={run}"]
    for other in (["--set", "tokenizer.kind=unigram"], ["--set", "tokenizer.vocab_size=140"], bundle):
        assert_one_clear_line(prepare(folder, "--resume", *other), 1, "out: ")
        assert contents(folder / "out") == before


def test_a_vocabulary_without_shards_has_the_settings_that_trained_it(folder: Path) -> None:
    """A first start may fail when its vocabulary is trained; what the ids depend on besides may change."""
    failed = prepare(folder, "--set", "data.max_length=1")
    assert "data.max_length=1 tokens" in failed.err
    before = contents(folder / "out")
    for resume in ([], ["--resume"]):
        other = prepare(folder, *resume, "--set", "tokenizer.kind=char")
        assert_one_clear_line(other, 1, "out: ", '"kind":"bpe"')
        assert contents(folder / "out") == before
    assert prepare(folder, "--resume").code == 0
    assert prepare(folder, output="whole").code == 0
    assert contents(folder / "out") == contents(folder / "whole")


def test_training_names_what_the_ids_lack_and_a_resumption_writes_it(folder: Path) -> None:
    assert prepare(folder).code == 0
    out, before = folder / "out", contents(folder / "out")
    store = out / "a.tsv.arrow"
    store.write_bytes(before[store.name][:-100])
    assert_one_clear_line(train(folder), 1, "a.tsv.arrow", "heedful prepare --resume")
    store.unlink()
    assert_one_clear_line(train(folder), 1, "a.tsv.arrow", "heedful prepare --resume")
    shutil.rmtree(out / "tokenizer")
    assert_one_clear_line(train(folder), 1, "tokenizer", "heedful prepare --resume")
    assert prepare(folder, "--resume").code == 0
    assert contents(out) == before


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--set", "data.max_length=50"], 1, "max_length=256"),
        (["--set", "tokenizer.vocab_size=151"], 2, "tokenizer.vocab_size=151"),
        (["--set", "tokenizer.sampling=0.1"], 2, "tokenizer.sampling"),
    ],
)
def test_a_training_with_other_settings_is_refused(
    folder: Path, options: list[str], code: int, message: str
) -> None:
    assert prepare(folder).code == 0
    assert_one_clear_line(train(folder, "--pairs", folder / "out", *options), code, message)


def test_a_training_needs_its_own_validation_text_and_the_vocabulary_of_its_base(
    run: Path, folder: Path
) -> None:
    assert prepare(folder).code == 0
    outcome = heedful("train", "--pairs", folder / "out", "--preset", "tiny", "-o", folder / "run")
    assert_one_clear_line(outcome, 2, "out: ", "--valid-src")
    write_validation(folder)
    valid = ["--valid-src", folder / "valid.en", "--valid-tgt", folder / "valid.de", "-o", folder / "run"]
    outcome = heedful("train", "--init", run, "--pairs", folder / "out", *valid)
    assert outcome.code == 1
    assert "vocabulary=" in outcome.err


@pytest.mark.slow
def test_sentences_are_kept_for_sampling(folder: Path) -> None:
    sampling = ["--set", "tokenizer.sampling=0.1"]
    assert prepare(folder, *sampling).code == 0
    outcome = train(folder, "--pairs", folder / "out", *sampling)
    assert outcome.code == 0, outcome.err


def test_texts_that_cannot_be_prepared_are_refused(folder: Path) -> None:
    write(folder / "in.en", SHARDS, ".en")
    write(folder / "in.de", {"a": PAIRS}, ".de")
    sides = ("--src", folder / "in.en", "--tgt", folder / "in.de")
    assert_one_clear_line(prepare(folder, text=sides), 1, "in.en: 3", "in.de has 1")
    assert_one_clear_line(prepare(folder, text=("--src", folder / "in.en")), 2, "data.tgt")
    assert_one_clear_line(prepare(folder, text=("--pairs", "")), 2, "--pairs")
    assert not (folder / "out").exists()
    assert prepare(folder).code == 0
    assert_one_clear_line(prepare(folder, text=("--pairs", folder / "out"), output="2"), 1, "--pairs")
