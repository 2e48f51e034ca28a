"""Write code, outputs and pictures into docs/annotated-paper.md: `python tools/annotated_paper.py`.

The page is Markdown, as a code host and the site show it. The code of heedful follows a comment
`<!-- code: MODULE NAME ... -->`. All other blocks of Python are executed from the first to the last. What one
prints follows it as a block of text, and what it draws is the picture after that.
"""

import base64
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from functools import reduce
from pathlib import Path

import nbformat

from notebooks import execute

PAGE = Path(__file__).resolve().parent.parent / "docs" / "annotated-paper.md"
COLUMNS = 92
LISTING = re.compile(
    r"^<!-- code: (?P<module>\S+) (?P<names>[^>]*) -->\n.*?\n```python\n.*?\n```\n",
    re.MULTILINE | re.DOTALL,
)
CELL = re.compile(
    r"^```python\n(?P<code>(?:(?!```).)*)^```\n(?:\n```text\n(?:(?!```).)*```\n)?"
    r"(?P<picture>\n!\[[^]]*\]\((?P<file>[^)]*)\)\n)?",
    re.MULTILINE | re.DOTALL,
)
PROSE = re.compile(r'(?ms)^ *"""(?:(?!""").)*"""$|(?:^ *# [^\n]*\n?)+(?<!\n)')
ITEM = re.compile(r" *(\w+: |- )|.*(Args|Returns|Raises):$")


def with_code(page: str) -> str:
    """Return the page with the code of this version after each comment that names some."""
    return LISTING.sub(lambda found: listing(found["module"], found["names"]), page)


def listing(module: str, names: str) -> str:
    """Return the comment, the names with a link to their file, and their code."""
    parts = []
    for name in names.split():
        thing = reduce(getattr, name.split("."), importlib.import_module(module))
        code = textwrap.dedent(inspect.getsource(thing))
        parts.append(shown(f"# {name}\n{code}" if "." in name else code))
    path = module.replace(".", "/") + ".py"
    quoted = ", ".join(f"`{name}`" for name in names.split())
    start = f"<!-- code: {module} {names} -->\n{quoted} in [{path}](../src/{path}):\n\n"
    return start + "```python\n" + "\n".join(parts) + "```\n"


def with_outputs(page: str) -> tuple[str, dict[str, bytes]]:
    """Execute the page; return it with what its blocks print, and the files of the pictures that they draw.

    Raises:
        CellExecutionError: a block fails, such as an assert.
    """
    hidden = LISTING.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page)  # same offsets, without code
    cells = [*CELL.finditer(hidden)]
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[nbformat.v4.new_code_cell(cell["code"]) for cell in cells]  # type: ignore[no-untyped-call]
    )
    end, parts = 0, list[str]()
    files: dict[str, bytes] = {}
    for cell, run in zip(cells, execute(notebook).cells, strict=True):
        printed = "".join(each.get("text", "") for each in run.outputs)
        pictures = [each.data["image/png"] for each in run.outputs if "image/png" in each.get("data", {})]
        if pictures:
            files[cell["file"]] = base64.b64decode(pictures[-1])
        parts += [page[end : cell.start()], f"```python\n{cell['code']}```\n"]
        parts += [f"\n```text\n{printed}```\n"] if printed else []
        parts += [cell["picture"] or ""]
        end = cell.end()
    return "".join([*parts, page[end:]]), files


def shown(code: str) -> str:
    """Return code without notes to type checker and linter, at most 92 columns wide."""
    lines = []
    for line in re.sub(r"  # (type: ignore|noqa).*", "", code).splitlines():
        if len(line) > COLUMNS and (end := re.match(r"( *)(\S.*?)  (# .*)", line)):
            lines += [end[1] + end[3], end[1] + end[2]]  # a comment at the end goes above its line
        else:
            lines.append(line)
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={COLUMNS}", "-"]
    done = subprocess.run(ruff, input="\n".join(lines), capture_output=True, text=True, check=True)
    return PROSE.sub(lambda found: narrowed(found[0]), done.stdout)


def narrowed(prose: str) -> str:
    """Wrap each paragraph of a docstring or comment again, if a line is too long."""
    if max(map(len, prose.splitlines())) <= COLUMNS:
        return prose
    paragraphs: list[list[str]] = []
    last = ""
    for line in prose.splitlines():
        stands_alone = line.strip() == '"""' or line.strip().startswith(">>>") or last.startswith(">>>")
        starts = not last or last.endswith(":") or ITEM.match(line) or stands_alone
        if starts or not line.strip():
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
        last = line.strip()
    return "\n".join(map(rewrapped, paragraphs))


def rewrapped(lines: list[str]) -> str:
    """Return the lines of a paragraph in 92 columns, indented as they were."""
    first, rest = (line[: len(line) - len(line.lstrip(" #"))] for line in (lines[0], lines[-1]))
    if len(lines) == 1 and ITEM.match(lines[0]):
        rest += "    "
    words = " ".join(line.strip(" #") for line in lines)
    return textwrap.fill(words, COLUMNS, initial_indent=first, subsequent_indent=rest)


def main() -> None:
    """Write the page and its pictures."""
    page, pictures = with_outputs(with_code(PAGE.read_text(encoding="utf-8")))
    PAGE.write_text(page, encoding="utf-8")
    for name, picture in pictures.items():
        (PAGE.parent / name).write_bytes(picture)
    print(PAGE)


if __name__ == "__main__":
    main()
