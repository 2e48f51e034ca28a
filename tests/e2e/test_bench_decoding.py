import json
import re
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
from ten_pairs import as_options, write_pairs
from tiny_bundle import PAIRS, save_memorised
from tolerances import FLOAT64, close

pytestmark = pytest.mark.by_class


SPEEDS = ("output_tokens_per_second", "sentences_per_second", "median_latency_ms", "p99_latency_ms")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_decoding_is_measured(engine: str, tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    src = tmp_path / "src.txt"
    src.write_text("\n".join([*(source for source, _ in PAIRS), ""]), encoding="utf-8")
    arguments = ["bench", "decode", bundle, "--src", src, "--engine", engine, "--beam-size", 2]
    outcome = heedful(*arguments, "--batch-size", 3, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert all(found[key] > 0 for key in (*SPEEDS, "peak_memory_mib"))
    assert found["median_latency_ms"] <= found["p99_latency_ms"]
    assert (found["sentences"], found["beam_size"], found["batch_size"]) == (6, 2, 3)
    assert engine == "auto" or found["engine"] == "torch"
    shown = heedful(*arguments)
    assert "6 sentences, beam 2, float32" in shown.out


def test_text_without_sentences_is_refused(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    src = tmp_path / "src.txt"
    src.write_text("\n\n", encoding="utf-8")
    outcome = heedful("bench", "decode", bundle, "--src", src)
    assert outcome.code == 1
    assert "no text" in outcome.err


def test_what_auto_has_chosen_is_said(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    src = tmp_path / "src.txt"
    src.write_text("\n".join(source for source, _ in PAIRS), encoding="utf-8")
    measured = heedful("bench", "decode", bundle, "--src", src, "--precision", "auto", "--json")
    assert measured.code == 0, measured.err
    assert json.loads(measured.out)["precision"] in ("float32", "bf16", "int8")
    translated = heedful("translate", bundle, "--input", src, "--precision", "auto")
    assert translated.code == 0, translated.err
    assert translated.out.splitlines() == [target for _, target in PAIRS]
    assert re.fullmatch(r"precision (float32|bf16|int8): the fastest here\n", translated.err)
    scored = heedful("evaluate", bundle, "--src", src, "--ref", src, "--precision", "auto")
    assert re.fullmatch(r"precision (float32|bf16|int8): the fastest here\n", scored.err)
    given = heedful("score", bundle, "--src", src, "--tgt", src, "--precision", "auto")
    assert given.err.startswith("precision ")
    assert not heedful("translate", bundle, "--input", src).err


TINY = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "batch.tokens": 128,
    "train.ema_decay": 0.9,
    "train.precision": "float32",
}
POSITIVE = (
    "num_parameters", "target_tokens_per_second", "seconds_per_step", "model_flops_per_second",
    "matmul_flops_per_second", "share_of_matmul", "peak_memory_mib",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "optimizer"), [(1, "adam"), pytest.param(2, "muon", marks=pytest.mark.slow)]
)
def test_training_on_text_is_measured(processes: int, optimizer: str, tmp_path: Path) -> None:
    settings = TINY | {"train.processes": processes, "optimizer.name": optimizer, "batch.ramp_from": 1}
    arguments = [*write_pairs(tmp_path), *as_options(settings)]
    outcome = heedful("bench", "train", *arguments, "--steps", 3, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    found = json.loads(outcome.out)
    assert all(found[key] > 0.0 for key in POSITIVE)
    assert (found["preset"], found["steps"], found["batch_tokens"]) == ("tiny", 3, 128)
    assert (found["processes"], found["threads"], found["precision"]) == (processes, 1, "float32")
    assert found["batches"] == f"{tmp_path / 'ten.en'} and {tmp_path / 'ten.de'}"
    share = found["model_flops_per_second"] / found["matmul_flops_per_second"]
    assert found["share_of_matmul"] == close(share, FLOAT64.ROW)
    tokens_per_step = found["target_tokens_per_second"] * found["seconds_per_step"]
    assert 1 <= tokens_per_step <= found["batch_tokens"]
    # A token is worth at least the products with its row of each matrix, forward and backward.
    matrices = 4 * 16 * 16 + 2 * 16 * 32 + 200 * 16
    assert found["model_flops_per_second"] > 6 * matrices * found["target_tokens_per_second"]
    assert {path.name for path in tmp_path.iterdir()} == {"ten.en", "ten.de", "cache"}


@pytest.mark.slow
def test_training_on_made_up_text_is_shown_as_a_table() -> None:
    settings = as_options(TINY | {"tokenizer.vocab_size": 300, "train.threads": 1})
    outcome = heedful("bench", "train", "--preset", "tiny", *settings, "--steps", 2)
    assert outcome.code == 0, outcome.err
    first, *others = outcome.out.splitlines()
    encoder, decoder = 4 * (16 * 16 + 16) + 16 * 32 + 32 + 32 * 16 + 16 + 4 * 16, 4 * (16 * 16 + 16) + 2 * 16
    expected = 2 * encoder + decoder + 300 * 16  # the vocabulary is as large as it was to be
    assert first == f"training    tiny: {expected:,} parameters, float32, 1 process of 1 thread"
    labels = ["kernels", "batches", "speed", "matmul", "memory"]
    assert [line[:11].strip() for line in others if line[:11].strip()] == labels
    assert "random sentences" in others[1]


MISTAKES = {
    "no steps": (["--steps", "0"], "--steps", 2),
    "an unknown preset": (["--preset", "smal"], "did you mean 'small'?", 2),
    "one side alone": (["--src", "some.en"], "data.src and data.tgt must both be set", 2),
    "a missing file": (["--src", "none.en", "--tgt", "none.de"], "none.en", 1),
    "sampling of made-up words": (
        ["--set", "tokenizer.sampling=0.1"],
        "tokenizer.sampling needs real text",
        2,
    ),
    "a bundle and no text": (["--set", "train.init=runs/some"], "train.init needs real text", 2),
    "no room for words": (["--set", "tokenizer.vocab_size=3"], "tokenizer.vocab_size=3", 1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_measured_is_one_line(mistake: str) -> None:
    arguments, message, code = MISTAKES[mistake]
    outcome = heedful("bench", "train", *arguments)
    assert_one_clear_line(outcome, code, message)


def test_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = heedful("bench", "train")
    assert outcome.code == 2
    assert "without torchrun" in outcome.err
