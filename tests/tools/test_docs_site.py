"""The site of docs/ builds without a warning, and whatever it links to is there."""

import posixpath
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import docs_site
from docs_site import ROOT, missing_targets, target, uri_in_site, with_links_in_site

FROM_OTHERS = re.compile(r"(\w+:)?//")
MADE_BY_SPHINX = {"genindex.html", "search.html"}  # no page leads there but by a form


@dataclass
class Html(HTMLParser):
    """What a page links to, what it loads, and the names of its parts."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        links = [values[name] for name in ("href", "src", "srcset", "data") if name in values]
        (self.links if tag == "a" else self.loaded).extend(links)


def parsed(text: str) -> Html:
    page = Html()
    page.feed(text)
    return page


def broken_links(pages: dict[str, Html], site: Path) -> list[str]:
    """Return each link of a page to a file, or to a part of a page, that is not in the site."""
    broken = []
    for name, page in pages.items():
        for link in [each for each in page.links + page.loaded if not re.match(r"\w+:", each)]:
            path, anchor = unquote(urlsplit(link).path), unquote(urlsplit(link).fragment)
            there = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            is_there = (site / there).is_file() and (
                not anchor or there not in pages or anchor in pages[there].ids
            )
            broken += [] if is_there else [f"{name}: {link}"]
    return broken


def reachable(pages: dict[str, Html], first: str) -> set[str]:
    waiting, seen = [first], set()
    while waiting:
        name = waiting.pop()
        if name in pages and name not in seen:
            seen.add(name)
            paths = [unquote(urlsplit(link).path) for link in pages[name].links]
            waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in paths]
    return seen


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_all_that_it_links_to(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "docs_site.py", site],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    pages = {name: parsed((site / name).read_text(encoding="utf-8")) for name in names}
    assert len(pages) > 40
    assert broken_links(pages, site) == []
    assert set(pages) - reachable(pages, "index.html") <= MADE_BY_SPHINX
    # No other host is asked for anything.
    assert [link for page in pages.values() for link in page.loaded if FROM_OTHERS.match(link)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(\w+:)?//", style.read_text(encoding="utf-8")), style
    assert "cell_output" in (site / "notebooks/attention-by-hand.html").read_text(encoding="utf-8")


def test_what_is_broken_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.html").touch()
    page = parsed(
        '<a href="a.html"><a href="b.html#x"><a href="#part"><p id="part"><img src="https://c/d.png">'
    )
    pages = {"a.html": page, "deep/e.html": parsed('<a href="../a.html#no"><a href="../a.html#part">')}
    assert broken_links(pages, tmp_path) == ["a.html: b.html#x", "deep/e.html: ../a.html#no"]
    assert reachable(pages, "a.html") == {"a.html"}
    assert [link for link in page.loaded if FROM_OTHERS.match(link)] == ["https://c/d.png"]


def test_files_and_tests_that_are_missing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_b(): ...", encoding="utf-8")
    (tmp_path / "CONTRIBUTING.md").write_text("`test_a.py::test_b` [here](README.md#a)", encoding="utf-8")
    (tmp_path / "README.md").write_text("`test_a.py::test_c`, [there](docs/no.md)", encoding="utf-8")
    assert missing_targets() == ["README.md: no file docs/no.md", "README.md: no test test_a.py::test_c"]


@pytest.mark.parametrize(
    ("path", "link", "there"),
    [
        ("docs/corpus.md", "log.md#2026", "log.md#2026"),
        (
            "docs/corpus.md",
            "../src/heedful/model/transformer.py",
            "repository/src/heedful/model/transformer.py.md",
        ),
        ("docs/decisions/0001-attention-bias.md", "../../README.md", "../repository/README.md"),
        ("README.md", "docs/reference/", "../reference/README.md"),
        ("docs/reading.md", "examples/copying.py", "repository/docs/examples/copying.py.md"),
        ("README.md", "CONTRIBUTING.md", "CONTRIBUTING.md"),
        ("README.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_lead_to_pages_of_the_site(path: str, link: str, there: str) -> None:
    assert with_links_in_site(path, f"see [it]({link}).") == f"see [it]({there})."
    if ":" not in link:
        assert (ROOT / target(path, link.split("#")[0])).exists()


def test_every_file_of_the_repository_has_a_page_of_its_own() -> None:
    paths = ["docs/a.md", "README.md", "a.md", "src/a.py", "src/a/README.md", "docs/b/README.md"]
    assert len({uri_in_site(path) for path in paths}) == len(paths)
