"""`heedful shortlist` and `--shortlist`, through the command line."""

import json
from pathlib import Path

import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised

SRC = "".join(f"{source}\n" for source, _ in PAIRS)
TGT = "".join(f"{target}\n" for _, target in PAIRS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = save_memorised(tmp_path_factory.mktemp("runs") / "demo" / "best").parent
    (run / "train.en").write_text(SRC, encoding="utf-8")
    (run / "train.de").write_text(TGT, encoding="utf-8")
    return run


def learn(run: Path, output: Path, *settings: object) -> list[object]:
    files = ["--src", run / "train.en", "--tgt", run / "train.de", "--output", output]
    return ["shortlist", run, *files, *settings]


def test_what_is_learned_is_measured_and_used(run: Path, tmp_path: Path) -> None:
    good, none = tmp_path / "good", tmp_path / "none"
    outcome = heedful(*learn(run, good, "--check", run / "train.en", "--json"))
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["path"], found["pairs"]) == (str(good), 6)
    assert found["effect"]["tokens_outside"] == found["effect"]["texts_changed"] == 0
    assert found["effect"]["sentences"] == 6 < found["effect"]["tokens"]
    assert outcome.err == (
        "warning: 6 pairs are few: learned from fewer than 10,000, a shortlist lacks many translations; take "
        "more text, or measure its effect with --check\n"
    )
    shown = heedful(*learn(run, none, "--candidates", 0, "--frequent", 0, "--check", run / "train.en")).out
    assert "6 of 6 texts" in shown

    stdin, translate = SRC.encode(), ("translate", run)
    assert heedful(*translate, "--shortlist", good, stdin=stdin).out == TGT
    assert heedful(*translate, "--shortlist", none, stdin=stdin).out != TGT
    files = ("--src", run / "train.en", "--ref", run / "train.de", "--json")
    scores = [
        json.loads(heedful("evaluate", run, *files, "--shortlist", each).out)["bleu"] for each in (good, none)
    ]
    assert scores[0] > 99 > 50 > scores[1]


def test_a_benchmark_says_that_there_was_a_shortlist(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    assert heedful(*learn(run, path)).code == 0
    arguments = ["bench", "decode", run, "--src", run / "train.en", "--beam-size", 1, "--json"]
    assert json.loads(heedful(*arguments, "--shortlist", path).out)["shortlist"] == str(path)
    assert json.loads(heedful(*arguments).out)["shortlist"] is None


def test_score_finds_impossible_what_the_shortlist_has_not(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    heedful(*learn(run, path, "--candidates", 0, "--frequent", 0))
    outcome = heedful("score", run, "--src", run / "train.en", "--tgt", run / "train.de", "--shortlist", path)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("-inf\t-inf\tdie Katze")


def test_mistakes_are_one_line(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("x")
    translate = ("translate", run, "--shortlist")
    for arguments, message in (
        (learn(run, path), "already exists"),
        ([*translate, tmp_path / "missing"], "missing: no such file; make one with heedful shortlist"),
        ([*translate, path], "no shortlist"),
    ):
        outcome = heedful(*arguments, stdin=b"the cat\n")
        assert (outcome.code, outcome.err.count("\n")) == (1, 1)
        assert message in outcome.err
