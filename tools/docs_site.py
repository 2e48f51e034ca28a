"""Build the site of docs/ into build/site, with warnings as errors.

    python tools/docs_site.py [DIRECTORY]          # or make docs

The pages of docs/ link to files of the repository as one reads them there, `../src/heedful/errors.py`. In the
site each of those files is a page too, below `repository/`, so that it needs no other host. Sphinx
(docs/conf.py) builds from a copy with these pages and links.
"""

import posixpath
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx_build

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(?=[)#])")
ALWAYS_SHOWN = ("CONTRIBUTING.md", "CHANGELOG.md")
LANGUAGES = {".py": "python", ".toml": "toml"}
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def build(site: Path) -> int:
    """Write the site, from a copy of docs/ beside it; return 0 if there was nothing to warn of."""
    if missing := missing_targets():
        print(*missing, sep="\n", file=sys.stderr)
        return 1
    copy = site.with_name(f"{site.name}-source")
    copy_docs(copy)
    return sphinx_build(["-q", "-W", "--keep-going", "-E", "-b", "html", str(copy), str(site)])


def missing_targets() -> list[str]:
    """Return the tests that pages name, and the files that they link to, if these do not exist."""
    missing = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        links = {target(page, link) for link in LINK.findall(text)}
        missing += [f"{page}: no file {each}" for each in sorted(links) if not (ROOT / each).exists()]
        for file, name in NAMED_TEST.findall(text):
            test = ROOT / "tests" / file
            if not test.is_file() or f"def {name}(" not in test.read_text(encoding="utf-8"):
                missing.append(f"{page}: no test {file}::{name}")
    return missing


def copy_docs(copy: Path) -> None:
    """Copy docs/, with links within the site, and a page for each other file that some page links to."""
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(ROOT / "docs", copy)
    shutil.copy(ROOT / "src/heedful/serving/static/mark.svg", copy / "images")
    waiting = [*ALWAYS_SHOWN, *(f"docs/{path.relative_to(copy).as_posix()}" for path in copy.rglob("*.md"))]
    done = set()
    while waiting:
        if (path := waiting.pop()) in done:
            continue
        done.add(path)
        text = (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".md"):
            waiting += [each for each in linked_files(path, text) if is_outside(each)]
            text = with_links_in_site(path, text)
        else:
            text = f"# {path}\n\n``````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n``````\n"
        page = copy / uri_in_site(path)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"---\norphan: true\n---\n{text}" if is_outside(path) else text, "utf-8")


def linked_files(path: str, markdown: str) -> list[str]:
    """Return the files of the repository that a page links to, by their paths in it."""
    targets = [target(path, link) for link in LINK.findall(markdown)]
    return [each for each in targets if (ROOT / each).is_file()]


def with_links_in_site(path: str, markdown: str) -> str:
    """Let the links of a page lead to pages of the site."""
    here = posixpath.dirname(uri_in_site(path))
    return LINK.sub(lambda link: posixpath.relpath(uri_in_site(target(path, link[1])), here), markdown)


def target(path: str, link: str) -> str:
    """Return where a relative link of a file leads, as a path in the repository; of a folder, its README."""
    there = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    return f"{there}/README.md" if (ROOT / there).is_dir() else there


def is_outside(path: str) -> bool:
    """Return whether a file is not a page or picture of docs/, as the examples in Python are not."""
    return not path.startswith("docs/") or path.endswith(".py")


def uri_in_site(path: str) -> str:
    """Return the source of the page, or the file, that a file of the repository has in the site."""
    if not is_outside(path):
        return path.removeprefix("docs/")
    return f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
