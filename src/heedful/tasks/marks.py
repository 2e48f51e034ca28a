"""The marks of what is to be translated: `heedful translate --marks`."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from heedful.bulk.documents import documents_in
from heedful.data.streams import Lines, open_input
from heedful.documents.document_file import read_document
from heedful.documents.formats import TABLE, TEXT, format_of
from heedful.documents.markup import read_text
from heedful.documents.text_files import parse_columns
from heedful.settings.arguments import checked
from heedful.spans.keep import keeping
from heedful.spans.marks_report import MarkCounter, MarkKind
from heedful.spans.spanned_text import SpannedText
from heedful.tasks.keep_rules import keep_rules


@checked
def list_marks(
    input: str | Path,
    *,
    document: bool | None = None,
    column: str | None = None,
    keep: str | Sequence[str] | None = None,
    keep_file: str | Path | None = None,
) -> list[MarkKind]:
    r"""List the marks in a file of lines, a document or a directory of documents: `translate --marks`.

    >>> _ = Path("app.txt").write_text("Dear {name}, see [[page]] and SKU-7.\n", "utf-8")
    >>> [(mark.example, mark.kept) for mark in list_marks("app.txt", keep=r"SKU-[0-9]+")]
    [('{name}', True), ('SKU-7', True), ('[[page]]', False)]

    Args:
        input: the path; "-" is stdin.
        document: whether it is a document, or a directory of documents; None: by its name.
        column: the columns of tables that hold text.
        keep: what a user keeps: regular expressions, and names of presets.
        keep_file: a TOML file with more of them, by the ending of files.

    Returns:
        First the kinds that stay as they are, then those that look like marks but are translated.

    Raises:
        InputError: a pattern that is none, or a file that cannot be read.
    """
    rules, path = keep_rules(keep, None if keep_file is None else Path(keep_file)), Path(input)
    counter = MarkCounter()
    if document is None:
        document = path.is_dir() or format_of(path.name) not in (None, TEXT)
    if not document:
        with keeping(rules.of("lines.txt")):
            for place, text in _texts_of_lines(path):
                counter.add(text.text, text.placeholders, place, rules.of("lines.txt"))
        return counter.kinds
    files = [path]
    if path.is_dir():
        files = [path / name for name in documents_in(path).documents]
    for file in files:
        own = rules.of(file.name)
        columns = parse_columns([column]) if column and format_of(file.name) == TABLE else []
        before = f"{file.relative_to(path)}, " if path.is_dir() else ""
        with keeping(own):
            for number, unit in enumerate(read_document(file, columns=columns).units, start=1):
                text = unit.source
                counter.add(text.text, text.placeholders, f"{before}text {number}", own)
    return counter.kinds


def _texts_of_lines(path: Path) -> Iterator[tuple[str, SpannedText]]:
    """Yield the place and each text of a file of lines."""
    with ExitStack() as stack:
        lines = Lines(*stack.enter_context(open_input(path)))
        for number, line in enumerate(lines, start=1):
            yield from ((f"line {number}", unit.source) for unit in read_text(line, None).units)
        lines.raise_if_bad()
