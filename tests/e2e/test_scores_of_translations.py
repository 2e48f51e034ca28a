"""What `heedful translate --json` writes has, given to `heedful score`, the scores it was written with."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import heedful
from tiny_bundle import PAIRS, memorised, save_memorised
from tolerances import FLOAT32, close, format_of

from heedful.model.transformer import Transformer
from heedful.settings.options import Precision
from heedful.storage.bundle import save_bundle

SOURCES = [*(src for src, _ in PAIRS), "the dog and the house ?"]
BOTH = "--length-penalty 1 --length-normalization power"  # what both commands are asked for
MODES = {  # of translate alone, of both
    "greedy": ("--beam-size 1", ""),
    "beam": ("--n-best 4", ""),
    "no penalty": ("--n-best 4", "--length-penalty 0"),
    "strong penalty": ("--n-best 4", "--length-penalty 2.5"),
    "average": ("--n-best 4", BOTH),
    "ends early": ("--n-best 3 --early-stopping first", BOTH),
    "groups": ("--n-best 4 --num-groups 2 --diversity-penalty 1.5", ""),
    "samples": ("--sample --temperature 3 --n-best 4 --seed 5", ""),
    "some samples": ("--sample --top-k 9 --top-p 0.9 --min-p 0.01 --epsilon 0.001 --n-best 4", BOTH),
    "minimum Bayes risk": ("--mbr 8 --temperature 2 --n-best 3", ""),
    "cut": ("--n-best 4", "--max-length 4"),
    "short and long": ("--n-best 4", "--min-length 9 --max-length-offset 3"),
    "nothing twice": ("--n-best 4 --repetition-penalty 1.5", "--no-repeat-ngram-size 1"),
    "prefixes": ("--n-best 4", "--prefix PREFIXES"),
    "ensemble": ("--n-best 4", "--ensemble OTHER"),
    "prefixes, ensemble": ("--sample --n-best 3", "--prefix PREFIXES --ensemble OTHER"),
}
COMPUTATIONS: list[tuple[str, Precision]] = [
    ("torch", "float32"), ("torch", "bf16"), ("torch", "fp16"),
    ("native", "float32"), ("native", "bf16"), ("native", "int8"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    save_memorised(folder / "memorised")
    bundle = memorised()
    decode = bundle.config.decode.model_copy(
        update={"renormalize": True, "suppressed_ids": (0, 1, 2, 11, 17), "forced_first_id": 9}
    )
    bound = replace(bundle, config=bundle.config.model_copy(update={"decode": decode}))
    save_bundle(bound, folder / "bound", card="# A model whose search is bound\n")
    torch.manual_seed(3)
    other = Transformer.from_config(bundle.config.model)
    save_bundle(replace(bundle, network=other.eval()), folder / "OTHER", card="# A model of chance\n")
    (folder / "PREFIXES").write_text("der\n\ndie Katze\n\nschläft\n\nder Hund und\n", encoding="utf-8")
    return folder


def assert_scored_as_written(folder: Path, run: str, mode: str, computation: list[str]) -> None:
    alone, both = (
        [str(folder / word) if word.isupper() else word for word in words.split()] for words in MODES[mode]
    )
    stdin = "".join(line + "\n" for line in SOURCES).encode()
    outcome = heedful("translate", folder / run, *alone, *both, *computation, "--json", stdin=stdin)
    assert outcome.code == 0, outcome.err
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    prefixes = (folder / "PREFIXES").read_text(encoding="utf-8").splitlines()
    rows = [
        (line["source"], prefix, found)
        for line, prefix in zip(lines, prefixes, strict=True)
        for found in line["hypotheses"]
    ]
    (folder / "s").write_text("".join(f"{src}\n" for src, _, _ in rows), encoding="utf-8")
    (folder / "p").write_text("".join(f"{prefix}\n" for _, prefix, _ in rows), encoding="utf-8")
    (folder / "t").write_text("".join(f"{' '.join(map(str, each['ids']))}\n" for _, _, each in rows))
    both = [str(folder / "p") if word == str(folder / "PREFIXES") else word for word in both]
    files = ["--src", folder / "s", "--tgt", folder / "t", "--tgt-ids"]
    outcome = heedful("score", folder / run, *files, *both, *computation, "--json")
    assert outcome.code == 0, outcome.err
    scored = [json.loads(line) for line in outcome.out.splitlines()]
    assert len(scored) == len(rows) >= len(SOURCES)
    # The engine rounds a row as ever; torch's products are rounded otherwise in a batch of another shape.
    bound = (format_of(computation[3]) if computation[1] == "torch" else FLOAT32).SENTENCE
    for one, (source, _, found) in zip(scored, rows, strict=True):
        assert (one["source"], one["target"]) == (source, found["text"])
        assert one["log_prob"] == close(found["log_prob"], bound)
        if mode != "minimum Bayes risk":  # whose scores are likenesses
            assert one["score"] == close(found["score"], bound)
        if run == "memorised":
            assert one["model_log_prob"] == close(one["log_prob"], FLOAT32.SENTENCE)
        else:
            assert one["tokens"][0]["log_prob"] == 0.0 > one["tokens"][0]["model_log_prob"]


# Every mode is searched by torch and by the engine, every computation with either model; a third are quick.
CASES = [
    pytest.param(mode, run, *COMPUTATIONS[(i + shift) % 6], marks=[] if i % 3 == which else pytest.mark.slow)
    for i, mode in enumerate(MODES)
    for which, (run, shift) in enumerate((("memorised", 0), ("bound", 1), ("memorised", 3)))
]


@pytest.mark.parametrize(("mode", "run", "engine", "precision"), CASES)
def test_a_hypothesis_has_the_score_that_the_search_gave_it(
    folder: Path,
    mode: str,
    run: str,
    engine: str,
    precision: Precision,
    use_engine: Callable[[Precision], None],
) -> None:
    if engine == "native":
        use_engine(precision)
    assert_scored_as_written(folder, run, mode, ["--engine", engine, "--precision", precision])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("5 x 2\n", "t: line 1: not ids between spaces"),
        ("5 999999 2\n", "target line 1"),
        ("5 -1\n", "target line 1"),
        ("\n", "target line 1"),
        ("5 3 5 3\n", "target line 1"),
    ],
)
def test_ids_that_no_output_has_are_refused(folder: Path, ids: str, message: str) -> None:
    (folder / "s").write_text("the dog\n")
    (folder / "t").write_text(ids)
    outcome = heedful(
        "score", folder / "memorised", "--src", folder / "s", "--tgt", folder / "t", "--tgt-ids"
    )
    assert (outcome.code, outcome.out) == (1, "")
    assert message in outcome.err


@pytest.mark.parametrize(
    ("prefixes", "message"), [("a\n", "line 2: has no prefix"), ("\n\n\n", "has more lines")]
)
def test_each_pair_has_one_prefix(folder: Path, prefixes: str, message: str) -> None:
    (folder / "s").write_text("the dog\nthe cat\n")
    (folder / "p").write_text(prefixes)
    files = ["--src", folder / "s", "--tgt", folder / "s", "--prefix", folder / "p"]
    outcome = heedful("score", folder / "memorised", *files)
    assert outcome.code == 1
    assert message in outcome.err
