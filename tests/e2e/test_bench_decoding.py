import json
import re
from pathlib import Path

import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised

pytestmark = pytest.mark.by_class

SPEEDS = ("output_tokens_per_second", "sentences_per_second", "median_latency_ms", "p99_latency_ms")


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
