"""Directories of documents: each in its own format at its own place. Jobs: test_resumable_jobs.py."""

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful, text
from document_files import docx_file
from random_documents import MAKERS, Words
from tiny_bundle import SOURCES, TARGETS

from heedful.documents.formats import TEXT, format_of, suffixes
from heedful.tasks import loading

HTML = b'<p class="x">the cat <b>sleeps</b> .</p>\n'
GERMAN = b'<p class="x">die Katze <b>schl\xc3\xa4ft</b> .</p>\n'
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
ODD = "guide/ü [1] *?\"'%20 $&#\\ {x}.HTML"
MANIFEST = ".manifest.json"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Make a small website, with what people keep beside one."""
    folder = tmp_path / "site"
    for name, data in {
        "index.html": HTML,
        ODD: HTML,
        "guide/de ep/read me.md": b"# the dog sleeps .\n",
        "app.json": b'{"title": "the cat sleeps ."}',
        "goods.csv": b"id,text\n1,the cat sleeps .\n",
        "talk.srt": b"1\n00:00:01,000 --> 00:00:02,000\nthe cat sleeps .\n",
        "lines.txt": text(SOURCES),
        "_static/logo.png": PICTURE,
        "_static/style.css": b"p { color: red }\n",
        ".git/notes.md": b"# the dog\n",
        "guide/~$read me.docx": bytes(162),
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def translate(run: Path, site: Path, *options: object, output: str = "out") -> Outcome:
    """Translate a site into a directory beside it."""
    where = ["-o", site.parent / output, "--column", "text", "--beam-size", "1"]
    return heedful("translate", run, "--document", site, *where, *options)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("suffix", [each for each in suffixes() if format_of(f"a{each}") != TEXT])
def test_a_document_is_no_input_of_lines(suffix: str, run: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.txt").write_bytes(text(SOURCES))
    for name in (f"b{suffix}", f"b{suffix.upper()}.gz"):
        (folder / name).write_bytes(text(SOURCES))
        for source in (folder, folder / name, f"{folder}/*b*"):
            outcome = heedful("translate", run, "-i", source, "-o", out)
            assert_one_clear_line(outcome, 1, name, "--document")
            assert not out.exists()
        (folder / name).unlink()


def test_files_of_lines_have_any_other_ending(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "a.txt", "a.en", "a.text", "a.de.gz", "a.jsonl", "2026-11-26.log"):
        data = gzip.compress(text(SOURCES)) if name.endswith(".gz") else text(SOURCES)
        (folder / name).write_bytes(data)
        assert heedful("translate", run, "-i", folder / name, "-o", tmp_path / "one").code == 0
        assert (tmp_path / "one").read_bytes() == text(TARGETS)
    assert heedful("translate", run, "-i", folder, "-o", tmp_path / "out").code == 0


def test_each_document_is_translated_and_other_files_are_copied(
    run: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loads = loading.load_translator, list[object]()
    monkeypatch.setattr(
        "heedful.tasks.translate.load_translator", lambda *a, **k: loads.append(a) or load(*a, **k)
    )
    before = contents(site)
    outcome = translate(run, site, "--json")
    assert outcome.code == 0, outcome.err
    assert len(loads) == 1
    assert json.loads(outcome.out) == {
        "translated": 7,
        "done_before": 0,
        "failed": {},
        "copied": ["_static/logo.png", "_static/style.css"],
        "left_out": [".git", "guide/~$read me.docx"],
    }
    out = contents(site.parent / "out")
    assert sorted(json.loads(out.pop(MANIFEST))["parts"]) == sorted(
        name for name in out if not name.startswith("_static")
    )
    assert out == {
        "index.html": GERMAN,
        ODD: GERMAN,
        "guide/de ep/read me.md": "# der Hund schläft .\n".encode(),
        "app.json": '{"title": "die Katze schläft ."}'.encode(),
        "goods.csv": "id,text\n1,die Katze schläft .\n".encode(),
        "talk.srt": "1\n00:00:01,000 --> 00:00:02,000\ndie Katze schläft .\n".encode(),
        "lines.txt": text(TARGETS),
        "_static/logo.png": PICTURE,
        "_static/style.css": b"p { color: red }\n",
    }
    assert contents(site) == before
    for name in json.loads((site.parent / "out" / MANIFEST).read_bytes())["parts"]:
        assert f" {name}: " in outcome.err


def test_a_document_is_translated_as_it_is_alone(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for suffix in ("docx", "pptx", "xlsx", "odt", "po", "xliff", "vtt"):
        (folder / f"a.{suffix}").write_bytes(MAKERS[suffix](Words(5)))
    assert translate(run, folder).code == 0
    out = contents(tmp_path / "out")
    for path in sorted(folder.iterdir()):
        alone = tmp_path / f"alone{path.suffix}"
        one = heedful("translate", run, "--document", path, "-o", alone, "--beam-size", "1")
        assert one.code == 0
        assert out[path.name] == alone.read_bytes()


def test_damaged_documents_are_named_and_the_others_translated(run: Path, site: Path) -> None:
    bad = {"bad.docx": docx_file()[:1000], "guide/bad.json": b'{"a": '}
    for name, data in bad.items():
        (site / name).write_bytes(data)
    outcome = translate(run, site, "--json")
    assert outcome.code == 1
    assert sorted(json.loads(outcome.out)["failed"]) == sorted(bad)
    out = site.parent / "out"
    for name in bad:
        assert f"error: {site / name}: " in outcome.err
        assert not (out / name).exists()
    assert (out / ODD).read_bytes() == GERMAN
    assert (out / "_static/logo.png").read_bytes() == PICTURE


def test_a_table_without_the_column_is_translated_with_its_own_later(run: Path, site: Path) -> None:
    (site / "more.csv").write_bytes(b"id,title\n1,the dog sleeps .\n")
    assert translate(run, site).code == 1
    assert translate(run, site, "--resume", "--column", "title").code == 0
    out = contents(site.parent / "out")
    assert out["more.csv"] == "id,title\n1,der Hund schläft .\n".encode()
    assert out["goods.csv"] == "id,text\n1,die Katze schläft .\n".encode()


@pytest.mark.skipif(os.name == "nt", reason="links need rights")
def test_no_link_leads_out_of_the_directory(run: Path, site: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(text(SOURCES))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.html").write_bytes(HTML)
    for name, target in {
        "secret.txt": tmp_path / "secret.txt",
        "picture.png": tmp_path / "secret.txt",
        "elsewhere": tmp_path / "elsewhere",
        "loop": site,
        "gone.html": "nothing",
        "guide/home.html": "../index.html",
    }.items():
        (site / name).symlink_to(target)
    outcome = translate(run, site, "--json")
    assert outcome.code == 0
    left_out = {"secret.txt", "picture.png", "elsewhere", "loop", "gone.html"}
    assert left_out < set(json.loads(outcome.out)["left_out"])
    out = contents(tmp_path / "out")
    assert out["guide/home.html"] == GERMAN
    assert not {name.split("/")[0] for name in out} & left_out


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text")
@pytest.mark.parametrize("name", [os.fsdecode(b"d\xff"), "n" * 250])
def test_a_name_that_cannot_be_written_costs_its_file_alone(run: Path, site: Path, name: str) -> None:
    for ending in (".txt", ".bin"):
        (site / f"{name}{ending}").write_bytes(text(SOURCES))
    outcome = translate(run, site)
    assert outcome.code == 1
    assert "d\\xff" in outcome.err or "nnnn" in outcome.err
    out = site.parent / "out"
    assert (out / "index.html").read_bytes() == GERMAN
    assert (out / "talk.srt").exists()
    assert (out / "_static/logo.png").read_bytes() == PICTURE


def test_no_link_in_the_output_leads_to_other_files(run: Path, site: Path) -> None:
    out, before = site.parent / "out", contents(site)
    out.mkdir()
    (out / "guide").symlink_to(site / "guide")
    (out / "_static").symlink_to(site / "_static")
    outcome = translate(run, site, "--overwrite")
    assert outcome.code == 1
    assert "guide" in outcome.err
    assert contents(site) == before
    assert (out / "index.html").read_bytes() == GERMAN


def test_other_files_stay_and_are_overwritten_if_asked_for(run: Path, site: Path) -> None:
    out = site.parent / "out"
    (out / "guide").mkdir(parents=True)
    (out / "guide" / "own.html").write_bytes(b"own")
    (out / "index.html").write_bytes(b"old")
    assert translate(run, site, "--overwrite").code == 0
    assert (out / "index.html").read_bytes() == GERMAN
    assert (out / "guide" / "own.html").read_bytes() == b"own"
    before = contents(out)
    (out / "_static/logo.png").write_bytes(b"")
    assert translate(run, site, "--resume").code == 0
    assert contents(out) == before


@pytest.mark.parametrize("output", ["site", "site/out", "site/guide", "."])
def test_the_output_is_apart_from_the_documents(output: str, run: Path, site: Path) -> None:
    before = contents(site.parent)
    assert_one_clear_line(translate(run, site, "--overwrite", output=output), 1, str(site))
    assert contents(site.parent) == before


def test_a_directory_without_documents_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.png").write_bytes(PICTURE)
    assert_one_clear_line(translate(run, tmp_path / "site"), 1, "site")
    assert not (tmp_path / "out").exists()


def test_memories_and_glossaries_are_for_all_documents(run: Path, site: Path, tmp_path: Path) -> None:
    heedful("translate", run, "--to-tmx", tmp_path / "m.tmx", stdin=text(SOURCES))
    tmx = (tmp_path / "m.tmx").read_text(encoding="utf-8")
    (tmp_path / "m.tmx").write_text(tmx.replace("die Katze schläft .", "Mieze ruht."), encoding="utf-8")
    (tmp_path / "terms.tsv").write_text("dog\tKatze\n", encoding="utf-8")
    options = ["--memory", tmp_path / "m.tmx", "--to-tmx", tmp_path / "new.tmx"]
    assert translate(run, site, *options).code == 0
    out = contents(tmp_path / "out")
    assert out["app.json"] == b'{"title": "Mieze ruht."}'
    assert b"Mieze ruht." in out["talk.srt"]
    assert b"Mieze ruht." in out["lines.txt"]
    new = (tmp_path / "new.tmx").read_text(encoding="utf-8")
    assert "der Hund schläft ." in new
    assert "die Katze sieht den Hund ." in new
    assert translate(run, site, "--glossary", tmp_path / "terms.tsv", output="terms").code == 0
    assert b"Katze" in contents(tmp_path / "terms")["guide/de ep/read me.md"]
