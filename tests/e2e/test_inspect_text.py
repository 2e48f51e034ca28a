"""`heedful inspect SRC TGT`: the report, the cleaned text, and what `heedful train` makes of an overlap."""

import gzip
import json
import shlex
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from command_line import Outcome, assert_one_clear_line, heedful
from ten_pairs import ENGLISH, GERMAN, as_options, write_pairs

from heedful.settings.run import TokenizerConfig
from heedful.text import train_tokenizers

BAD = {
    "empty": ("", "Nichts."),
    "control-characters": ("The bell\x07 rings in the old tower.", "Die Glocke läutet im alten Turm."),
    "html": ("The <b>ferry</b> leaves in the early morning.", "Die Fähre fährt am frühen Morgen ab."),
    "duplicate-pair": (ENGLISH[0], GERMAN[0]),
    "near-duplicate": (ENGLISH[1].upper(), GERMAN[1]),
}


@pytest.fixture
def text(tmp_path: Path) -> tuple[Path, Path]:
    """Ten good pairs, then the bad ones."""
    src, tgt = tmp_path / "text.en", tmp_path / "text.de"
    src.write_text("\n".join([*ENGLISH, *(pair[0] for pair in BAD.values()), ""]), encoding="utf-8")
    tgt.write_text("\n".join([*GERMAN, *(pair[1] for pair in BAD.values()), ""]), encoding="utf-8")
    return src, tgt


def found_in(outcome: Outcome) -> dict[str, int]:
    assert outcome.code == 0, outcome.err
    return {each["name"]: each["pairs"] for each in json.loads(outcome.out)["findings"] if each["pairs"]}


@pytest.mark.parametrize("endings", [("en", "de"), ("src", "tgt")])
def test_short_lines_are_checked_for_other_languages(tmp_path: Path, endings: tuple[str, str]) -> None:
    short = [("He runs.", "Er läuft."), ("I see a cat.", "Da ist eine Katze."), ("Come in.", "Komm herein.")]
    pairs = [*short * 50, (GERMAN[0], ENGLISH[0]), ("It rains.", "Aujourd'hui il pleut sur toute la ville.")]
    paths = [tmp_path / f"text.{ending}" for ending in endings]
    for path, lines in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    outcome = heedful("inspect", *paths, "--json")
    report = json.loads(outcome.out)
    assert (report["src"]["language"], report["tgt"]["language"]) == ("en", "de")
    assert found_in(outcome) | {"swapped": 1, "language": 1} == found_in(outcome)


def test_each_fault_is_counted_and_shown_with_its_line(text: tuple[Path, Path]) -> None:
    outcome = heedful("inspect", *text, "--json")
    assert found_in(outcome) == dict.fromkeys(BAD, 1)
    report = json.loads(outcome.out)
    assert (report["pairs"], report["faulty"], report["written"]) == (15, 5, [])
    (finding,) = [each for each in report["findings"] if each["name"] == "html"]
    assert finding["examples"] == [{"line": 13, "src": BAD["html"][0], "tgt": BAD["html"][1]}]
    shown = heedful("inspect", *text).out
    assert "html                       1    6.67%   A side has an HTML tag" in shown
    assert "    12: The bell\\x07 rings" in shown
    assert "would remove 5 pairs (33.33%) and keep 10" in shown
    assert "in-valid" in shown
    assert "needs --valid-src and --valid-tgt" in shown
    assert "vocab     500" in shown
    assert outcome.err == ""  # a bar is for terminals


def test_fix_writes_the_rest_as_it_was_and_says_why_each_line_went(
    text: tuple[Path, Path], tmp_path: Path
) -> None:
    outcome = heedful("inspect", *text, "--fix", tmp_path / "clean")
    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in (tmp_path / "clean").iterdir()) == [
        "removed.tsv",
        "train.de",
        "train.en",
    ]
    assert (tmp_path / "clean/train.en").read_text("utf-8") == "".join(f"{line}\n" for line in ENGLISH)
    assert (tmp_path / "clean/train.de").read_text("utf-8") == "".join(f"{line}\n" for line in GERMAN)
    lines = (tmp_path / "clean/removed.tsv").read_text("utf-8").split("\n")
    assert lines[0] == "line\tfilters\tsource\ttarget"
    assert [line.split("\t")[:2] for line in lines[1:-1]] == [
        [str(11 + i), name] for i, name in enumerate(BAD)
    ]
    assert lines[3].split("\t")[2:] == list(BAD["html"])
    again = heedful("inspect", *text, "--fix", tmp_path / "clean")
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert "already exists; give another --fix" in again.err


def test_filters_can_be_kept_out_of_fix_and_brought_in(text: tuple[Path, Path], tmp_path: Path) -> None:
    options = ["--keep", "html", "--keep", "empty", "--remove", "duplicate-source"]
    assert heedful("inspect", *text, "--fix", tmp_path / "clean", *options).code == 0
    removed = (tmp_path / "clean/removed.tsv").read_text("utf-8").split("\n")[1:-1]
    assert [line.split("\t")[1] for line in removed] == [n for n in BAD if n not in ("html", "empty")]
    unknown = heedful("inspect", *text, "--keep", "htlm")
    assert (unknown.code, unknown.err) == (2, "error: unknown filter 'htlm'; did you mean 'html'?\n")


def test_a_vocabulary_of_the_suggested_size_can_be_trained(tmp_path: Path) -> None:
    """Also for Chinese and Japanese: it has all characters."""
    draw = Random(1)
    src = [f"line {draw.randrange(10)} of the text" for _ in range(600)]
    tgt = ["".join(chr(0x4E00 + draw.randrange(900)) for _ in range(12)) for _ in src]
    (tmp_path / "en").write_text("\n".join(src) + "\n", encoding="utf-8")
    (tmp_path / "zh").write_text("\n".join(tgt) + "\n", encoding="utf-8")
    outcome = heedful("inspect", tmp_path / "en", tmp_path / "zh", "--json")
    size = json.loads(outcome.out)["vocabulary"]
    tokenizers = train_tokenizers(src, tgt, TokenizerConfig(vocab_size=size), seed=1)
    assert tokenizers.tgt.decode(tokenizers.tgt.encode(tgt[0])) == tgt[0]


def test_pairs_in_one_file_stay_in_one_file(tmp_path: Path) -> None:
    pairs = [*zip(ENGLISH, GERMAN, strict=True), BAD["html"]]
    lines = [json.dumps({"en": src, "de": tgt}) + "\n" for src, tgt in pairs]
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    keys = ["--src-key", "en", "--tgt-key", "de"]
    assert found_in(heedful("inspect", tmp_path / "p.jsonl.gz", *keys, "--json")) == {"html": 1}
    assert heedful("inspect", tmp_path / "p.jsonl.gz", *keys, "--fix", tmp_path / "clean").code == 0
    assert (tmp_path / "clean/train.jsonl").read_text("utf-8") == "".join(lines[:-1])
    (tmp_path / "p.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    assert found_in(heedful("inspect", tmp_path / "p.tsv", "--json")) == {"html": 1}
    table = ["id\tde\ten\n", *(f"{i}\t{tgt}\t{src}\n" for i, (src, tgt) in enumerate(pairs))]
    (tmp_path / "p.tsv").write_text("".join(table), encoding="utf-8")
    assert heedful("inspect", tmp_path / "p.tsv", *keys, "--fix", tmp_path / "table").code == 0
    assert (tmp_path / "table/train.tsv").read_text("utf-8") == "".join(table[:-1])


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--valid-src", "a"], 2, "--valid-tgt"),
        (["--test-src", "a", "--test-tgt", "b", "--test-pairs", "c"], 2, "--test-pairs"),
        (["--valid-src", "a", "--valid-tgt", "b"], 1, "a: "),
        (["third"], 2, "3 paths"),
        (["--keep", "html", "--remove", "html"], 2, "--keep html and --remove html"),
        (["--machine"], 2, "--machine"),
    ],
)
def test_options_that_contradict_are_refused(
    text: tuple[Path, Path], options: list[str], code: int, message: str
) -> None:
    outcome = heedful("inspect", *text, *options)
    assert_one_clear_line(outcome, code, message)


def test_one_side_alone_is_asked_for_the_other(text: tuple[Path, Path]) -> None:
    outcome = heedful("inspect", text[1])
    assert_one_clear_line(outcome, 2, f"{text[1]}: ")


@pytest.mark.slow
def test_text_from_a_pipe_is_refused(text: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "heedful", "inspect", "/dev/stdin", str(text[1])]
    outcome = subprocess.run(
        command, input=text[0].read_bytes(), capture_output=True, check=False, timeout=60
    )
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(b"error: /dev/stdin: is a pipe")


def test_bad_text_leaves_nothing_behind(text: tuple[Path, Path], tmp_path: Path) -> None:
    with text[1].open("ab") as file:
        file.write(b"one more\n")
    outcome = heedful("inspect", *text, "--fix", tmp_path / "clean")
    assert outcome.code == 1
    assert "line: 16" in outcome.err
    text[0].write_text("\n\n")
    text[1].write_text("a\nb\n")
    outcome = heedful("inspect", *text, "--fix", tmp_path / "clean")
    assert outcome.code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.de", "text.en"]


def test_training_refuses_validation_pairs_that_it_has_seen_and_fix_takes_them_out(tmp_path: Path) -> None:
    arguments = [*write_pairs(tmp_path), *as_options({"train.max_steps": 2, "valid.every_steps": 2})]
    valid = (tmp_path / "valid.en", tmp_path / "valid.de")
    held_out = ["--valid-src", valid[0], "--valid-tgt", valid[1]]
    valid[0].write_text(f"{ENGLISH[0]}\n{ENGLISH[1]}\nA new one.\n", encoding="utf-8")
    valid[1].write_text(f"{GERMAN[0]}\n{GERMAN[1]}\nEin neuer.\n", encoding="utf-8")
    refused = heedful("train", *arguments, *held_out, "--output", tmp_path / "run")
    assert refused.code == 1
    message = refused.err.splitlines()[-1]
    assert "2 of 3 validation pairs (67%) are in the training text too" in message
    assert ENGLISH[0] in message
    assert "data.allow_overlap=true" in message
    assert not (tmp_path / "run").exists()

    valid[1].write_text(f"{GERMAN[0]}\nAnders übersetzt.\nEin neuer.\n", encoding="utf-8")
    allowed = heedful("train", *arguments, *held_out, "--output", tmp_path / "run")
    assert allowed.code == 0, allowed.err
    assert "warning: 1 of 3 validation pairs (33%)" in allowed.err

    sides = (tmp_path / "ten.en", tmp_path / "ten.de")
    assert heedful("inspect", *sides, *held_out, "--fix", tmp_path / "clean").code == 0
    removed = (tmp_path / "clean/removed.tsv").read_text("utf-8").split("\n")[1:-1]
    assert [line.split("\t")[:2] for line in removed] == [["1", "in-valid"]]
    # Of the later ones, the last counts.
    clean = ["--src", tmp_path / "clean/train.en", "--tgt", tmp_path / "clean/train.de"]
    trained = heedful("train", *arguments, *held_out, *clean, "--output", tmp_path / "clean-run")
    assert trained.code == 0, trained.err
    assert "1 of 3 validation sources occur in training" in trained.err


def test_the_command_that_an_overlap_names_reads_the_same_keys(tmp_path: Path) -> None:
    train, valid = tmp_path / "train.jsonl", tmp_path / "valid.jsonl"
    pairs = [json.dumps({"en": en, "de": de}) for en, de in zip(ENGLISH, GERMAN, strict=True)]
    train.write_text("\n".join(pairs), encoding="utf-8")
    valid.write_text(pairs[0], encoding="utf-8")
    keys = ["--src-key", "en", "--tgt-key", "de"]
    refused = heedful("train", "--pairs", train, "--valid-pairs", valid, *keys, "--output", tmp_path / "run")
    command = refused.err[refused.err.index("heedful inspect ") : refused.err.index(" writes the")]
    _, *arguments, _ = shlex.split(command)
    assert heedful(*arguments, tmp_path / "clean").code == 0
    assert len((tmp_path / "clean" / "train.jsonl").read_text("utf-8").splitlines()) == len(pairs) - 1


def test_text_that_is_its_own_validation_is_not_refused(tmp_path: Path) -> None:
    settings = as_options({"train.max_steps": 2, "valid.every_steps": 2})
    outcome = heedful("train", *write_pairs(tmp_path), *settings, "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    assert "scores are of the training text itself" in outcome.err


def test_options_of_text_need_a_text(tmp_path: Path) -> None:
    for arguments in ([tmp_path], ["--machine"]):
        outcome = heedful("inspect", *arguments, "--fix", tmp_path / "clean")
        assert outcome.code == 2
        assert "need a text to inspect" in outcome.err
