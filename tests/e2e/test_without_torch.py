"""Translating, scoring and evaluating need no torch: the commands run where it cannot be imported."""

import inspect
import itertools
import json
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from hub_client import environment
from hub_server import hub_server
from tiny_bundle import PAIRS, memorised, save_memorised
from typer.models import OptionInfo

import heedful
from heedful.cli.main import commands
from heedful.cli.options import command_of
from heedful.errors import install_hint
from heedful.model.transformer import Transformer
from heedful.runtime.native import native
from heedful.storage.bundle import save_bundle

SUPPORT = Path(__file__).resolve().parent.parent / "support"

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


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--precision", "int8", "--n-best", "4", "--num-groups", "2", "--diversity-penalty", "0.3"],
        ["--sample", "--seed", "3", "--top-k", "5", "--top-p", "0.9"],
        ["--coverage-penalty", "0.2", "--replace-unknown", "--no-repeat-ngram-size", "2"],
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


@pytest.mark.slow
def test_an_ensemble_translates(bundle: Path, no_torch: Path) -> None:
    done = run(no_torch, "translate", str(bundle), "--ensemble", str(bundle), text="the cat sleeps .\n")
    assert (done.returncode, done.stdout) == (0, "die Katze schläft .\n"), done.stderr


@pytest.mark.slow
def test_scores_and_an_evaluation(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    src.write_text("".join(f"{source}\n" for source, _ in PAIRS), encoding="utf-8")
    tgt.write_text("".join(f"{target}\n" for _, target in PAIRS), encoding="utf-8")
    scored = run(no_torch, "score", str(bundle), "--src", str(src), "--tgt", str(tgt))
    assert (scored.returncode, len(scored.stdout.splitlines())) == (0, len(PAIRS)), scored.stderr
    evaluated = run(no_torch, "evaluate", str(bundle), "--src", str(src), "--ref", str(tgt))
    assert evaluated.returncode == 0, evaluated.stderr
    assert evaluated.stdout.startswith("bleu 100.00 ")


@pytest.mark.slow
def test_a_bundle_is_pushed(bundle: Path, no_torch: Path, tmp_path: Path) -> None:
    with hub_server() as hub:
        done = run(no_torch, "push", str(bundle), "ann/model", **environment(hub, tmp_path))
    assert done.returncode == 0, done.stderr
    assert hub.files("ann/model").keys() >= {path.name for path in bundle.iterdir()}


MEMORY = (
    '<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>the cat sleeps .</seg></tuv>'
    '<tuv xml:lang="de"><seg>der Kater schläft .</seg></tuv></tu></body></tmx>'
)
# What the verbs are called with, besides the option in question; capitals are files.
CALLS = {
    "translate": ["BUNDLE"],
    "evaluate": ["BUNDLE", "--src", "SRC", "--ref", "TGT"],
    "verify": ["BUNDLE", "--write"],
    "score": ["BUNDLE", "--src", "SRC", "--tgt", "TGT"],
    "align": ["BUNDLE", "--src", "SRC", "--tgt", "TGT"],
    "shortlist": ["BUNDLE", "--src", "SRC", "--tgt", "TGT", "--output", "NEW"],
    "inspect": ["SRC", "TGT"],
    "pairs": ["DOCUMENT.txt", "DOCUMENT.txt", "--output", "NEW"],
    "plot": ["RUN"],
    "attention": ["BUNDLE", "the cat sleeps .", "--output", "NEW.json"],
    "push": ["BUNDLE", "ann/model"],
    "prepare": ["--pairs", "PAIRS.tsv", "--set", "tokenizer.kind=char", "--output", "NEW"],
    "serve": ["--keys", "NEW", "--make-key", "ann"],  # the service itself: test_served_models.py
}
NEED_TORCH = {
    "train", "adapt", "distill", "back-translate", "demo", "average", "import", "export",
    "draw heads",
}  # fmt: skip
# The value of an option, by its name in the program, and the options that it needs. Flags have none.
VALUES = {
    "source": "SRC", "src": "SRC", "tgt": "TGT", "ref": "TGT", "prefix": "EMPTY", "check": "SRC",
    "hyp": "TGT", "compare": "BUNDLE", "resamples": "10", "column": "en", "on": "ray",
    "output": "NEW", "fix": "NEW", "shortlist": "SHORTLIST", "ensemble": "BUNDLE", "keys": "NEW",
    "make_key": "bob", "revoke_key": "bob", "plugin": "PLUGIN.py", "shared": "redis://127.0.0.1:1/0",
    "glossary": "TERMS.tsv",
    "glossary_report": "NEW", "glossaries": "NEW", "memory": "MEMORY.tmx",
    "to_tmx": "NEW",
    "document": "DOCUMENT.txt", "target": "die Katze schläft .", "kind": "all", "head": "mean",
    "n_best": "2", "metric": "bleu,wer,item_error_rate,per", "layer": "1", "candidates": "5", "frequent": "5",
    "pairs": "3", "beam_size": "2", "length_penalty": "1", "length_normalization": "power",
    "coverage_penalty": "0.2", "max_length_offset": "9", "max_length_ratio": "2",
    "tokenize": "char", "max_length": "30", "min_length": "2",
    "max_source_tokens": "50", "no_repeat_ngram_size": "2",
    "encoder_no_repeat_ngram_size": "2", "early_stopping": "first", "num_groups": "2",
    "diversity_penalty": "0.3", "repetition_penalty": "1.1", "strategy": "sampling", "temperature": "0.9",
    "top_k": "3", "top_p": "0.9", "min_p": "0.1", "epsilon": "0.01", "seed": "3", "samples": "3",
    "batch_tokens": "100", "batch_size": "2", "threads": "1", "precision": "int8", "engine": "native",
    "device": "cpu", "examples": "1", "keep": "empty", "remove": "empty", "src_key": "src", "tgt_key": "tgt",
    "revision": "new", "message": "A bundle", "host": "127.0.0.1", "port": "0", "workers": "1", "cors": "*",
    "trust_proxy": "10.0.0.1", "characters": "10", "texts": "2", "alternatives": "2",
    "waiting_characters": "10000", "seconds": "2", "requests_per_minute": "9",
    "document_bytes": "100", "document_characters": "100", "documents": "3", "document_seconds": "9",
    "replicas": "2", "max_replicas": "3", "models_per_replica": "1", "preset": "tiny",
    "settings": "data.max_length=50",
    "flag": "10%", "valid": "NEW.txt", "test": "NEW.txt", "left_out": "NEW.txt", "held_out": "0.2",
    "min_confidence": "0.6", "bridge": "BUNDLE", "memories": "DIRECTORY",
    "markup": "html", "through": "BUNDLE",
}  # fmt: skip
NEEDED = {
    **{name: ["--sample"] for name in ("temperature", "top_k", "top_p", "min_p", "epsilon", "seed")},
    **{f"{part}_src": [f"--{part}-tgt", "TGT"] for part in ("valid", "test")},
    **{f"{part}_tgt": [f"--{part}-src", "SRC"] for part in ("valid", "test")},
    "keep": ["--fix", "NEW"], "remove": ["--fix", "NEW"], "resume": ["--output", "NEW"],
    "glossary_report": ["--glossary", "TERMS.tsv"],
    "document": ["--output", "NEW.txt"],
}  # fmt: skip
VALUES |= {f"{part}_src": "SRC" for part in ("valid", "test")}
VALUES |= {f"{part}_tgt": "TGT" for part in ("valid", "test")}
VALUES |= {f"{part}_pairs": "PAIRS.tsv" for part in ("valid", "test")}
# This model has one language each, the file of keys no "bob"; --machine takes no text, ids are no text, and
# a GPU is not needed.
REFUSED = {
    ("translate", "src_lang"), ("translate", "tgt_lang"), ("evaluate", "src_lang"),
    ("attention", "src_lang"), ("attention", "tgt_lang"),
    ("score", "src_lang"), ("score", "tgt_lang"), ("align", "src_lang"), ("align", "tgt_lang"),
    ("score", "tgt_ids"),
    ("inspect", "machine"), ("push", "private"), ("translate", "on"),
    ("translate", "column"), ("serve", "shared"), ("serve", "revoke_key"),
    ("prepare", "src"), ("prepare", "tgt"),
    ("score", "flag"), ("evaluate", "calibrate"),  # it is not calibrated, and six lines are too few
}  # fmt: skip


def options_of_verb(verb: str) -> dict[str, list[str]]:
    """Return each option of a command by its name: the flag, and a value unless it is one itself."""
    options = {}
    for name, parameter in inspect.signature(command_of(commands()[verb])).parameters.items():
        kind, info = get_args(parameter.annotation)[:2]
        if isinstance(info, OptionInfo):
            value = [] if kind is bool else [VALUES.get(name, "eng_Latn" if name.endswith("_lang") else "?")]
            value = ["en"] if (verb, name) == ("inspect", "src_lang") else value
            value = ["de"] if (verb, name) == ("inspect", "tgt_lang") else value
            value = ["NEW.png"] if (verb, name) == ("plot", "output") else value
            value = ["PAIRS.tsv"] if (verb, name) == ("prepare", "pairs") else value
            value = ["NEW.json"] if (verb, name) == ("attention", "output") else value
            options[name] = [str(info.default), *value, *NEEDED.get(name, [])]
    return options


def test_every_verb_is_either_run_without_torch_or_needs_it() -> None:
    assert CALLS.keys() | NEED_TORCH == commands().keys()
    assert not CALLS.keys() & NEED_TORCH


@pytest.mark.parametrize("verb", CALLS)
@pytest.mark.slow
def test_every_option_of_a_verb_that_trains_nothing_works(
    verb: str, bundle: Path, no_torch: Path, tmp_path: Path
) -> None:
    src, tgt = ("".join(f"{line}\n" for line in lines) for lines in zip(*PAIRS, strict=True))
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    event = {"event": "step", "step": 1, "seconds": 1.0, "loss": 2.0, "learning_rate": 0.1}
    files = {
        "SRC": src, "TGT": tgt, "EMPTY": "\n" * len(PAIRS), "TERMS.tsv": "cat\tKater\n",
        "run/log.jsonl": json.dumps(event) + "\n",
        "MEMORY.tmx": MEMORY, "PLUGIN.py": "",
        "DOCUMENT.txt": src, "PAIRS.tsv": "".join(f"{source}\t{target}\n" for source, target in PAIRS),
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    numbers = itertools.count()

    def filled(words: list[str]) -> list[str]:
        names = {name: str(tmp_path / name) for name in [*files, "SHORTLIST"]}
        names |= {
            "BUNDLE": str(bundle),
            "RUN": str(run_directory),
            "NEW": str(tmp_path / f"new-{next(numbers)}"),
        }
        names |= {f"NEW.{suffix}": f"{names['NEW']}.{suffix}" for suffix in ("json", "png", "txt")}
        return [names.get(word, word) for word in words]

    options = options_of_verb(verb)
    assert not [name for name, words in options.items() if "?" in words], "give these a value in VALUES"
    calls = [["shortlist", *CALLS["shortlist"][:-1], "SHORTLIST"]]
    calls += [[*verb.split(), *CALLS[verb], *words] for words in ([], *options.values())]
    commands_to_run = [(filled(words), src) for words in calls]
    hub = hub_server() if verb == "push" else nullcontext()
    with hub as server:
        done = subprocess.run(
            [sys.executable, "-S", str(SUPPORT / "run_commands.py")],
            input=json.dumps(commands_to_run), capture_output=True, text=True, check=False, timeout=250,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, (Path(heedful.__file__).parent.parent, no_torch))),
                **(environment(server, tmp_path) if server else {}),
            },
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, (code, _, err), (words, _) in zip(
        ["to learn a shortlist", "no option", *options], json.loads(done.stdout), commands_to_run, strict=True
    ):
        assert "torch" not in err.replace("no-torch", ""), (words, err)
        assert (code == 0) == ((verb, name) not in REFUSED), (words, err)


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


@pytest.mark.representatives(1)
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
