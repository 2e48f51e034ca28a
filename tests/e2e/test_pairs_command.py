"""`heedful pairs`: two folders of documents become pairs for training, and what is left out is named."""

import csv
import json
from pathlib import Path

import docx
import pytest
from command_line import heedful

import heedful as library
from heedful.data.phrasebook import phrase_book

PAIRS = phrase_book().train[:400]
SIZE = 40


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def pages(names: tuple[str, str] = ("en/{}.html", "de/{}.html")) -> None:
    """Write ten pages of the phrase book in both languages."""
    for number in range(len(PAIRS) // SIZE):
        for side, name in enumerate(names):
            path = Path(name.format(number))
            path.parent.mkdir(exist_ok=True)
            texts = (pair[side] for pair in PAIRS[number * SIZE : (number + 1) * SIZE])
            path.write_text("".join(f"<p>{text}</p>\n" for text in texts), encoding="utf-8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_pairs_of_two_folders_are_text_to_train_on() -> None:
    pages()
    done = heedful("pairs", "en", "de", "-o", "pairs.tsv", "--valid", "valid.tsv", "--test", "test.tsv")
    assert done.code == 0, done.err
    tables = [rows(Path(name)) for name in ("pairs.tsv", "valid.tsv", "test.tsv")]
    every = [(row["src"], row["tgt"]) for table in tables for row in table]
    assert len({*every} & {*PAIRS}) >= 0.95 * len(PAIRS)
    assert len({*every} - {*PAIRS}) <= 0.01 * len(PAIRS)
    documents = [{row["document"] for row in table} for table in tables]
    assert [*map(len, documents)] == [8, 1, 1]
    assert not documents[0] & (documents[1] | documents[2])
    inspected = heedful("inspect", "pairs.tsv", "--json")
    assert inspected.code == 0, inspected.err


def test_formats_and_languages_in_names_may_differ() -> None:
    pages(("site/{}.en-US.html", "site/{}.de.html"))
    Path("site/1.de.html").unlink()
    Path("site/1.de-old.txt").write_text("Ein Haus.", "utf-8")
    document = docx.Document()
    for _, german in PAIRS[SIZE : 2 * SIZE]:
        document.add_paragraph(german)
    document.save("site/1.de.docx")
    found = library.align_documents("site", "site", output="pairs.tsv", src_lang="en", tgt_lang="de")
    assert (found.documents, found.left_out.get("it cannot be read")) == (10, None)
    of_docx = [row for row in rows(Path("pairs.tsv")) if row["document"].startswith("1.")]
    assert len(of_docx) >= 0.9 * SIZE


def test_what_is_left_out_is_listed_with_its_reason() -> None:
    pages()
    Path("de/3.html").unlink()
    Path("de/4.html").rename("de/4.docx")
    Path("de/5.html").write_text("<p>" + "</p><p>".join(pair[1] for pair in PAIRS[200:220]) + "</p>", "utf-8")
    done = heedful("pairs", "en", "de", "-o", "pairs.tsv", "--left-out", "left.tsv")
    assert done.code == 0, done.err
    left = [(row["side"], row["document"], row["reason"].split(":")[0]) for row in rows(Path("left.tsv"))]
    assert ("source", "3.html", "no document of the other side has its name") in left
    assert ("target", "4.docx", "it cannot be read") in left
    assert ("source", "4.html", "the document that belongs to it cannot be read") in left
    missing = [place for place in left if place[:2] == ("source", "5.html")]
    assert len(missing) >= 20
    pairs = rows(Path("pairs.tsv"))
    used = {row["src"] for row in pairs if row["document"] == "5.html"}
    assert used <= {source for source, _ in PAIRS[200:220]}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("en", "nowhere", "-o", "p.tsv"), "nowhere"),
        (("en", "de", "-o", "p.tsv", "--valid", "p.tsv"), "--valid"),
        (("en", "de", "-o", "en/1.html"), "is the input too"),
        (("en", "de", "-o", "p.tsv", "--left-out", "de/2.html"), "is the input too"),
        (("en", "de", "-o", "-"), "/dev/stdout"),
        (("en", "de", "-o", "p.tsv", "--min-confidence", "2"), "--min-confidence"),
        (("en", "de", "-o", "no/p.tsv"), "no/p.tsv"),
        (("en", "other", "-o", "p.tsv"), "--src-lang"),
        (("en/1.html", "de/1.html", "-o", "p.tsv", "--valid", "v.tsv"), "too few documents"),
        (("en/1.html", "other/y.docx", "-o", "p.tsv"), "y.docx"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], named: str) -> None:
    pages()
    Path("other").mkdir()
    Path("other/x.txt").write_text("Ein Haus.", "utf-8")
    Path("other/y.docx").write_text("Ein Haus.", "utf-8")
    done = heedful("pairs", *arguments)
    assert done.code != 0
    assert named in done.err.splitlines()[-1]
    assert not Path("p.tsv").exists()


def test_texts_with_the_same_key_belong_together_in_any_order() -> None:
    texts = {
        "title": ("Open", "Öffnen"),
        "menu": {"save": ("Save as", "Sichern"), "long": ("A. B.", "A und B.")},
    }
    for side, (name, order) in enumerate(
        (("en.json", texts), ("de.json", {**texts, "only": ("", "Nur hier")}))
    ):
        sided = {
            key: value[side]
            if isinstance(value, tuple)
            else {inner: pair[side] for inner, pair in value.items()}
            for key, value in sorted(order.items(), reverse=bool(side))
        }
        Path(name).write_text(json.dumps(sided), encoding="utf-8")
    library.align_documents("en.json", "de.json", output="pairs.tsv")
    found = {(row["src"], row["tgt"], row["confidence"]) for row in rows(Path("pairs.tsv"))}
    assert found == {
        ("Open", "Öffnen", "1.000"),
        ("Save as", "Sichern", "1.000"),
        ("A. B.", "A und B.", "1.000"),
    }
