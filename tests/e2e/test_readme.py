"""What the README says is run here: its commands on little text, its Python, its links."""

import re
import shutil
from pathlib import Path

import pytest
from shown_commands import ROOT, SHORT, SMALL_LAYERS, SMALL_VOCABULARY, Runner, blocks
from ten_pairs import write_sides
from tiny_bundle import SHOWN_PAIRS, save_memorised


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_sides(train=10, valid=3, val=3, test=3, input=3)
    shutil.copytree(ROOT / "recipes", "recipes")
    save_memorised(Path("runs/demo"), SHOWN_PAIRS)
    return tmp_path


@pytest.mark.slow
def test_every_example_of_the_readme_runs(folder: Path) -> None:
    runner = Runner(added={"train": SHORT + SMALL_LAYERS + SMALL_VOCABULARY})
    runner.run("README.md")
    assert {"train", "translate", "evaluate", "attention", "plot"} <= set(runner.verbs)
    assert "translator" in runner.names
    assert "['Die alte Frau liest ein Buch.']" in runner.answers
    assert len((folder / "output.de").read_text(encoding="utf-8").splitlines()) == 3
    assert (folder / "map.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "runs/en-de/curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_begins_with_make() -> None:
    language, text = blocks("README.md")[0]
    assert (language, text.split()) == ("sh", ["make", "demo", "make", "test", "make", "serve"])


@pytest.mark.parametrize(
    "page", ["README.md", *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
)
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / page).parent / link).exists(), link


def test_the_paper_map_names_files_that_exist() -> None:
    named = re.findall(r"`(src/[^`]+)`", (ROOT / "docs/paper-map.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path
