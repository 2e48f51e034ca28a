"""Pages name files and tests that exist; the site of docs/ builds without warnings and asks no other host."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs_site import ROOT, missing_targets, target, with_links_in_site

FROM_OTHERS = re.compile(
    r"<(?!a )[^>]*\b(?:href|src|srcset|data)=[\"'](?:\w+:)?//|(?:@import|url\()\s*[\"']?(?:\w+:)?//"
)


def test_the_files_and_tests_that_pages_name_exist() -> None:
    assert missing_targets() == []


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_asks_no_other_host(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, ROOT / "tools" / "docs_site.py", site]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 40
    assert [path for path in files if FROM_OTHERS.search(path.read_text(encoding="utf-8"))] == []
    assert "cell_output" in (site / "notebooks/attention-by-hand.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("path", "link", "there"),
    [
        ("docs/corpus.md", "log.md#2026", "log.md#2026"),
        ("docs/corpus.md", "../src/heedful/errors.py", "repository/src/heedful/errors.py.md"),
        ("docs/decisions/0001-attention-bias.md", "../../README.md", "../repository/README.md"),
        ("README.md", "docs/reference/", "../reference/README.md"),
        ("README.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_lead_to_pages_of_the_site(path: str, link: str, there: str) -> None:
    assert with_links_in_site(path, f"see [it]({link}).") == f"see [it]({there})."
    assert ":" in link or (ROOT / target(path, link.split("#")[0])).exists()
