"""Translating, scoring and evaluating need no torch: the commands run where it cannot be imported."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hub_client import environment
from hub_server import hub_server
from tiny_bundle import PAIRS, memorised, save_memorised

import heedful
from heedful.errors import install_hint
from heedful.model.transformer import Transformer
from heedful.runtime.native import native
from heedful.storage.model_files import save_bundle

if native().level is None:
    pytest.skip(native().describe(), allow_module_level=True)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("bundle") / "memorised")


@pytest.fixture(scope="module")
def no_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that is installed here but torch."""
    folder = tmp_path_factory.mktemp("no-torch")
    for each in Path(torch.__file__).parent.parent.iterdir():
        if not each.name.startswith(("torch", "functorch")):
            (folder / each.name).symlink_to(each)
    return folder


def run(
    installed: Path | None, *arguments: str, text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command where only a folder is installed; None: as everywhere."""
    folders = [Path(heedful.__file__).parent.parent, *([installed] if installed else [])]
    return subprocess.run(
        [sys.executable, *(["-S"] if installed else []), "-m", "heedful", *arguments],
        input=text, capture_output=True, text=True, check=False, timeout=100,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--beam-size", "1"],
        ["--precision", "int8"],
        ["--n-best", "4", "--num-groups", "2", "--diversity-penalty", "0.3"],
        ["--sample", "--seed", "3", "--top-k", "5", "--top-p", "0.9"],
        ["--repetition-penalty", "1.1", "--no-repeat-ngram-size", "2", "--min-length", "3"],
        ["--coverage-penalty", "0.2", "--replace-unknown"],
        ["--precision", "auto", "--threads", "2"],
    ],
)
def test_translations_are_those_with_torch(bundle: Path, no_torch: Path, options: list[str]) -> None:
    text = "".join(f"{source}\n" for source, _ in PAIRS)
    arguments = ["translate", str(bundle), *options]
    without = run(no_torch, *arguments, text=text)
    assert without.returncode == 0, without.stderr
    if "auto" not in options:  # there, torch is another choice
        installed = run(None, *arguments, text=text)
        assert without.stdout == installed.stdout
    assert without.stdout


def test_an_ensemble_translates(bundle: Path, no_torch: Path) -> None:
    done = run(no_torch, "translate", str(bundle), "--ensemble", str(bundle), text="the cat sleeps .\n")
    assert (done.returncode, done.stdout) == (0, "die Katze schläft .\n"), done.stderr


def test_scores_and_an_evaluation(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_text("".join(f"{source}\n" for source, _ in PAIRS), encoding="utf-8")
    tgt.write_text("".join(f"{target}\n" for _, target in PAIRS), encoding="utf-8")
    scored = run(no_torch, "score", str(bundle), "--src", str(src), "--tgt", str(tgt))
    assert (scored.returncode, len(scored.stdout.splitlines())) == (0, len(PAIRS)), scored.stderr
    evaluated = run(no_torch, "evaluate", str(bundle), "--src", str(src), "--ref", str(tgt))
    assert evaluated.returncode == 0, evaluated.stderr
    assert evaluated.stdout.startswith("bleu 100.00 ")


def test_an_alignment(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    for name, texts in zip(("src", "tgt"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    arguments = ["align", str(bundle), "--src", str(tmp_path / "src"), "--tgt", str(tmp_path / "tgt")]
    without, installed = run(no_torch, *arguments), run(None, *arguments)
    assert without.returncode == 0, without.stderr
    assert without.stdout == installed.stdout
    assert len(without.stdout.splitlines()) == len(PAIRS)


def test_a_shortlist_is_learned_checked_and_used(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    for name, texts in zip(("src", "tgt"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    files = [f"--{name}={tmp_path / name}" for name in ("src", "tgt")]
    shortlist = str(tmp_path / "short")
    learned = run(no_torch, "shortlist", str(bundle), *files, f"--check={tmp_path / 'src'}", "-o", shortlist)
    assert learned.returncode == 0, learned.stderr
    assert "outside   0 of" in learned.stdout
    text = (tmp_path / "src").read_text(encoding="utf-8")
    done = run(no_torch, "translate", str(bundle), "--shortlist", shortlist, text=text)
    assert (done.returncode, done.stdout) == (0, (tmp_path / "tgt").read_text(encoding="utf-8")), done.stderr


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_bundle_is_inspected(bundle: Path, no_torch: Path, options: list[str]) -> None:
    without, installed = (run(each, "inspect", str(bundle), *options) for each in (no_torch, None))
    assert without.returncode == 0, without.stderr
    assert without.stdout == installed.stdout
    number = memorised().model.num_parameters
    assert (f'"num_parameters": {number},' if options else f"{number:,} parameters") in without.stdout


def test_the_machine_is_inspected(no_torch: Path) -> None:
    without, installed = (
        json.loads(run(each, "inspect", "--machine", "--json").stdout) for each in (no_torch, None)
    )
    differing = {name for name in without if without[name] != installed[name]}
    assert without["torch"] is None and "torch" in differing <= {"torch", "training", "gpus"}
    shown = run(no_torch, "inspect", "--machine")
    assert (shown.returncode, "torch       not installed" in shown.stdout) == (0, True), shown.stderr
    assert f"training  none: {install_hint('torch')}" in shown.stdout


def test_a_bundle_is_pushed(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    with hub_server() as hub:
        done = run(no_torch, "push", str(bundle), "ann/model", **environment(hub, tmp_path))
    assert done.returncode == 0, done.stderr
    assert hub.files("ann/model").keys() >= {path.name for path in bundle.iterdir()}


@pytest.fixture(scope="module")
def other_shape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that the native engine does not support."""
    bundle = memorised()
    sizes = bundle.config.model.replace(positions="alibi")
    path = tmp_path_factory.mktemp("other") / "alibi"
    config = bundle.config.replace(model=sizes.model_dump())
    model = Transformer.from_config(sizes).eval()
    save_bundle(replace(bundle, config=config, network=model), path, card="# Another shape\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["translate", "BUNDLE", "--engine", "torch"], "engine='torch'"),
        (["translate", "BUNDLE", "--device", "cuda"], "device='cuda'"),
        (["translate", "OTHER", "--precision", "auto"], "precision='auto': model.positions=alibi"),
        (["translate", "OTHER"], "model.positions=alibi"),
        (["train", "--src", "a", "--tgt", "b", "--output", "c"], "this command"),
    ],
)
def test_what_needs_torch_says_so_in_one_line(
    bundle: Path, other_shape: Path, no_torch: Path, arguments: list[str], names: str
) -> None:
    paths = {"BUNDLE": str(bundle), "OTHER": str(other_shape)}
    done = run(no_torch, *[paths.get(each, each) for each in arguments], text="a\n")
    assert done.returncode == 1
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"error: {names}")
    assert install_hint("torch") in line
