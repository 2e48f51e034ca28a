"""What CONTRIBUTING.md shows works: each difference is applied to a copy of the source, and used."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from surveyed import survey_of
from tiny_bundle import PAIRS, memorised, save_memorised

from heedful import load_model
from heedful.data.cleaning import registry
from heedful.data.cleaning.pair import Pair

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OPTION, STRATEGY, BACKEND, METRIC, LAYOUT, DIALECT = re.findall(r"```diff\n(.*?)```", TEXT, flags=re.DOTALL)
[FILTER] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
SENTENCE, TRANSLATION = PAIRS[0]


def apply(difference: str, root: Path) -> list[Path]:
    """Apply a unified diff, each hunk where its lines stand, and once; return the files that it touches."""
    touched = []
    for part in re.split(r"^--- ", difference, flags=re.MULTILINE)[1:]:
        old, new, hunks = part.split("\n", 2)
        path = root / new.removeprefix("+++ b/")
        assert path.exists() == (old != "/dev/null"), f"{path}: not as {old} says"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for hunk in re.split(r"^@@.*\n", hunks, flags=re.MULTILINE)[1:]:
            lines = [(line[:1] or " ", line[1:] + "\n") for line in hunk.splitlines()]
            before, after = ("".join(line for sign, line in lines if sign != other) for other in "+-")
            assert before == text == "" or text.count(before) == 1, f"{path}: not there once:\n{before}"
            text = text.replace(before, after) if before else after
        path.write_text(text, encoding="utf-8")
        touched.append(path.relative_to(root / "src" / "heedful"))
    return touched


class Checkout:
    """A copy of the source; commands run with it, and with nothing of the source that is installed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(ROOT / "src" / "heedful", root / "src" / "heedful")

    def run(self, *arguments: object, stdin: str = f"{SENTENCE}\n") -> str:
        folders = [self.root / "src", ROOT / "tests" / "support", Path(torch.__file__).parent.parent]
        done = subprocess.run(
            [sys.executable, "-S", *map(str, arguments)],
            input=stdin, capture_output=True, text=True, check=False, cwd=self.root, timeout=250,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "checkout")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("bundle") / "memorised")


def test_an_option_of_beam_search(checkout: Checkout, bundle: Path) -> None:
    assert len(apply(OPTION, checkout.root)) == 1
    assert "--prune <float range>" in checkout.run("-m", "heedful", "translate", "--help")
    translate = ["-m", "heedful", "translate", bundle, "--n-best", 4]
    every, some = (checkout.run(*translate, *more).splitlines() for more in ([], ["--prune", 0]))
    assert some[0] == every[0]
    assert len(some) < len(every) == 4


def test_a_search_strategy(checkout: Checkout, bundle: Path) -> None:
    assert len(apply(STRATEGY, checkout.root)) == 1
    translate = ["-m", "heedful", "translate", bundle, "--strategy", "best-of-both:alpha=1"]
    assert checkout.run(*translate) == f"{TRANSLATION}\n"


def test_a_backend(checkout: Checkout, bundle: Path) -> None:
    assert len(apply(BACKEND, checkout.root)) == 1
    code = (
        "from heedful import Translator, load_bundle\n"
        "from heedful.decoding.backends.copying import CopyBackend\n"
        f"bundle = load_bundle({str(bundle)!r})\n"
        "backend = CopyBackend(bundle.tokenizers.tgt.vocab_size)\n"
        f"print(*Translator(bundle, engine=backend).translate([{SENTENCE!r}]))"
    )
    assert checkout.run("-c", code) == f"{SENTENCE}\n"


def test_a_metric(checkout: Checkout, bundle: Path) -> None:
    assert len(apply(METRIC, checkout.root)) == 1
    for name, lines in (("one", [SENTENCE] * 2), ("two", [TRANSLATION, "other words"])):
        (checkout.root / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    evaluate = ["-m", "heedful", "evaluate", bundle, "--src", "one", "--ref", "two"]
    assert '"same_length": 50.0' in checkout.run(*evaluate, "--metric", "same_length", "--json")


@pytest.mark.slow
def test_a_layout_of_weights(checkout: Checkout) -> None:
    touched = apply(LAYOUT, checkout.root)
    assert (len(touched), {path.parent for path in touched}) == (2, {Path("interop")})
    weights = memorised().model.state_dict()
    theirs = {name.replace(".", "/"): tensor for name, tensor in weights.items()}
    torch.save(theirs, checkout.root / "theirs.pt")
    options = ["--layout", "slashes", "--set", "model.num_heads=4", "--output", "ours"]
    checkout.run("-m", "heedful", "import", "theirs.pt", *options)
    ours = load_model(checkout.root / "ours").state_dict()
    assert ours.keys() == weights.keys()
    assert all(torch.equal(ours[name], weights[name]) for name in ours)


@pytest.mark.slow
def test_a_dialect_of_the_service(checkout: Checkout) -> None:
    assert len(apply(DIALECT, checkout.root)) == 1
    code = (
        "from urllib.request import urlopen\n"
        "from running_services import running\n"
        "with running() as server:\n"
        "    print(urlopen(f'{server.url}/plain?q=hello&source=en&target=de').read().decode())"
    )
    assert checkout.run("-c", code) == "HELLO\n"


def test_a_filter_of_parallel_text() -> None:
    names: dict[str, Any] = {}
    exec(FILTER, names)
    shown = SimpleNamespace(**names)
    shouting, added = shown.shouting, shown.SHOUTING
    assert (added.name, added.finds, added.removes) == ("shouting", "A side has only capital letters.", False)
    assert [shouting(Pair(src, "so")) for src in ("HELP ME", "Help me")] == [True, False]
    checker = registry.PairChecker(survey_of([("HELP ME", "so")]), filters=(*registry.FILTERS, added))
    assert "shouting" in checker.faults(Pair("HELP ME", "so"))


@pytest.mark.parametrize(
    "difference",
    ["--- a/x\n+++ b/src/heedful/x\n@@\n b\n+c\n", "--- /dev/null\n+++ b/src/heedful/y\n@@\n+c\n"],
)
def test_a_difference_to_other_lines_is_refused(tmp_path: Path, difference: str) -> None:
    (tmp_path / "src" / "heedful").mkdir(parents=True)
    for name in ("x", "y"):
        (tmp_path / "src" / "heedful" / name).write_text("a\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="not "):
        apply(difference, tmp_path)
