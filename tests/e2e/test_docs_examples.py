"""What the pages of docs/ show is run here as it stands there: their commands on little text, their Python.

What is about the demo's model is run on that model, in a test that takes minutes; on a model of another kind
serving.md has a test of its own, as has pictures.md, annotated-paper.md is executed as the site is
built (tests/tools). The pages of what was measured, and of what was decided, are a record.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pretrained_models import FAMILIES
from published_systems import Lecture
from shown_commands import ROOT, SHORT, SMALL_VOCABULARY, Runner, blocks
from ten_pairs import write_sides
from tiny_bundle import save_memorised
from translation_server import translation_server

from heedful.data.phrasebook import phrase_book
from heedful.verbs import demo

OF_OTHER_TESTS = {"docs/quickstart.md", "docs/serving.md", "docs/pictures.md"}
RECORDS = ("docs/log.md", "docs/results.md", "docs/results/", "docs/decisions/")


def phrases() -> None:
    """Write my.en and my.de, which have something to remove."""
    pairs = [*phrase_book().train[:400], ("", "leer"), *phrase_book().train[:3]]
    for side, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        Path(f"my.{side}").write_text("\n".join([*lines, ""]), encoding="utf-8")


def published() -> None:
    """Write a small MarianMT where a model of the hub would be downloaded from, and text."""
    FAMILIES["marian"].save(Path("Helsinki-NLP/opus-mt-en-de"))
    shutil.copytree(ROOT / "recipes", "recipes")
    write_sides(train=10, valid=3, test=3, general=4)


def exchanged() -> None:
    FAMILIES["marian"].save(Path("DIR_OR_HUB_ID"))


def checked() -> None:
    write_sides(train=10, valid=3, test=3)


def lecture() -> None:
    torch.manual_seed(1)
    model = Lecture(17, 19, 16, 8, 2, expansion=4, max_length=11, shared=False)
    torch.save(model.state_dict(), "model.pt")


# What stands in the directory before the commands of a page are run, and which verbs they must have.
PAGES: dict[str, tuple[Callable[[], None], set[str]]] = {
    "docs/translator-in-an-afternoon.md": (phrases, {"inspect", "train", "evaluate", "score", "shortlist"}),
    "docs/adapt-a-published-one.md": (published, {"import", "train", "evaluate", "export"}),
    "docs/corpus.md": (checked, {"inspect"}),
    "docs/interop.md": (exchanged, {"import", "export"}),
    "docs/systems.md": (lecture, {"import"}),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare, verbs = PAGES[page]
    prepare()
    ids = {"src": torch.tensor([[3, 4, 5]]), "tgt_in": torch.tensor([[1, 6]])}
    training = SHORT if "import" in verbs else SHORT + SMALL_VOCABULARY
    runner = Runner(added={"train": training}, names=ids)
    runner.run(page)
    assert verbs <= set(runner.verbs)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_what_is_shown_of_the_demos_model_is_what_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickstart trains it, the server answers with it, and the README's Python translates."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_FOUR_MINUTES", 3000.0)  # so that a slow machine takes all of the steps, too
    runner = Runner()
    runner.run("docs/quickstart.md")
    assert {"demo", "translate", "attention", "plot", "inspect"} <= set(runner.verbs)
    with translation_server("en-de=runs/demo") as server:
        runner.server = server.url.split("/")[2]
        runner.run("docs/serving.md")
        for command in re.findall(r"^ +(curl .*)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE):
            runner.compare('{"translatedText": "Das Haus ist klein.", ...}', runner.run_command(command))
    for language, text in blocks("README.md"):
        if language == "python":
            runner.run_python(text, "README.md")
    assert len(runner.answers) >= 12


def test_every_page_with_examples_is_run_or_a_record() -> None:
    pages = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    shown = {page for page in pages if blocks(page) and not page.startswith(RECORDS)}
    assert shown == set(PAGES) | OF_OTHER_TESTS


@pytest.mark.parametrize(
    "text",
    ["heedful translate nowhere", "pip install '.[no-such]'", "make no-such-target", "false", "exit 3"],
)
def test_what_does_not_work_is_noticed(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((AssertionError, subprocess.CalledProcessError)):
        Runner().run_commands(text)


def test_commands_are_run_with_what_stands_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save_memorised(Path("tiny"))
    runner = Runner()
    runner.run_commands(
        "for side in en de; do\n    echo $side > $side\ndone\n"
        'echo "the cat sleeps ." | heedful translate \\\n    tiny > out\n'
    )
    written = [Path(name).read_text(encoding="utf-8") for name in ("en", "de", "out")]
    assert (runner.verbs, written) == (["translate"], ["en\n", "de\n", "die Katze schläft .\n"])
