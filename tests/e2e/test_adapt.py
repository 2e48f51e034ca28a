"""`heedful adapt`: texts become a model that is adapted to them, or the model as it was, and a report."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from animal_pairs import KNOWN, PAIRS, QUICK
from command_line import heedful
from ten_pairs import as_options
from tiny_bundle import save_memorised

import heedful as library
from heedful import load_bundle, load_config
from heedful.decoding.glossary import Glossary
from heedful.documents.memory import read_units
from heedful.tasks.adapt import FINE_TUNING


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, and a table of pairs from documents of five."""
    monkeypatch.chdir(tmp_path)
    save_memorised(Path("model"), KNOWN)
    table("ours.tsv")


def table(name: str, size: int = len(PAIRS)) -> None:
    rows = [
        (source, target, "0.990", f"{number // 5}.html", "1:1")
        for number, (source, target) in enumerate(PAIRS[:size])
    ]
    head = ("src", "tgt", "confidence", "document", "place")
    Path(name).write_text("".join("\t".join(row) + "\n" for row in (head, *rows)), encoding="utf-8")


def adapt(*words: object, **settings: object) -> tuple[int, str, str]:
    done = heedful("adapt", "model", *words, "-o", "ours", *as_options(QUICK | settings))
    return done.code, done.out, done.err


def rows(name: str) -> list[dict[str, str]]:
    with Path("ours/pairs", name).open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def test_a_model_is_adapted_and_tested_on_documents_that_are_held_out() -> None:
    code, out, err = adapt("--pairs", "ours.tsv", "--json")
    assert code == 0, err
    facts = json.loads(out.splitlines()[-1])
    assert facts["is_better"]
    assert facts["held_out"]["after"]["bleu"] > facts["held_out"]["before"]["bleu"] + 10
    documents = [{row["document"] for row in rows(f"{name}.tsv")} for name in ("train", "valid", "test")]
    assert all(documents)
    assert not documents[0] & (documents[1] | documents[2])
    assert not documents[1] & documents[2]
    tests = rows("test.tsv")
    report = library.evaluate("ours", src=[row["src"] for row in tests], ref=[row["tgt"] for row in tests])
    assert report.scores["bleu"] == facts["held_out"]["after"]["bleu"]
    units = [*read_units(Path("ours/memory.tmx"), src=None, tgt=None)]
    assert {*units} == {*PAIRS}
    assert Glossary.load("ours/terms.tsv").entries == ()
    page = Path("ours/report.html").read_text(encoding="utf-8")
    assert not re.search(r"@[A-Z]+@|https?://", page)
    shown = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert shown["held_out"] == facts["held_out"]
    assert {sentence["source"] for sentence in shown["examples"]} <= {row["src"] for row in tests}


def test_a_model_that_is_no_better_is_not_taken() -> None:
    code, _, err = adapt("--pairs", "ours.tsv", **{"train.max_steps": 1, "schedule.peak": 1e-9})
    assert code == 1
    assert "no better" in err.splitlines()[-1]
    before, after = (load_bundle(path).model.state_dict() for path in ("model", "ours"))
    assert all((before[name] == after[name]).all() for name in before)


def test_an_interrupted_adaptation_goes_on() -> None:
    assert adapt("--pairs", "ours.tsv", **{"valid.metric": "none"})[0] != 0
    assert Path("ours/pairs/train.tsv").exists()
    assert "--resume" in adapt("--pairs", "ours.tsv")[2].splitlines()[-1]
    table("others.tsv")
    assert "other texts" in adapt("--pairs", "others.tsv", "--resume")[2].splitlines()[-1]
    code, out, err = adapt("--pairs", "ours.tsv", "--resume")
    assert code == 0, err
    assert "--output" in adapt("--pairs", "ours.tsv", "--resume")[2].splitlines()[-1]
    shutil.rmtree("ours/best")  # as after an interruption behind the training
    assert adapt("--pairs", "ours.tsv", "--resume")[:2] == (code, out)


@pytest.mark.parametrize("confidence", ["high", "", "0,9", "nan"])
def test_a_table_with_a_confidence_that_is_no_number_is_refused(confidence: str) -> None:
    Path("odd.tsv").write_text(
        f"src\ttgt\tconfidence\tdocument\tplace\na\tb\t{confidence}\td\t1:1\n", "utf-8"
    )
    assert "odd.tsv: pair" in adapt("--pairs", "odd.tsv")[2].splitlines()[-1]


def test_pairs_without_documents_are_held_out_in_blocks() -> None:
    Path("bare.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    code, _, err = adapt("--pairs", "bare.tsv", "--adapter", **{"train.max_steps": 60})
    assert code in (0, 1), err
    places = [int(row["place"]) for row in rows("test.tsv")]
    neighbours = sum(place + 1 in places for place in places)
    assert len(places) == 12
    assert neighbours >= 6


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--pairs"),
        (("site",), "TARGET"),
        (("--pairs", "few.tsv"), "100"),
        (("--pairs", "nowhere.tsv"), "nowhere.tsv"),
        (("--pairs", "ours.tsv", "--general-src", "ours.tsv"), "--general-tgt"),
        (("nowhere", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], named: str) -> None:
    table("few.tsv", size=40)
    code, _, err = adapt(*words)
    assert code != 0
    assert named in err.splitlines()[-1]
    assert not Path("ours/training").exists()


def test_the_settings_are_those_of_the_recipe() -> None:
    recipe = load_config(Path(__file__).parents[2] / "recipes" / "adapt.toml")
    own = load_config(overrides=FINE_TUNING | {"train.max_minutes": 1})
    for section in ("batch", "schedule"):
        assert getattr(own, section) == getattr(recipe, section)
    assert own.train.ema_decay == recipe.train.ema_decay
    assert own.valid.replace(patience=0) == recipe.valid
