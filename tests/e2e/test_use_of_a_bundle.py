"""The verbs that use a trained model, through the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from small_models import small_model
from tiny_bundle import SOURCES, TARGETS, save_memorised
from tolerances import FLOAT64, close

from heedful.decoding.backends.engine import engine_precisions
from heedful.errors import MissingExtraError
from heedful.runtime.native import native
from heedful.storage.bundle import save_model
from heedful.text import TokenizerPair

pytestmark = pytest.mark.by_class


def test_translate_keeps_order_and_empty_lines(run: Path) -> None:
    outcome = heedful("translate", run, stdin=text([SOURCES[0], "", SOURCES[2], "  ", SOURCES[1]]))
    assert outcome == Outcome(0, f"{TARGETS[0]}\n\n{TARGETS[2]}\n\n{TARGETS[1]}\n", "")


def test_greedy_search_and_other_settings_work_from_files(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(text(SOURCES))
    settings = ["--beam-size", 1, "--batch-tokens", 16, "--threads", 1, "--device", "cpu"]
    outcome = heedful("translate", run, "--input", tmp_path / "in.txt", "-o", tmp_path / "out.txt", *settings)
    assert outcome == Outcome(0, "", "")
    assert (tmp_path / "out.txt").read_bytes() == text(TARGETS)


def test_scores_come_before_the_text(run: Path) -> None:
    outcome = heedful("translate", run, "--scores", stdin=text([SOURCES[0], ""]))
    first, second = outcome.out.splitlines()
    score, translation = first.split("\t")
    assert translation == TARGETS[0]
    assert -1 < float(score) < 0
    assert second == "0.000000\t"


def test_n_best_has_the_moses_form(run: Path) -> None:
    outcome = heedful("translate", run, "--n-best", 3, stdin=text([SOURCES[0], "", SOURCES[1]]))
    rows = [line.split(" ||| ") for line in outcome.out.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0", "1", "2", "2", "2"]
    assert rows[0][1] == TARGETS[0]
    scores = [float(row[2]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)


def test_json_has_one_object_a_line(run: Path) -> None:
    outcome = heedful("translate", run, "--json", "--n-best", 2, stdin=text([SOURCES[0], ""]))
    first, second = map(json.loads, outcome.out.splitlines())
    assert (first["source"], first["text"]) == (SOURCES[0], TARGETS[0])
    keys = ["text", "score", "log_prob", "ids", "finished", "confidence", "alignment"]
    assert list(first["hypotheses"][0]) == keys
    assert (first["hypotheses"][0]["text"], first["hypotheses"][0]["score"]) == (TARGETS[0], first["score"])
    assert len(first["hypotheses"]) == 2
    assert second == {"source": "", "text": "", "score": 0.0, "confidence": None, "hypotheses": []}


def test_lines_before_a_bad_one_are_translated(run: Path) -> None:
    outcome = heedful("translate", run, stdin=text(SOURCES[:1]) + b"\xff\n" + text(SOURCES[1:]))
    assert_one_clear_line(outcome, 1, "stdin: line 2", out=f"{TARGETS[0]}\n")


@pytest.mark.parametrize("verb", ["translate", "inspect"])
def test_a_directory_without_a_bundle_is_named(verb: str, tmp_path: Path) -> None:
    assert_one_clear_line(heedful(verb, tmp_path), 1, str(tmp_path))


def test_a_truncated_bundle_is_named_and_the_old_output_kept(run: Path, tmp_path: Path) -> None:
    save_memorised(tmp_path / "bundle")
    weights = tmp_path / "bundle" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    (tmp_path / "out.txt").write_text("precious\n")
    outcome = heedful("translate", tmp_path / "bundle", "--output", tmp_path / "out.txt", stdin=b"a\n")
    assert_one_clear_line(outcome, 1, "model.safetensors")
    assert (tmp_path / "out.txt").read_text() == "precious\n"


def test_evaluate_prints_each_score_with_its_signature(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "r").write_bytes(text(TARGETS))
    args = ["evaluate", run, "--src", tmp_path / "s", "--ref", tmp_path / "r"]
    names = ["bleu", "chrf", "ter", "wer", "item_error_rate", "per", "exact"]
    outcome = heedful(*args, "--metric", ",".join(names), "--json", "--output", tmp_path / "hyp")
    report = json.loads(outcome.out)
    assert [report[name] for name in names] == close([100, 100, 0, 0, 0, 0, 100], FLOAT64.ROW)
    assert set(report) == {*names, "signatures", "sentences", "seconds", "confidence", "cut_outputs"}
    assert "tok:13a" in report["signatures"]["bleu"]
    assert report["sentences"] == len(SOURCES)
    assert (tmp_path / "hyp").read_bytes() == text(TARGETS)
    plain = heedful(*args).out.splitlines()
    assert plain[0] == f"bleu 100.00 ± 0.00  {report['signatures']['bleu']}"
    assert heedful(*args, "--resamples", 0).out.startswith("bleu 100.00  nrefs:1")


@pytest.mark.slow
def test_systems_are_compared_in_one_table(run: Path, tmp_path: Path) -> None:
    worse = [line.replace("e", "o", 1) for line in TARGETS]
    for name, lines in (("s", SOURCES), ("r", TARGETS), ("worse", worse)):
        (tmp_path / name).write_bytes(text(lines))
    args = ["evaluate", "--ref", tmp_path / "r", "--metric", "bleu,exact"]
    ours = heedful(*args, run, "--src", tmp_path / "s", "--compare", tmp_path / "worse", "--json")
    first, second = json.loads(ours.out)["systems"]
    assert (first["system"], second["system"]) == (str(run), str(tmp_path / "worse"))
    assert first["bleu"] == close(100, FLOAT64.ROW)
    assert second["bleu"] < 100
    assert (first["exact"], second["exact"], second["p_values"]["exact"]) == (
        100,
        0,
        close(1 / 1001, FLOAT64.ELEMENT),
    )
    assert "p_values" not in first
    command = [sys.executable, "-m", "heedful", *map(str, args), "--hyp", str(tmp_path / "r"), "--json"]
    piped = subprocess.run([*command, "--compare", "-"], input=text(worse), capture_output=True, check=True)
    assert json.loads(piped.stdout)["systems"][1]["bleu"] == second["bleu"]
    # Files alone need no model and no sources, and their scores are the same.
    files = heedful(*args, "--hyp", tmp_path / "worse", "--hyp", tmp_path / "r", "--resamples", 0).out
    assert files.splitlines()[1].split() == [str(tmp_path / "worse"), f"{second['bleu']:.2f}", "0.00"]
    assert files.splitlines()[2].split() == [str(tmp_path / "r"), "100.00", "100.00"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        *(
            (["evaluate", "--ref", "R", *options], named)
            for options, named in (
                ([], "--hyp"),
                (["--hyp", "R", "--metric", "per"], "--src"),
                (["--hyp", "R", "--compare", "RUN"], "RUN"),
                (["--hyp", "R", "--output", "out"], "--output"),
                (["--hyp", "R", "--length-penalty", "1"], "--length-penalty"),
                (["--hyp", "R", "--engine", "native"], "--engine"),
                (["--hyp", "SHORT"], "SHORT"),
                (["--hyp", "R", "--compare", "nowhere"], "nowhere"),
                (["--hyp", "-", "--compare", "/dev/stdin"], "--hyp and --compare"),
                (["--hyp", "R", "--metric", "blue"], "'bleu'"),
            )
        ),
        (["evaluate", "RUN", "--src", "S", "--ref", "SHORT"], "line: 6"),  # before it translates
        (["evaluate", "RUN", "--src", "S", "--ref", "R", "--metric", "blue"], "'bleu'"),
        (["evaluate", "RUN", "--src", "S"], "--ref"),
        (["attention", "RUN", " ", "-o", "a.png"], "empty"),
        (["attention", "RUN", "a", "-o", "a.gif"], ".png"),
        *(
            (["attention", "RUN", "a", "-o", "a.html", option, value], named)
            for option, value, named in (
                ("--layer", "9", "layer 9"),
                ("--attention", "crosss", "'cross'"),
                ("--layer", "0", "'0'"),
                ("--layer", "1,x", "'x'"),
                ("--head", "5", "head 5"),
            )
        ),
    ],
)
def test_what_cannot_be_scored_or_shown_is_refused(
    run: Path, tmp_path: Path, words: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in (("S", SOURCES), ("R", TARGETS), ("SHORT", TARGETS[:-1])):
        Path(name).write_bytes(text(lines))
    Path("RUN").symlink_to(run)
    before = {*tmp_path.iterdir()}
    outcome = heedful(*words)
    assert outcome.code in (1, 2)
    assert named in outcome.err.splitlines()[-1]
    assert "Traceback" not in outcome.err
    assert {*tmp_path.iterdir()} == before


def test_evaluate_has_the_coverage_penalty_of_translate(run: Path, tmp_path: Path) -> None:
    sources = ["the dog sleeps ?", "the dog and the house ?", SOURCES[0]]
    (tmp_path / "s").write_bytes(text(sources))
    penalty = ["--beam-size", 4, "--coverage-penalty", 2]
    wanted = heedful("translate", run, *penalty, stdin=text(sources)).out
    assert wanted != heedful("translate", run, "--beam-size", 4, stdin=text(sources)).out
    args = ["evaluate", run, "--src", tmp_path / "s", "--ref", tmp_path / "s", *penalty]
    assert heedful(*args, "--output", tmp_path / "hyp").code == 0
    assert (tmp_path / "hyp").read_text(encoding="utf-8") == wanted


@pytest.mark.parametrize("ending", ["png", "svg", "html", "json"])
def test_attention_writes_what_the_name_asks_for(run: Path, tmp_path: Path, ending: str) -> None:
    path = tmp_path / "new" / f"map.{ending}"
    outcome = heedful("attention", run, SOURCES[2], "--output", path)
    assert (outcome.code, outcome.out) == (0, f"{TARGETS[2]}\n")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "html": b"<!doctype html>", "json": b'{"source"'}[ending]
    assert path.read_bytes().startswith(start)


def test_attention_explains_a_given_translation(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    heedful("attention", run, SOURCES[2], "--target", TARGETS[0], "--output", path)
    assert json.loads(path.read_text(encoding="utf-8"))["target"] == TARGETS[0]


def test_a_page_of_attention_begins_with_the_chosen_map(run: Path, tmp_path: Path) -> None:
    chosen = ["--attention", "decoder", "--layer", "1", "--head", "3"]
    heedful("attention", run, SOURCES[0], "-o", tmp_path / "a.html", *chosen)
    data = (tmp_path / "a.html").read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0]
    assert json.loads(data)["start"] == {"kind": "decoder", "layer": 1, "head": 2}


def test_inspect_shows_sizes_scores_and_settings(run: Path) -> None:
    found = json.loads(heedful("inspect", run, "--json").out)
    assert found["bundle"]["num_parameters"] == sum(found["bundle"]["parameters"].values())
    assert found["bundle"]["scores"] == {"bleu": 100.0}
    assert found["config"]["model"]["d_model"] == 32
    assert found["run"] is None
    shown = heedful("inspect", run).out
    assert "checksums correct" in shown
    assert "  d_model = 32\n" in shown


def test_inspect_shows_what_the_machine_computes_with(run: Path) -> None:
    found = json.loads(heedful("inspect", "--machine", "--json").out)
    assert found["level"] == native().level
    assert found["levels"] == {level.name: level.why_not for level in native().levels}
    assert found["decoding"] == engine_precisions()
    assert found["training"] in ("float32", "bf16")
    shown = heedful("inspect", "--machine").out
    assert f"native      {'level ' + native().level if native().level else 'none: '}" in shown
    for level in native().levels:
        assert f"  {level.name:<11} " in shown
    for both in ((run, "--machine"), ()):
        assert_one_clear_line(heedful("inspect", *both), 2, "--machine")


def test_inspect_and_plot_show_a_run_that_has_no_bundle_yet(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[model]\nd_model = 64\n")
    (tmp_path / "log.jsonl").write_text('{"event": "start"}\n')
    found = json.loads(heedful("inspect", tmp_path, "--json").out)
    assert (found["bundle"], found["run"]["steps"], found["config"]["model"]["d_model"]) == (None, 0, 64)
    assert_one_clear_line(heedful("plot", tmp_path), 1)
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write('{"event": "step", "step": 7, "loss": 2.0, "nll": 1.5, "seconds": 60}\n')
        log.write('{"event": "validation", "step": 7, "seconds": 61, "nll": 1.0, "perplexity": 2.7}\n')
    assert "steps     7 in 1.0 minutes" in heedful("inspect", tmp_path).out
    assert heedful("plot", tmp_path).out == f"{tmp_path / 'curves.png'}\n"
    assert (tmp_path / "curves.png").is_file()
    assert_one_clear_line(heedful("plot", tmp_path, "-o", "a.pdf"), 1, "a.pdf")
    assert_one_clear_line(heedful("plot", tmp_path, tmp_path / "nowhere"), 1, "nowhere")


def test_plot_compares_runs_by_their_names_or_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ("a/first", "a/second", "b/first"):
        Path(run).mkdir(parents=True)
        Path(run, "log.jsonl").write_text('{"event": "step", "step": 7, "nll": 1.5}\n')
    assert heedful("plot", "a/first", "a/second").out == "curves.png\n"
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    names: dict[tuple[str, ...], list[str]] = {
        ("a/first", "a/second"): ["first", "second"],
        ("a/first", "b/first", "a/first"): ["a/first", "b/first"],
    }
    for runs, shown in names.items():
        assert heedful("plot", *runs, "-o", "c.svg").code == 0
        texts = re.findall(r">([^<]+)</text>", Path("c.svg").read_text(encoding="utf-8"))
        assert [text for text in texts if "first" in text or "second" in text] == shown


def test_a_bundle_without_a_tokenizer_is_shown(tmp_path: Path) -> None:
    model = small_model(tgt_vocab_size=13, tied="target")
    save_model(model, tmp_path / "ids", card="")
    outcome = heedful("inspect", tmp_path / "ids", "--json")
    found = json.loads(outcome.out)["bundle"]
    assert (outcome.code, outcome.err) == (0, "")
    assert found["num_parameters"] == model.num_parameters
    assert (found["src_vocab_size"], found["tgt_vocab_size"], found["joint"]) == (11, 13, None)
    shown = heedful("inspect", tmp_path / "ids").out
    assert "tokens    11 source, 13 target (no tokenizer: the model works on ids)" in shown
    assert "checksums correct" in shown
    assert "  d_model = 8\n" in shown


def test_a_bundle_whose_tokenizer_needs_what_is_not_installed_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_memorised(tmp_path / "bundle")
    wanted = json.loads(heedful("inspect", path, "--json").out)["bundle"]
    assert (wanted["joint"], wanted["no_tokenizer"]) == (True, None)

    def missing(_: Path) -> None:
        raise MissingExtraError("it needs tokenizers: install them")

    monkeypatch.setattr(TokenizerPair, "load", missing)
    outcome = heedful("inspect", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "(it needs tokenizers: install them)" in outcome.out
