"""Shards as ids: the same bytes from every source, here and on Ray; training is as on their text."""

import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import Outcome, assert_one_clear_line, heedful
from ray_without_cluster import use_ray_without_cluster
from safetensors.torch import load_file
from ten_pairs import ENGLISH, GERMAN, as_options
from tiny_bundle import SOURCES, TARGETS
from translation_server import own_ray

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


def test_urls_are_those_of_fsspec(folder: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    assert prepare(folder).code == 0
    for side in (".en", ".de"):
        write(folder / f"in{side}", SHARDS, side)
        memory.put(str(folder / f"in{side}"), f"/text{side}", recursive=True)
    settings = as_options({"data.cache_dir": folder / "cache", "tokenizer.vocab_size": 150})
    text = ["--src", "memory://text.en/*.en", "--tgt", "memory://text.de/*.de", "--preset", "tiny"]
    outcome = heedful("prepare", *text, *settings, "-o", "memory://ids")
    assert outcome.code == 0, outcome.err
    assert [memory.cat(f"/ids/{name}.en.arrow") for name in "abc"] == stores(folder / "out")
    assert memory.cat("/ids/config.toml")


def test_what_is_done_stays_and_training_waits_for_the_rest(folder: Path) -> None:
    assert prepare(folder, output="whole").code == 0
    good = (folder / "in" / "b.tsv").read_bytes()
    (folder / "in" / "b.tsv").write_bytes(good + b"no tab\n")
    assert_one_clear_line(prepare(folder), 1, "in/b.tsv: line 5: 1 tab-separated columns")
    (folder / "in" / "b.tsv").write_bytes(good)
    out = folder / "out"
    assert [*out.glob("*.arrow")] == []  # the vocabulary is learned from all of them, first
    (folder / "in" / "c.tsv").write_bytes(b"a\xff\n")
    (out / "tokenizer").mkdir()
    for each in (folder / "whole" / "tokenizer").iterdir():
        (out / "tokenizer" / each.name).write_bytes(each.read_bytes())
    assert_one_clear_line(prepare(folder), 1, "in/c.tsv: line 1")
    assert len(stores(out)) == 2
    assert_one_clear_line(
        train(folder), 1, "out: some shards are not prepared yet; heedful prepare --resume goes on"
    )
    write(folder / "again", SHARDS, ".tsv")
    (folder / "in" / "c.tsv").write_bytes((folder / "again" / "c.tsv").read_bytes())
    assert_one_clear_line(prepare(folder), 1, "out: has prepared shards; --resume goes on with them")
    other = prepare(folder, "--resume", "--set", "tokenizer.kind=unigram")
    assert_one_clear_line(other, 1, "out: was written with tokenizer=")
    outcome = prepare(folder, "--resume")
    assert outcome == Outcome(0, "", "shards prepared: 1; 2 were done before\n")
    assert stores(out) == stores(folder / "whole")
    assert train(folder).code == 0


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_refused_resumption_leaves_the_output_as_it_was(run: Path, folder: Path) -> None:
    """Also where all shards are done."""
    assert prepare(folder).code == 0
    before = contents(folder / "out")
    for setting, message in {
        "tokenizer.kind=unigram": "tokenizer=",
        "tokenizer.vocab_size=140": "tokenizer=",
        "data.max_length=20": "max_length=256, not 20",
    }.items():
        other = prepare(folder, "--resume", "--set", setting)
        assert_one_clear_line(other, 1, f"out: was written with {message}")
        assert contents(folder / "out") == before
    other = prepare(
        folder, "--resume", "--set", "tokenizer.vocab_size=60", "--set", f"tokenizer.bundle={run}"
    )
    assert_one_clear_line(other, 1, "out: was written with ")
    shard = (folder / "in" / "b.tsv").read_bytes()
    for changed in (shard + b"one\tmore\n", shard.swapcase()):
        (folder / "in" / "b.tsv").write_bytes(changed)
        assert_one_clear_line(prepare(folder, "--resume"), 1, "in/b.tsv: has changed since it was prepared")
    assert contents(folder / "out") == before


def test_a_vocabulary_without_shards_has_the_settings_that_trained_it(folder: Path) -> None:
    """A first start may fail when its vocabulary is trained; what the ids depend on besides may change."""
    failed = prepare(folder, "--set", "data.max_length=1")
    assert "data.max_length=1 tokens" in failed.err
    before = contents(folder / "out")
    for resume in ([], ["--resume"]):
        other = prepare(folder, *resume, "--set", "tokenizer.kind=char")
        assert_one_clear_line(other, 1, 'out: was written with tokenizer={"kind":"bpe"')
        assert contents(folder / "out") == before
    assert prepare(folder, "--resume").code == 0
    assert prepare(folder, output="whole").code == 0
    assert contents(folder / "out") == contents(folder / "whole")


def test_what_is_lost_of_the_output_is_written_again(folder: Path) -> None:
    assert prepare(folder).code == 0
    out, before = folder / "out", contents(folder / "out")
    store = out / "a.tsv.arrow"
    store.write_bytes(before[store.name][:-100])
    damaged = "a.tsv.arrow: not a complete store of ids; delete it and run heedful prepare --resume"
    assert_one_clear_line(train(folder), 1, damaged)
    assert prepare(folder, "--resume").err == "shards prepared: 1; 2 were done before\n"
    assert contents(out) == before
    store.write_bytes(bytes(len(before[store.name])))
    assert prepare(folder, "--resume").err == "shards prepared: 1; 2 were done before\n"
    assert contents(out) == before
    store.unlink()
    missing = "a.tsv.arrow: there is no such store of ids; heedful prepare --resume writes it again"
    assert_one_clear_line(train(folder), 1, missing)
    shutil.rmtree(out / "tokenizer")
    assert_one_clear_line(train(folder), 1, "out: has no tokenizer; heedful prepare --resume writes it again")
    assert prepare(folder, "--resume").code == 0
    assert contents(out) == before


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text")
def test_a_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / "in" / os.fsdecode(b"d\xff.tsv")).write_bytes(b"a\tb\n")
    message = f"{folder / 'in'}/d\\xff.tsv: the file's name is not UTF-8; rename it"
    assert_one_clear_line(prepare(folder), 1, message)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--set", "data.max_length=50"], 1, "out: was written with max_length=256, not 50"),
        (["--set", "tokenizer.vocab_size=151"], 2, "tokenizer.vocab_size=151: "),
        (["--set", "tokenizer.sampling=0.1"], 2, "has no sentences to sample from"),
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
    assert_one_clear_line(outcome, 2, "out: holds no text that could be held out; give --valid-src")
    write_validation(folder)
    valid = ["--valid-src", folder / "valid.en", "--valid-tgt", folder / "valid.de", "-o", folder / "run"]
    outcome = heedful("train", "--init", run, "--pairs", folder / "out", *valid)
    assert outcome.code == 1
    assert "out: was written with vocabulary=" in outcome.err


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
    assert_one_clear_line(prepare(folder, text=sides), 1, "in.en: 3 shards, but", "in.de has 1")
    assert_one_clear_line(prepare(folder, text=("--src", folder / "in.en")), 2, "data.src and data.tgt")
    assert_one_clear_line(prepare(folder, output="in"), 1, "in: is the input too")
    assert prepare(folder, output="ids").code == 0
    again = prepare(folder, text=("--pairs", folder / "ids"))
    assert_one_clear_line(again, 1, f"{folder / 'ids'}: is prepared already; train takes it as --pairs")
    assert not (folder / "out").exists()
    assert_one_clear_line(prepare(folder, "--on", "mars"), 2, "--on mars: must be here or ray")
    assert_one_clear_line(heedful("prepare", "-o", folder / "out"), 2, "give --pairs, or --src and --tgt")
    assert_one_clear_line(prepare(folder, text=("--pairs", "")), 2, "--pairs: the path is empty")
    no_output = heedful("prepare", "--pairs", folder / "in", "-o", "")
    assert_one_clear_line(no_output, 1, "'': the path is empty")


def test_a_worker_of_ray_writes_the_same_bytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_ray_without_cluster(monkeypatch)
    assert prepare(folder, output="here").code == 0
    assert prepare(folder, "--on", "ray", output="ray").code == 0
    assert contents(folder / "ray") == contents(folder / "here")


# Runs a command on a cluster of its own with so many CPUs.
ON_RAY = """
import logging, sys, ray
from heedful.cli.main import main
cpus = int(sys.argv.pop(1))
ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
main()
"""


def _workers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes of Ray that prepare shards."""
    with contextlib.suppress(psutil.Error):
        return [
            each for each in process.children(recursive=True) if "ShardWorker" in " ".join(each.cmdline())
        ]
    return []


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("workers", "kills"), [(1, 0), (2, 2)])
def test_ray_writes_the_same_bytes_though_its_workers_are_killed(
    run: Path, tmp_path: Path, workers: int, kills: int
) -> None:
    """Eight shards of 20,000 pairs, by one worker, and by two that are killed."""
    pytest.importorskip("ray")
    rng = random.Random(22)
    shards = {
        str(number): [
            (" ".join(rng.choices(SOURCES, k=2)), " ".join(rng.choices(TARGETS, k=2))) for _ in range(20_000)
        ]
        for number in range(8)
    }
    write(tmp_path / "in", shards, ".tsv")
    vocabulary = ["--set", f"tokenizer.bundle={run}", "--set", "tokenizer.vocab_size=60"]
    assert prepare(tmp_path, *vocabulary, output="here").code == 0
    settings = as_options({"data.cache_dir": tmp_path / "cache", "train.threads": 1, "tokenizer.bundle": run})
    command = ["prepare", "--pairs", str(tmp_path / "in"), "--preset", "tiny", *settings]
    words = [*command, "-o", str(tmp_path / "ray"), "--on", "ray"]
    with own_ray():
        process = psutil.Popen(
            [sys.executable, "-c", ON_RAY, str(workers), *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )  # fmt: skip
    killed: set[int] = set()
    while process.poll() is None:
        alive = [each for each in _workers_of(process) if each.pid not in killed]
        if alive and len(killed) < kills:
            victim = rng.choice(alive)
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
                killed.add(victim.pid)
        time.sleep(0.05)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert bool(killed) == bool(kills)
    assert errors.endswith("shards prepared: 8\n")
    here, there = tmp_path / "here", tmp_path / "ray"
    assert stores(there) == stores(here) != []
    manifests = [json.loads((each / "manifest.json").read_text(encoding="utf-8")) for each in (here, there)]
    assert manifests[0] == manifests[1]
