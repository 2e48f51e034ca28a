"""`heedful translate --keep`, `--keep-file` and `--marks`."""

import json
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text

from heedful import translate_file, translate_text
from heedful.decoding.translator import Translator

LINES = ["the cat sees Box 7 .", "the dog [box] sleeps ."]
KEPT = ("--keep", "Box [0-9]+", "--keep", "wordpress")


def test_lines_documents_and_python_keep_the_same(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(LINES), "utf-8")
    out = heedful("translate", run, *KEPT, stdin=text(LINES)).out
    assert [kept in line for kept, line in zip(("Box 7", "[box]"), out.splitlines(), strict=True)] == [
        True
    ] * 2
    heedful("translate", run, "--document", tmp_path / "a.txt", "-o", tmp_path / "b.txt", *KEPT)
    translate_file(str(run), tmp_path / "a.txt", tmp_path / "c.txt", keep=["Box [0-9]+", "wordpress"])
    assert (tmp_path / "c.txt").read_text("utf-8") == out
    assert (tmp_path / "b.txt").read_text("utf-8") == out.removesuffix("\n")
    translator = Translator.load(run)
    lines = [translate_text(translator, line, keep=["Box [0-9]+", "wordpress"]).text for line in LINES]
    assert lines == out.splitlines()


def test_a_file_has_rules_for_each_ending(run: Path, tmp_path: Path) -> None:
    (tmp_path / "keep.toml").write_text("json = ['Box [0-9]+']\nall = ['wordpress']\n", "utf-8")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(LINES), "utf-8")
    (folder / "a.txt").write_text("\n".join(LINES), "utf-8")
    heedful(
        "translate", run, "--document", folder, "-o", tmp_path / "out", "--keep-file", tmp_path / "keep.toml"
    )
    of_json, of_text = ((tmp_path / "out" / name).read_text("utf-8") for name in ("a.json", "a.txt"))
    assert ("Box 7" in of_json, "[box]" in of_json, "[box]" in of_text) == (True, True, True)


def test_a_run_with_other_rules_is_not_resumed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    options = ("-i", tmp_path / "in", "-o", tmp_path / "out")
    (tmp_path / "in" / "a.txt").write_text("the cat sleeps .\n", "utf-8")
    heedful("translate", run, *options, "--keep", "cat")
    (tmp_path / "in" / "b.txt").write_text("the dog sleeps .\n", "utf-8")
    outcome = heedful("translate", run, *options, "--resume", "--keep", "dog")
    assert_one_clear_line(outcome, 1, "keep")


@pytest.mark.parametrize("options", [("--keep", "["), ("--keep", "a*"), ("--keep-file", "none.toml")])
def test_a_bad_rule_is_refused_before_a_model_is_loaded(options: tuple[str, str]) -> None:
    outcome = heedful("translate", "no-such-run", *options, stdin=b"")
    assert_one_clear_line(outcome, 1, options[1])


def test_marks_are_printed_without_a_model() -> None:
    marks = json.loads(heedful("translate", "RUN", "--marks", "--json", *KEPT, stdin=text(LINES)).out)[
        "marks"
    ]
    assert [(mark["kind"], mark["first"], mark["example"]) for mark in marks] == [
        ("keep Box [0-9]+", "line 1", "Box 7"),
        ("keep wordpress", "line 2", "[box]"),
    ]
    table = heedful("translate", "RUN", "--marks", stdin=text(LINES)).out
    assert table.splitlines()[1].split() == ["translated", "1", "in", "brackets", "line", "2", "[box]"]
