"""What the pages of docs/ show is run here as it stands there: their commands on little text, their Python.

What is about the demo's model is run on that model, in a test that takes minutes; on a model of another kind
serving.md has a test of its own, as have pictures.md and annotated-paper.md (tests/tools). The pages of what
was measured, and of what was decided, are a record.
"""

import gzip
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import docx
import openpyxl
import pytest
import torch
from animal_pairs import KNOWN, PAIRS, QUICK
from pretrained_models import FAMILIES
from published_systems import Lecture
from shown_commands import ROOT, SHORT, SMALL_LAYERS, SMALL_VOCABULARY, Runner, blocks
from ten_pairs import as_options, write_sides
from tiny_bundle import SHOWN_PAIRS, save_memorised
from translate.storage.tmx import tmxfile
from translation_server import translation_server

from heedful import import_model
from heedful.data.phrasebook import phrase_book
from heedful.tasks import demo
from heedful.tasks.verify import verify

OF_OTHER_TESTS = {
    "docs/annotated-paper.md",
    "docs/pictures.md",
    "docs/quickstart.md",
    "docs/reference/cli.md",
    "docs/serving.md",
}
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


def company() -> None:
    """Write a published model for each direction, a memory, and a list of terms as Excel saves it."""
    published()
    memory = tmxfile()
    for english, german in phrase_book().train[:100]:
        memory.addtranslation(english, "en", german, "de")
    memory.savefile("ours.tmx")
    for name in ("en-de", "de-en"):
        import_model("Helsinki-NLP/opus-mt-en-de", output=Path("models", name))
    terms = openpyxl.Workbook()
    terms.worksheets[0].append(["English", "German"])
    terms.worksheets[0].append(["house", "Gebäude"])
    terms.save("terms.xlsx")


def exchanged() -> None:
    FAMILIES["marian"].save(Path("DIR_OR_HUB_ID"))


def checked() -> None:
    write_sides(train=10, valid=3, test=3)


def large() -> None:
    save_memorised(Path("runs/en-de/best"), SHOWN_PAIRS)
    Path("news").mkdir()
    for name in ("big.en", "news/1.txt", "news/2.txt"):
        Path(name).write_text("The house is small.\n", encoding="utf-8")
    with gzip.open("news/2.txt.gz", "wb") as file:
        file.write(b"The house is small.\n")


def recorded() -> None:
    save_memorised(Path("runs/en-de"), SHOWN_PAIRS)
    verify("runs/en-de", write=True)
    Path("important.en").write_text("The house is small.\n", encoding="utf-8")


def judged() -> None:
    """Write a model, and lines with references of which half are errors."""
    large()
    known = [*SHOWN_PAIRS] * 4
    wrong = [(f"xyz {n}", "Xylophon quer Pizza") for n in range(12)]
    for name, lines in (("valid", [*known, *wrong]), ("test", known), ("input", [*known, *wrong])):
        for side, texts in zip(("en", "de"), zip(*lines, strict=True), strict=True):
            Path(f"{name}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def documents() -> None:
    save_memorised(Path("runs/en-de/best"), SHOWN_PAIRS)
    report = docx.Document()
    report.add_paragraph("The house is small.")
    report.save("report.docx")
    goods = "id,title,description\n1,The house is small.,The house is small.\n"
    Path("goods.csv").write_text(goods, encoding="utf-8")
    Path("site").mkdir()
    Path("site/index.html").write_text("<p>The house is small.</p>", encoding="utf-8")


def sites() -> None:
    """Write pages in two languages."""
    pairs = phrase_book().train
    for number in range(12):
        for side, language in enumerate(("en", "de")):
            texts = (pair[side] for pair in pairs[number * 20 : number * 20 + 20])
            Path("site", language).mkdir(parents=True, exist_ok=True)
            Path("site", language, f"{number}.html").write_text(
                "".join(f"<p>{text}</p>" for text in texts), "utf-8"
            )


def own_pages() -> None:
    """Write a model, pages in two languages, general text, and a page to translate."""
    save_memorised(Path("models/en-de"), KNOWN)
    for number in range(0, len(PAIRS), 5):
        for side, language in enumerate(("en", "de")):
            texts = "".join(f"<p>{pair[side]}</p>\n" for pair in PAIRS[number : number + 5])
            Path("site", language).mkdir(parents=True, exist_ok=True)
            Path("site", language, f"{number}.html").write_text(texts, encoding="utf-8")
    Path("news.html").write_text(f"<p>{PAIRS[1][0]}</p>", encoding="utf-8")
    write_sides(general=4)


def experiment() -> None:
    """Write text, and the recipe that the page shows."""
    write_sides(train=10, valid=3, test=3)
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    [recipe] = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    Path("recipe.toml").write_text(recipe, encoding="utf-8")


def memories() -> None:
    documents()
    Path("news.en").write_text("The house is small.\n", encoding="utf-8")
    memory = tmxfile()
    memory.addtranslation("The house is small.", "en", "Klein ist das Haus.", "de")
    memory.savefile("approved.tmx")


def aligned() -> None:
    large()
    write_sides(train=10, test=3)


def in_python() -> None:
    write_sides(train=10, valid=3, test=3)
    shutil.copy(ROOT / "docs" / "examples" / "linear_attention.py", ".")
    shutil.copy("test.en", "input.en")
    save_memorised(Path("runs/demo"), SHOWN_PAIRS)


def lecture() -> None:
    torch.manual_seed(1)
    model = Lecture(17, 19, 16, 8, 2, expansion=4, max_length=11, shared=False)
    torch.save(model.state_dict(), "model.pt")


# What stands in the directory before the commands of a page are run, and which verbs they must have.
PAGES: dict[str, tuple[Callable[[], None], set[str]]] = {
    "docs/translator-in-an-afternoon.md": (phrases, {"inspect", "train", "evaluate", "score", "shortlist"}),
    "docs/adapt-a-published-one.md": (published, {"import", "train", "evaluate", "export"}),
    "docs/company.md": (company, {"inspect", "train", "evaluate", "translate"}),
    "docs/bulk-translation.md": (large, {"translate"}),
    "docs/alignments.md": (aligned, {"align"}),
    "docs/glossaries.md": (large, {"translate"}),
    "docs/confidence.md": (judged, {"evaluate", "translate", "score"}),
    "docs/verify.md": (recorded, {"verify"}),
    "docs/documents.md": (documents, {"translate"}),
    "docs/experiments.md": (experiment, {"train", "evaluate", "plot"}),
    "docs/adapt.md": (own_pages, {"adapt", "serve", "translate"}),
    "docs/pairs.md": (sites, {"pairs", "inspect"}),
    "docs/memories.md": (memories, {"translate"}),
    "docs/corpus.md": (checked, {"inspect"}),
    "docs/interop.md": (exchanged, {"import", "export"}),
    "docs/systems.md": (lecture, {"import"}),
    "docs/python.md": (in_python, {"train", "translate"}),
}
TRAINING = {
    "docs/adapt.md": as_options(QUICK),
    **dict.fromkeys(("docs/adapt-a-published-one.md", "docs/company.md"), SHORT),
}
SLOW_PAGES = {
    "docs/adapt.md",
    "docs/experiments.md",
    "docs/translator-in-an-afternoon.md",
    "docs/adapt-a-published-one.md",
    "docs/company.md",
    "docs/bulk-translation.md",
    "docs/confidence.md",
    "docs/python.md",
}


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in SLOW_PAGES else page for page in PAGES]
)
def test_what_a_page_shows_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare, verbs = PAGES[page]
    prepare()
    ids = {"src": torch.tensor([[3, 4, 5]]), "tgt_in": torch.tensor([[1, 6]])}
    training = TRAINING.get(page, SHORT + SMALL_VOCABULARY)
    runner = Runner(added={"train": training, "adapt": training}, names=ids)
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
    monkeypatch.setattr(demo, "_MINUTES", 50.0)  # so that a slow machine takes all of the steps, too
    write_sides(train=10)
    runner = Runner(added={"train": SHORT + SMALL_LAYERS + SMALL_VOCABULARY})
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


def test_a_command_reads_what_another_of_heedful_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command need not be on the path: a clean clone has it in .venv alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    save_memorised(Path("tiny"))
    Path("en").write_text("the cat sleeps .\n", encoding="utf-8")
    runner = Runner()
    runner.run_commands("heedful translate tiny < en | heedful align tiny --src en --tgt -\n")
    assert runner.verbs == ["translate", "align"]


PAGE = "docs/serving.md"


def test_the_page_has_examples_of_each_dialect() -> None:
    commands = [line for _, text in blocks(PAGE) for line in text.splitlines() if line.startswith("curl ")]
    text = " ".join(commands)
    assert len(commands) > 10
    named = ("/translate", "/detect", "/languages", "/v2/translate", "?from=en", "/explain", "/health")
    assert all(path in text for path in named)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_answers_are_those_that_the_page_shows(tmp_path: Path) -> None:
    with translation_server(f"en-de={save_memorised(tmp_path / 'tiny', SHOWN_PAIRS)}") as server:
        runner = Runner(server=server.url.split("/")[2], compare_tags=False)
        runner.run(PAGE)
    translated = [each for each in runner.answers if "Das Haus ist klein." in each]
    assert len(translated) >= 4


@pytest.mark.parametrize(
    ("shown", "out"),
    [
        ("Das Haus ist klein.", "Das Haus ist klein. Ja.\n"),
        ('{"a": "b"}', '{"a": "b", "c": 1}'),
        ('{"a": "b", ...}', '{"a": "c", "d": 1}'),
        ('[{"a": 1}, ...]', "[]"),
        ('{"a": "<b>das</b> Haus"}', '{"a": "das <b>Haus</b>"}'),
    ],
)
def test_another_answer_than_the_one_shown_is_noticed(shown: str, out: str) -> None:
    with pytest.raises(AssertionError):
        Runner().compare(shown, out)
    Runner().compare(shown, shown.replace(", ...", ""))


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
