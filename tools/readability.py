"""Print how long the sentences are: `python tools/readability.py [-v]`; -v lists those of more than 30 words.

It counts the sentences of README and of the pages of docs/ (without the decisions, the log and what is made
from the code), of the help of all commands, and of the messages of errors. Code and numbers count as one word
each. Code blocks, tables and headings are not counted.
"""

import ast
import inspect
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parent.parent
LONG = 30  # words
_NO_PROSE = re.compile(r"^(```.*?^```|---\n.*?^---|\$\$.*?\$\$|<!--.*?-->)", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)( {4,}(?![-*] |\d+\. )[^\n]*\n\n?)+")
_CODE = re.compile(r"`[^`]+`|\$[^$\n]+\$")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(*\[]*[A-Z0-9`⟨])|\n\s*\n")
_ITEM = re.compile(r"^\s*([-*]|\d+\.)\s+", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_][\w'’-]*|\d[\d.,]*")


def sentences(markdown: str) -> Iterator[str]:
    """Yield the sentences of a page: of paragraphs and lists, without code blocks, tables and headings."""
    text = _INDENTED.sub("\n", _NO_PROSE.sub("\n\n", markdown))
    text = _CODE.sub("⟨code⟩", _LINK.sub(r"\1", text))
    text = "\n".join("" if line.lstrip().startswith(("|", "#")) else line for line in text.splitlines())
    for part in _END.split(_ITEM.sub("\n\n", text)):
        if num_words(part) >= 2:
            yield " ".join(part.split())


def num_words(sentence: str) -> int:
    """Return how many words a sentence has."""
    return len(_WORD.findall(sentence))


def pages() -> dict[str, str]:
    """Return the text of README and of each page, by its name."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {file.name: file.read_text(encoding="utf-8") for file in files if file.name != "log.md"}


def help_texts() -> dict[str, str]:
    """Return the help of each command, as a page with a paragraph for each option."""
    from heedful.cli.main import commands
    from heedful.cli.options import command_of

    texts = {}
    for name, run in commands().items():
        parameters = inspect.signature(command_of(run)).parameters.values()
        options = [get_args(each.annotation)[1].help for each in parameters]
        texts[name] = "\n\n".join([inspect.getdoc(command_of(run)) or "", *options])
    return texts


def messages() -> dict[str, str]:
    """Return the texts of the errors that each module raises, as a page with a paragraph for each."""
    texts = {}
    for path in sorted((ROOT / "src" / "heedful").rglob("*.py")):
        raised = [
            "".join(_text(part) for part in ast.walk(node.exc.args[0]))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args
        ]
        texts[path.relative_to(ROOT).as_posix()] = "\n\n".join(raised)
    return texts


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return " x " if isinstance(node, ast.FormattedValue) else ""


def figures(texts: dict[str, str]) -> dict[str, float]:
    """Return the number of sentences, the median of their words, and the share of long ones."""
    lengths = [num_words(each) for text in texts.values() for each in sentences(text)]
    return {
        "sentences": len(lengths),
        "median": statistics.median(lengths),
        "long": round(sum(length > LONG for length in lengths) / len(lengths), 4),
    }


def main() -> None:
    """Print a line for each kind of text."""
    kinds = {"README and docs": pages(), "help": help_texts(), "messages": messages()}
    for kind, texts in kinds.items():
        found = figures(texts)
        print(
            f"{kind}: {found['sentences']:,} sentences, median {found['median']:g} words, "
            f"{found['long']:.1%} over {LONG}"
        )
        for name, text in texts.items() if "-v" in sys.argv else ():
            for sentence in sentences(text):
                if num_words(sentence) > LONG:
                    print(f"    {name}: {num_words(sentence)}: {sentence}")


if __name__ == "__main__":
    main()
