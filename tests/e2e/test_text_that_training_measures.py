"""Validation covers every pair; train, prepare and inspect say what a tokenizer rewrites."""

import json
import math
from pathlib import Path

import pytest
from command_line import heedful, text
from ten_pairs import ENGLISH, GERMAN, as_options
from tolerances import FLOAT32, close

TINY: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "data.cache_dir": "cache",
    "tokenizer.vocab_size": 150,
    "train.max_steps": 2,
    "train.threads": 1,
    "train.processes": 1,
    "train.precision": "float32",
    "train.ema_decay": 0.0,
    "valid.every_steps": 2,
    "valid.decode_sentences": 3,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with text; two of the validation pairs are long."""
    monkeypatch.chdir(tmp_path)
    long = [" ".join(lines) for lines in (ENGLISH[:6], ENGLISH[2:9])]
    in_german = [" ".join(lines) for lines in (GERMAN[:6], GERMAN[2:9])]
    for name, lines in {
        "t.en": ENGLISH[:8],
        "t.de": [f"{line} (10 m²)" for line in GERMAN[:8]],
        "v.en": [*ENGLISH[8:], *long],
        "v.de": [*GERMAN[8:], *in_german],
    }.items():
        Path(name).write_bytes(text([*lines]))
    return tmp_path


def train(output: str, **settings: object) -> str:
    changed = TINY | {key.replace("__", "."): value for key, value in settings.items()}
    files = ["--src", "t.en", "--tgt", "t.de", "--valid-src", "v.en", "--valid-tgt", "v.de"]
    outcome = heedful("train", "--preset", "tiny", *files, *as_options(changed), "--output", output)
    assert outcome.code == 0, outcome.err
    return outcome.err


def perplexity(run: str) -> float:
    events = map(json.loads, Path(run, "log.jsonl").read_text(encoding="utf-8").splitlines())
    [value] = [event["perplexity"] for event in events if event["event"] == "validation"]
    return float(value)


def test_validation_covers_pairs_that_are_longer_than_those_of_training(folder: Path) -> None:
    """Its perplexity is that of `heedful score`; BLEU is of the same pairs."""
    err = train("run", data__max_length=60)
    outcome = heedful("score", "run/last", "--src", "v.en", "--tgt", "v.de", "--json")
    scored = [json.loads(line) for line in outcome.out.splitlines()]
    tokens = [token["log_prob"] for pair in scored for token in pair["tokens"]]
    assert len(scored) == 4
    # A relative error of the perplexity is an absolute one of the mean log-probability.
    wanted = math.exp(-sum(tokens) / len(tokens))
    assert perplexity("run") == close(wanted, FLOAT32.MODEL.at(wanted))
    assert "left out" not in err.split("training a")[1]


def test_a_limit_of_positions_leaves_pairs_out_and_says_how_many(folder: Path) -> None:
    err = train("run", data__max_length=60, model__positions="learned", model__max_positions=60)
    [line] = [
        line for line in err.splitlines() if line.startswith("warning: ") and "validation pairs" in line
    ]
    assert "2 of 4" in line
    assert "not validated" not in err  # a source that is too long is translated in segments


@pytest.mark.parametrize("verb", ["train", "prepare", "inspect"])
def test_what_a_setting_rewrites_is_said_in_one_line(folder: Path, verb: str) -> None:
    settings = as_options({key: TINY[key] for key in ("tokenizer.vocab_size", "data.cache_dir")})
    rules = as_options({"tokenizer.normalization": "nmt_nfkc"})
    if verb == "inspect":
        [line] = [line for line in heedful("inspect", "t.en", "t.de").out.splitlines() if "nmt_nfkc" in line]
        inspected = json.loads(heedful("inspect", "t.en", "t.de", "--json").out)["rewritten"]
        assert inspected == {"num_lines": 8, "num_changed": 8, "characters": ["²"]}
        assert "nmt_nfkc" not in heedful("inspect", "t.en", "t.en").out
    elif verb == "prepare":
        files = ["--src", "t.en", "--tgt", "t.de"]
        rewritten = heedful("prepare", *files, *settings, *rules, "--output", "ids").err
        [line] = [each for each in rewritten.splitlines() if "nmt_nfkc" in each or "identity" in each]
        assert "%" not in heedful("prepare", *files, *settings, "--output", "as-it-is").err
    else:
        [line] = [
            each
            for each in train("run", tokenizer__normalization="nmt_nfkc").splitlines()
            if "identity" in each
        ]
        assert "tokenizer rewrites" not in train("as-it-is")
    assert "100.00%" in line
    assert "²" in line
