"""`heedful score` through the command line."""

import gzip
import json
import math
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_memorised
from tolerances import FLOAT32, FLOAT64, close

from heedful.decoding.translator import Translator
from heedful.storage.bundle import save_bundle

pytestmark = pytest.mark.by_class


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    (tmp_path / "s.en").write_bytes(text(SOURCES))
    (tmp_path / "t.de").write_bytes(text(TARGETS))
    return ["--src", tmp_path / "s.en", "--tgt", tmp_path / "t.de"]


def test_the_scores_of_translations_are_those_that_translate_prints(run: Path, files: list[object]) -> None:
    outcome = heedful("score", run, *files)
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    translated = [
        line.split("\t")
        for line in heedful("translate", run, "--scores", stdin=text(SOURCES)).out.splitlines()
    ]
    assert [row[2] for row in rows] == TARGETS == [row[1] for row in translated]
    for row, (score, _) in zip(rows, translated, strict=True):
        assert float(row[1]) == close(float(score), FLOAT32.SENTENCE)
        assert float(row[0]) < float(row[1]) < 0
    assert outcome.code == 0
    assert outcome.err.startswith("6 pairs, ")
    assert outcome.err.count("\n") == 1


def test_json_has_the_tokens_and_ends_in_the_perplexity_on_stderr(run: Path, files: list[object]) -> None:
    outcome = heedful("score", run, *files, "--json")
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert [(each["source"], each["target"]) for each in found] == list(PAIRS)
    for each in found:
        assert list(each) == [
            *("source", "target", "score", "log_prob", "model_log_prob", "tokens", "confidence")
        ]
        assert list(each["tokens"][0]) == ["piece", "log_prob", "model_log_prob"]
        assert each["model_log_prob"] == each["log_prob"]
        assert each["tokens"][-1]["piece"] == "</s>"
        assert each["log_prob"] == close(sum(token["log_prob"] for token in each["tokens"]), FLOAT64.ROW)
        pieces = "".join(token["piece"] for token in each["tokens"][:-1])
        assert pieces.replace("▁", " ").strip() == each["target"]
    summary = json.loads(outcome.err)
    tokens = sum(len(each["tokens"]) for each in found)
    words = sum(len(target.split()) + 1 for target in TARGETS)
    total = sum(each["log_prob"] for each in found)
    assert summary == {
        "pairs": 6, "left_out": 0, "tokens": tokens, "words": words,
        "model_log_prob": close(total, FLOAT64.ROW),
        "perplexity": close(math.exp(-total / tokens), FLOAT64.ROW),
        "word_perplexity": close(math.exp(-total / words), FLOAT64.ROW),
    }  # fmt: skip
    plain = heedful("score", run, *files).err
    assert f"{tokens} tokens, {words} words: perplexity {summary['perplexity']:.6g} per token" in plain


def test_the_length_penalty_may_be_wished_and_the_mean_is_one(run: Path, files: list[object]) -> None:
    wishes = ["--length-penalty", 1, "--length-normalization", "power", "--threads", 1, "--batch-tokens", 30]
    mean = [json.loads(line) for line in heedful("score", run, *files, "--json", *wishes).out.splitlines()]
    for each in mean:
        assert each["score"] == close(each["log_prob"] / len(each["tokens"]), FLOAT64.ROW)
    for line in heedful("score", run, *files, "--length-penalty", 0).out.splitlines():
        log_prob, score, _ = line.split("\t")
        assert log_prob == score


@pytest.mark.parametrize("side", ["--src", "--tgt"])
def test_one_side_may_come_from_stdin_and_the_other_compressed(
    run: Path, files: list[object], side: str, tmp_path: Path
) -> None:
    expected = heedful("score", run, *files)
    lines = {"--src": SOURCES, "--tgt": TARGETS}
    (other,) = lines.keys() - {side}
    (tmp_path / "other.gz").write_bytes(gzip.compress(text(lines[other])))
    found = heedful("score", run, side, "-", other, tmp_path / "other.gz", stdin=text(lines[side]))
    assert found == expected


def test_empty_lines_stay_in_their_place(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text([SOURCES[0], "", SOURCES[1], ""]))
    (tmp_path / "t").write_bytes(text([TARGETS[0], "", "", TARGETS[1]]))
    files = ["--src", tmp_path / "s", "--tgt", tmp_path / "t"]
    outcome = heedful("score", run, *files)
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    assert rows[1] == ["0.000000", "0.000000", ""]
    assert [row[2] for row in rows] == [TARGETS[0], "", "", TARGETS[1]]
    assert max(float(rows[2][0]), float(rows[3][0])) < -2
    assert outcome.err.startswith("3 pairs, ")
    second = json.loads(heedful("score", run, *files, "--json").out.splitlines()[1])
    numbers = {"score": 0.0, "log_prob": 0.0, "model_log_prob": 0.0}
    assert second == {"source": "", "target": "", **numbers, "tokens": [], "confidence": None}


@pytest.mark.parametrize(
    ("src", "tgt", "words"),
    [
        ("nothing", "nothing", ["nothing"]),
        ("-", "nothing", ["stdin", "nothing"]),
        ("one", "nothing", ["nothing: 0 lines", "one has 1"]),
        ("s.en", "five", ["five: 5 lines", "s.en has 6", "line: 6"]),
        ("-", "five", ["five: 5 lines", "stdin", "line: 6"]),
        ("five", "-", ["five: 5 lines", "stdin", "line: 6"]),
        ("s.en", "latin-1", ["latin-1: line 6", "byte 1"]),
        ("s.en", "nul", ["nul: line 6", "byte 1"]),
        ("missing", "-", ["missing"]),
    ],
)
def test_files_that_are_not_parallel_text_are_refused(
    run: Path, src: str, tgt: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    contents = {"nothing": b"", "one": text(SOURCES[:1]), "s.en": text(SOURCES), "five": text(TARGETS[:5])}
    contents |= {"latin-1": text(TARGETS[:5]) + b"a\xff\n", "nul": text(TARGETS[:5]) + b"a\0\n"}
    for name, content in contents.items():
        Path(name).write_bytes(content)
    stdin = b"" if "nothing" in (src, tgt) else text(SOURCES)
    assert_one_clear_line(heedful("score", run, "--src", src, "--tgt", tgt, stdin=stdin), 1, *words)


def test_of_empty_lines_there_is_no_perplexity(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n\n")
    files = ["--src", tmp_path / "empty", "--tgt", tmp_path / "empty"]
    outcome = heedful("score", run, *files)
    assert (outcome.code, outcome.out) == (0, "0.000000\t0.000000\t\n" * 2)
    assert "perplexity nan" in outcome.err
    assert json.loads(heedful("score", run, *files, "--json").err)["perplexity"] is None


def test_a_bundle_without_its_tokenizer_is_refused(tmp_path: Path, files: list[object]) -> None:
    save_memorised(tmp_path / "bundle")
    for path in (tmp_path / "bundle").glob("tokenizer*"):
        path.unlink()
    assert_one_clear_line(heedful("score", tmp_path / "bundle", *files), 1, "tokenizer", "bundle")


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["--src", "-", "--tgt", "-"], "--src and --tgt"),
        (["--src", "-"], "--tgt"),
        (["--src", "-", "--tgt", "-", "--beam-size", "2"], "--beam-size"),
    ],
)
def test_options_that_score_does_not_take_are_refused(run: Path, args: list[str], option: str) -> None:
    assert_one_clear_line(heedful("score", run, *args, stdin=b"a\n"), 2, option)


def test_a_model_of_many_languages_takes_them(files: list[object], tmp_path: Path) -> None:
    save_bundle(nllb_like(), tmp_path / "many", card="# Many languages\n")
    languages = {"src_lang": "deu_Latn", "tgt_lang": "fra_Latn"}
    args = ["--src-lang", "deu_Latn", "--tgt-lang", "fra_Latn", "--json"]
    outcome = heedful("score", tmp_path / "many", *files, *args)
    wanted = Translator(nllb_like()).for_languages(**languages).score(SOURCES, TARGETS)
    found = [json.loads(line) for line in outcome.out.splitlines()]
    assert [each["score"] for each in found] == close([each.score for each in wanted], FLOAT32.SENTENCE)
    assert {(each["tokens"][0]["piece"], each["tokens"][0]["log_prob"]) for each in found} == {
        ("fra_Latn", 0.0)
    }


def test_suppressed_tokens_score_minus_infinity_and_null_in_json(tmp_path: Path) -> None:
    bundle = nllb_like()
    save_bundle(bundle, tmp_path / "many", card="# Many languages\n")
    (tmp_path / "s").write_bytes(text(["the house"]))
    (tmp_path / "t").write_bytes(text(["das <pad> Haus"]))  # the tokenizer reads a padding token there
    files = ["--src", tmp_path / "s", "--tgt", tmp_path / "t"]
    outcome = heedful("score", tmp_path / "many", *files)
    log_prob, *others = outcome.out.split("\t")
    assert others == ["-inf", "das <pad> Haus\n"]
    assert math.isfinite(float(log_prob))
    assert "perplexity inf" not in outcome.err
    outcome = heedful("score", tmp_path / "many", *files, "--json")
    found = json.loads(outcome.out, parse_constant=pytest.fail)
    assert (found["score"], found["log_prob"]) == (None, None)
    assert [token["piece"] for token in found["tokens"] if token["log_prob"] is None] == ["<pad>"]
    assert found["model_log_prob"] == close(float(log_prob), FLOAT32.SENTENCE)
    assert found["model_log_prob"] == sum(token["model_log_prob"] for token in found["tokens"])
    assert json.loads(outcome.err)["model_log_prob"] == found["model_log_prob"]
