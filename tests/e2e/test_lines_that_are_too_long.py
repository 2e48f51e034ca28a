"""Lines beyond what the model was trained on: split and joined, or refused, and a line on stderr says so."""

import json
from pathlib import Path

import pytest
from command_line import heedful
from tiny_bundle import SOURCES, TARGETS, memorised
from tolerances import FLOAT64, close

LONG, LONG_TARGET = " ".join(SOURCES), " ".join(TARGETS)
SPLIT = "tokens, above max_source_tokens"


def num_tokens(line: str) -> int:
    """The tokens of a line, and the end token."""
    return len(memorised().tokenizers.src.encode(line)) + 1


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def test_a_long_line_is_split_into_its_sentences_and_joined(run: Path) -> None:
    given = text(SOURCES[0], LONG, "", SOURCES[1])
    outcome = heedful("translate", run, "--max-source-tokens", 20, stdin=given)
    assert (outcome.code, outcome.out) == (0, text(TARGETS[0], LONG_TARGET, "", TARGETS[1]).decode())
    assert outcome.err.startswith(f"warning: line 2: {num_tokens(LONG)} {SPLIT}=20: translated in segments\n")
    assert outcome.err.count("\n") == 1


def test_a_line_within_the_limit_is_left_whole(run: Path) -> None:
    outcome = heedful("translate", run, "--max-source-tokens", num_tokens(LONG), stdin=text(LONG))
    assert outcome.err == ""
    assert outcome == heedful("translate", run, "--max-source-tokens", 1_000_000, stdin=text(LONG))
    assert outcome == heedful("translate", run, stdin=text(LONG))


def test_lines_are_counted_through_the_chunks_and_many_are_summed_up(run: Path) -> None:
    outcome = heedful(
        "translate", run, "--line-buffered", "--max-source-tokens", 20, stdin=text(*[SOURCES[0], LONG] * 8)
    )
    assert outcome.out == text(*[TARGETS[0], LONG_TARGET] * 8).decode()
    *shown, last = outcome.err.splitlines()
    assert [each.split(":")[1] for each in shown] == [f" line {number}" for number in (2, 4, 6, 8, 10)]
    assert last == "warning: 3 more lines like these"


def test_scores_and_the_n_best_list_of_a_split_line_are_those_of_its_segments(run: Path) -> None:
    options = ["--n-best", 3, "--json", "--length-normalization", "power", "--length-penalty", 1]
    [whole] = heedful(
        "translate", run, *options, "--max-source-tokens", 20, stdin=text(LONG)
    ).out.splitlines()
    parts = heedful("translate", run, *options, stdin=text(*SOURCES)).out.splitlines()
    segments = [json.loads(each)["hypotheses"] for each in parts]
    joined = json.loads(whole)
    assert [each["text"] for each in joined["hypotheses"]] == [
        " ".join(each[rank]["text"] for each in segments) for rank in range(3)
    ]
    best = joined["hypotheses"][0]
    assert (best["text"], best["score"]) == (joined["text"], joined["score"]) == (LONG_TARGET, best["score"])
    assert best["ids"] == [token for each in segments for token in each[0]["ids"]]
    assert best["log_prob"] == close(sum(each[0]["log_prob"] for each in segments), FLOAT64.ROW)
    assert best["score"] == close(best["log_prob"] / len(best["ids"]), FLOAT64.ROW)  # the mean of a token
    scores = [each["score"] for each in joined["hypotheses"]]
    assert scores == sorted(scores, reverse=True)


def test_the_first_segment_has_the_prefix(run: Path, tmp_path: Path) -> None:
    (tmp_path / "prefix").write_text("der Hund\n", encoding="utf-8")
    outcome = heedful(
        "translate", run, "--max-source-tokens", 20, "--prefix", tmp_path / "prefix", stdin=text(LONG)
    )
    assert outcome.code == 0
    assert outcome.out.startswith("der Hund ")
    assert outcome.out.endswith(" ".join(TARGETS[1:]) + "\n")


@pytest.mark.parametrize("verb", ["score", "align"])
@pytest.mark.parametrize("end", ["source", "target"])
def test_a_given_pair_that_is_too_long_is_refused(run: Path, tmp_path: Path, verb: str, end: str) -> None:
    too_long, short = text(SOURCES[0], LONG * 60), text(TARGETS[0], TARGETS[1])
    (tmp_path / "s").write_bytes(too_long if end == "source" else short)
    (tmp_path / "t").write_bytes(too_long if end == "target" else short)
    outcome = heedful(verb, run, "--src", tmp_path / "s", "--tgt", tmp_path / "t")
    assert outcome.code == 1
    assert f"error: {end} line 2: " in outcome.err
    assert f"{SPLIT}=2,000" in outcome.err


def test_score_has_the_option_too(run: Path, tmp_path: Path) -> None:
    for name in "st":
        (tmp_path / name).write_bytes(text(LONG))
    given = ["score", run, "--src", tmp_path / "s", "--tgt", tmp_path / "t", "--max-source-tokens"]
    assert f"error: source line 1: {num_tokens(LONG)} {SPLIT}=20" in heedful(*given, 20).err
    assert heedful(*given, 1000).code == 0


def test_a_sentence_that_is_too_long_for_a_picture_is_refused(run: Path, tmp_path: Path) -> None:
    given = ["attention", run, "-o", tmp_path / "map.json", "--max-source-tokens", 20]
    assert f"error: attention: TEXT: {num_tokens(LONG)} {SPLIT}=20" in heedful(*given, LONG).err
    assert "error: attention: --target: " in heedful(*given, SOURCES[0], "--target", LONG).err
    assert heedful(*given, SOURCES[0]).code == 0


def test_a_word_of_many_characters_is_translated(run: Path) -> None:
    outcome = heedful("translate", run, "--beam-size", 1, stdin=text("katze" * 4000))
    assert outcome.code == 0
    assert outcome.out.count("\n") == 1
    assert f"{SPLIT}=256" in outcome.err
