"""`heedful translate --markup` and `--through`: tags inside lines, and another language between."""

import json
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from tiny_bundle import PAIRS, SOURCES, TARGETS, save_memorised
from translate.storage.tmx import tmxfile

from heedful import translate_text
from heedful.decoding.translator import Translator

MARKED = ["the <b>cat</b> sleeps .", "the dog sleeps .", "", "<p>the dog <i>sees</i> the cat .</p>", "<br/>"]


@pytest.fixture(scope="module")
def back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the other direction."""
    pairs = tuple((target, source) for source, target in PAIRS)
    return save_memorised(tmp_path_factory.mktemp("back") / "model", pairs)


@pytest.fixture
def chained(run: Path, back: Path) -> str:
    """What the second model makes of the outputs of the first one."""
    first = heedful("translate", run, stdin=text(SOURCES)).out
    return heedful("translate", back, stdin=first.encode()).out


@pytest.mark.parametrize("markup", ["html", "xml"])
def test_lines_keep_their_tags_as_texts_do(run: Path, markup: str) -> None:
    translator = Translator.load(run)
    outcome = heedful("translate", run, "--markup", markup, stdin=text(MARKED))
    texts = [translate_text(translator, line, format=markup, split_lines=False).text for line in MARKED]  # type: ignore[arg-type]
    assert outcome.out.splitlines() == texts
    assert texts[3].startswith("<p>")
    assert "</i>" in texts[3]


def test_only_lines_with_tags_or_entities_are_html_by_themselves(run: Path) -> None:
    lines = ["the cat sleeps .", "the <b>cat</b> sleeps .", "the dog &amp; sleeps .", "the dog & sleeps ."]
    of_html = heedful("translate", run, "--markup", "html", stdin=text(lines)).out.splitlines()
    of_all = heedful("translate", run, "--markup", "auto", stdin=text(lines)).out.splitlines()
    assert of_all[:3] == of_html[:3]
    assert "&amp;" not in of_all[3]


def test_alternatives_have_the_tags_and_the_scores_of_the_text(run: Path) -> None:
    options = ("--n-best", 3, "--json")
    plain = heedful("translate", run, *options, stdin=text(["the cat sleeps ."]))
    marked = heedful("translate", run, *options, "--markup", "html", stdin=text(["the cat <b>sleeps .</b>"]))
    [one], [other] = [[json.loads(line) for line in each.out.splitlines()] for each in (plain, marked)]
    assert len(other["hypotheses"]) == 3
    for without, tagged in zip(one["hypotheses"], other["hypotheses"], strict=True):
        assert without["score"] == pytest.approx(tagged["score"])
        assert without["ids"] == tagged["ids"]
        assert tagged["text"].replace("<b>", "").replace("</b>", "") == without["text"]
        assert "alignment" not in tagged


def test_sentences_between_tags_come_from_memory_and_glossary(run: Path, tmp_path: Path) -> None:
    file, terms = tmxfile(), tmp_path / "terms.tsv"
    file.addtranslation("the cat sleeps .", "en", "DIE KATZE .", "de")
    file.savefile(str(tmp_path / "memory.tmx"))
    terms.write_text("dog\tHund\n", encoding="utf-8")
    options = ("--memory", tmp_path / "memory.tmx", "--glossary", terms, "--markup", "html", "--json")
    lines = ["<p>the cat sleeps .</p>", "<b>the dog sleeps .</b>"]
    first, second = map(json.loads, heedful("translate", run, *options, stdin=text(lines)).out.splitlines())
    assert first["text"] == "<p>DIE KATZE .</p>"
    assert first["memory"] == {"source": "the cat sleeps .", "target": "DIE KATZE ."}
    assert [term["target"] for term in second["terms"]] == ["Hund"]
    assert second["text"] == "<b>der Hund schläft .</b>"


def test_lines_go_by_way_of_another_language(run: Path, back: Path, chained: str) -> None:
    assert heedful("translate", back, "--through", run, stdin=text(SOURCES)).out == chained
    assert heedful("translate", back, stdin=text(SOURCES)).out != chained
    both = ("--through", run, "--markup", "html", "--json")
    [line] = heedful("translate", back, *both, stdin=text(["<p>the cat sleeps .</p>"])).out.splitlines()
    assert json.loads(line)["text"] == "<p>the cat sleeps .</p>"
    aligned = json.loads(heedful("translate", back, "--through", run, "--json", stdin=text(SOURCES[:1])).out)
    assert (aligned["source"], aligned["hypotheses"][0]["finished"]) == (SOURCES[0], True)
    assert {source for source, _ in aligned["hypotheses"][0]["alignment"]} <= {0, 1, 2, 3}


def test_documents_and_shards_go_by_way_of_another_language(
    run: Path, back: Path, chained: str, tmp_path: Path
) -> None:
    page, shards = tmp_path / "page.html", tmp_path / "shards"
    page.write_text("<p>the cat sleeps .</p>", encoding="utf-8")
    shards.mkdir()
    (shards / "a.txt").write_bytes(text(SOURCES))
    heedful("translate", back, "--through", run, "--document", page, "-o", tmp_path / "out.html")
    assert (tmp_path / "out.html").read_text(encoding="utf-8") == "<p>the cat sleeps .</p>"
    heedful("translate", back, "--through", run, "-i", shards, "-o", tmp_path / "out", "--markup", "auto")
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf-8") == chained


def test_a_run_is_resumed_with_the_same_markup_and_models_alone(
    run: Path, back: Path, chained: str, tmp_path: Path
) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(text([*SOURCES * 200]) + b"\xff\n")
    options = ("translate", back, "-i", source, "-o", output, "--resume")
    both = ("--through", run, "--markup", "html")
    assert heedful(*options, *both).code == 1  # after the lines before the bad one
    assert_one_clear_line(heedful(*options, "--markup", "html"), 1, "through")
    assert_one_clear_line(heedful(*options, "--through", run), 1, "markup")
    source.write_bytes(text([*SOURCES * 200]))
    done = heedful(*options, *both)
    assert done.code == 0
    assert output.read_text(encoding="utf-8") == chained * 200


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--markup", "html", "--prefix", "FILE"), "--prefix"),
        (("--markup", "html", "--document", "FILE", "-o", "out"), "--markup"),
        (("--through", "RUN", "--to-tmx", "out"), "--to-tmx"),
    ],
)
def test_what_does_not_go_together_is_named(
    run: Path, tmp_path: Path, options: tuple[str, ...], named: str
) -> None:
    (tmp_path / "in").write_bytes(text(TARGETS))
    files = {"FILE": tmp_path / "in", "RUN": run, "out": tmp_path / "out"}
    given = [files.get(option, option) for option in options]
    assert_one_clear_line(heedful("translate", run, *given, stdin=b""), 2, named)
