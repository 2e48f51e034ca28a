"""Sentence pairs of documents in two languages: the work of `heedful pairs`.

two folders -> documents that belong together, by name       `_matched`
            -> their sentences, by the readers of documents/  `_Document`
            -> sentences that translate each other            `_beads`, data/bitext.py
            -> tables of pairs, and of what is left out        `align_documents`
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import BinaryIO

from heedful.bulk.documents import documents_in
from heedful.data.bitext import Bead, Side, find_beads
from heedful.documents.document_file import read_document
from heedful.errors import HeedfulError, InputError, refuse_if
from heedful.runtime.durable import atomic_output
from heedful.settings.arguments import taking
from heedful.settings.options import Languages, Runtime
from heedful.spans.spanned_text import has_letters
from heedful.tasks.loading import load_translator
from heedful.tasks.options import DocumentAlignment
from heedful.tasks.output_checks import check_output, check_outputs_differ
from heedful.text.sentences import split_sentences

HEAD = ("src", "tgt", "confidence", "document", "place")
_LEFT_HEAD = ("side", "document", "place", "reason", "text")
# A language, perhaps with a region, in the name of a file: a word between marks.
_CODE = r"(?:^|(?<=[._/ -]))(?i:{})(?:[-_](?:[A-Z]{{2}}|[A-Z][a-z]{{3}}|[0-9]{{3}}))?(?:$|(?=[._/ -]))"
_NO_COUNTERPART, _UNSURE = "no counterpart was found", "the confidence is too low"
_NOT_NAMED, _TWICE = "no document of the other side has its name", "another document has the same name"
_SEEN = "held out, but its source is in the pairs of other documents, too"
_UNREADABLE = "it cannot be read"
_NO_CODE, _PARTNER = "its name has no language", "the document that belongs to it cannot be read"
_OUTPUTS = ("--output", "--valid", "--test", "--left-out")
_SIDES = ("source", "target")
Row = Sequence[str]
Report = Callable[[str, float], object]  # of a phase and its progress, 0 to 1


@dataclass(frozen=True)
class DocumentPairs:
    """What `heedful pairs` found.

    Attributes:
        pairs: the numbers of pairs by the files that they were written to.
        documents: the number of source documents with a target document.
        share: the share of their source sentences that are in pairs, those held out twice included.
        left_out: the numbers of documents and sentences that are in no pair, by reason.
    """

    pairs: Mapping[str, int]
    documents: int
    share: float
    left_out: Mapping[str, int]


@dataclass(frozen=True)
class _Document:
    """A document: its sentences with letters, the number of the unit of each, the sentences of each key."""

    name: str
    texts: list[str] = field(default_factory=list)
    units: list[int] = field(default_factory=list)
    keyed: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, name: str) -> "_Document":
        """Read a document of any format; InputError if it cannot be read."""
        document = cls(name)
        for number, unit in enumerate(read_document(path).units, start=1):
            sentences = [sentence.text for sentence in split_sentences(" ".join(unit.characters.split()))]
            lettered = [*filter(has_letters, sentences)]
            if unit.key and lettered:
                end = len(document.texts) + len(lettered)
                document.keyed[unit.key] = [*range(len(document.texts), end)]
            document.texts.extend(lettered)
            document.units.extend([number] * len(lettered))
        return document

    def without(self, used: Collection[int]) -> list[int]:
        """Return the numbers of the other sentences."""
        return [number for number in range(len(self.texts)) if number not in used]

    def side(self, numbers: Sequence[int], translated: Sequence[str] = ()) -> Side:
        """Return some sentences, to be aligned; `translated` has all, or none."""
        return Side(
            [self.texts[number] for number in numbers],
            [self.units[number] for number in numbers],
            [translated[number] for number in numbers] if translated else (),
        )

    def text(self, numbers: Sequence[int]) -> str:
        """Return some sentences as one text."""
        return " ".join(self.texts[number] for number in numbers)

    def place(self, numbers: Sequence[int]) -> str:
        """Return the unit that sentences are in, or the first and the last one."""
        return "-".join(dict.fromkeys(str(self.units[number]) for number in (numbers[0], numbers[-1])))


@dataclass(frozen=True)
class _LeftOut:
    """What is in no pair."""

    rows: list[Row] = field(default_factory=list)

    def document(self, side: str, name: str, reason: str) -> None:
        """Add a document."""
        self.rows.append((side, name, "", reason, ""))

    def sentences(self, side: str, document: _Document, numbers: Iterable[int], reason: str) -> None:
        """Add sentences."""
        for number in numbers:
            self.rows.append((side, document.name, document.place([number]), reason, document.texts[number]))

    def by_reason(self) -> dict[str, int]:
        """Return the number of documents and sentences for each reason, without its details."""
        return dict(Counter(reason.partition(":")[0] for _, _, _, reason, _ in self.rows))


@taking(DocumentAlignment)
def align_documents(task: DocumentAlignment) -> DocumentPairs:
    """Find sentence pairs in documents of two languages: `heedful pairs`.

    >>> heedful.align_documents("site/en", "site/de", output="pairs.tsv").pairs
    {'pairs.tsv': 2}

    The arguments are the options of the command, by the same names, and on_progress: called with the current
    phase and its progress, 0 to 1.

    Raises:
        InputError: no documents, none that belong together, or an output that cannot be written.
        OptionError: an option with an invalid value.
    """
    report: Report = task.on_progress or (lambda what, done: None)
    outputs = [
        None if path is None else Path(path) for path in (task.output, task.valid, task.test, task.left_out)
    ]
    written = [path for path in outputs if path is not None]
    source, target = Path(task.source), Path(task.target)
    refuse_if((Path("-") in written, "-: give the name of a file, or /dev/stdout"), error=InputError)
    check_outputs_differ(dict(zip(_OUTPUTS, outputs, strict=True)))
    listed = [_listed(source), _listed(target)]
    inputs = [path for paths in listed for path in paths.values()]
    for output in written:
        check_output(output, inputs=inputs, models=[] if task.bridge is None else [Path(task.bridge)])
    left_out = _LeftOut()
    documents = [*_read(task, listed, left_out, report)]
    num_held_out = sum(path is not None for path in outputs[1:3])
    unreadable = next((row[3] for row in left_out.rows if row[3].startswith(_UNREADABLE)), "")
    refuse_if(
        (not documents and unreadable, f"{source}, {target}: no two documents can be aligned: {unreadable}"),
        (
            not documents,
            f"{source}, {target}: no documents belong together by their names; give the codes in them with "
            "--src-lang and --tgt-lang",
        ),
        (
            len(documents) <= num_held_out,
            f"{source}, {target}: too few documents to hold some out; leave --valid and --test out",
        ),
        error=InputError,
    )
    translated = _translated([src for src, _ in documents], task.bridge, report)
    beads = _beads(documents, [*translated], partial(report, "aligned"))
    rows = [
        _rows(src, tgt, found, task.min_confidence, left_out)
        for (src, tgt), found in zip(documents, beads, strict=True)
    ]
    size = max(1, round(task.held_out * sum(map(len, rows))))
    parts, repeated = split_documents(rows, [size if path is not None else 0 for path in outputs[1:3]])
    left_out.rows.extend(("both", row[3], row[4], _SEEN, row[0]) for row in repeated)
    tables = [*zip(outputs[:3], parts, strict=True), (outputs[3], left_out.rows)]
    with ExitStack() as stack:
        for path, table in tables:
            if path is not None:
                head = _LEFT_HEAD if path is outputs[3] else HEAD
                write_table(stack.enter_context(atomic_output(path)), table, head)
    sure = [bead for bead in chain.from_iterable(beads) if bead.confidence >= task.min_confidence]
    return DocumentPairs(
        pairs={str(path): len(table) for path, table in tables[:3] if path is not None},
        documents=len(documents),
        share=sum(len(bead.src) for bead in sure) / max(1, sum(len(src.texts) for src, _ in documents)),
        left_out=left_out.by_reason(),
    )


def _listed(root: Path) -> dict[str, Path]:
    """Return the documents of a side by their names."""
    if root.is_file():
        return {root.name: root}
    files = documents_in(root)
    return {name: files.path / name for name in files.documents}


def _read(
    task: DocumentAlignment, sides: Sequence[Mapping[str, Path]], left_out: _LeftOut, report: Report
) -> Iterator[tuple[_Document, _Document]]:
    """Yield the sentences of documents that belong together; a document that cannot be read is left out."""
    if all(Path(path).is_file() for path in (task.source, task.target)):
        matched = [*zip(*sides, strict=True)]
    else:
        matched = [*_matched(sides, (task.src_lang, task.tgt_lang), left_out)]
    for number, names in enumerate(matched, start=1):
        read: dict[str, _Document] = {}
        for side, paths, name in zip(_SIDES, sides, names, strict=True):
            try:
                read[side] = _Document.read(paths[name], name)
            except HeedfulError as error:
                left_out.document(side, name, f"{_UNREADABLE}: {error}")
        if len(read) == len(_SIDES):
            yield read["source"], read["target"]
        else:
            for side, document in read.items():
                left_out.document(side, document.name, _PARTNER)
        report("read", number / len(matched))


def _matched(
    sides: Sequence[Mapping[str, Path]], codes: tuple[str | None, str | None], left_out: _LeftOut
) -> Iterator[tuple[str, str]]:
    """Yield the names of documents that belong together, in the order of the sources."""
    is_shared = sides[0] == sides[1]
    by_key: list[dict[str, str]] = []
    without_code: list[set[str]] = []
    for side, names, code in zip(_SIDES, sides, codes, strict=True):
        by_key.append({})
        without_code.append(set())
        for name in names:
            key, has_code = _key(name, code)
            if is_shared and not has_code:
                without_code[-1].add(name)
            elif by_key[-1].setdefault(key, name) != name:
                left_out.document(side, name, _TWICE)
    for name in sorted(without_code[0] & without_code[1]):
        left_out.document("source", name, _NO_CODE)
    for side, named, others in zip(_SIDES, by_key, by_key[::-1], strict=True):
        for key in sorted(named.keys() - others.keys()):
            left_out.document(side, named[key], _NOT_NAMED)
    yield from ((name, by_key[1][key]) for key, name in by_key[0].items() if key in by_key[1])


def _key(name: str, code: str | None) -> tuple[str, int]:
    """Return the name of a document without its ending and language, and whether it has the language."""
    stem = PurePath(name).with_suffix("").as_posix()
    if code is None:
        return stem, 0
    return re.subn(_CODE.format(re.escape(code)), "", stem)


def _translated(
    documents: Sequence[_Document], model: str | Path | None, report: Report
) -> Iterator[Sequence[str]]:
    """Yield the translations of the sentences of each document; without a model, none."""
    if model is None:
        yield from ([] for _ in documents)
        return
    translator = load_translator(Path(model), languages=Languages(), runtime=Runtime())
    for number, document in enumerate(documents, start=1):
        yield translator.translate(document.texts)
        report("translated", number / len(documents))


def _beads(
    documents: Sequence[tuple[_Document, _Document]],
    translated: Sequence[Sequence[str]],
    report: Callable[[float], object],
) -> list[list[Bead]]:
    """Return the beads of documents: of units with the same key, then those that are found in the rest."""
    known = [[*_beads_by_key(src.keyed, tgt.keyed)] for src, tgt in documents]
    rests = []
    for (src, tgt), beads in zip(documents, known, strict=True):
        used_src, used_tgt = (
            {*chain.from_iterable(side)} for side in ([b.src for b in beads], [b.tgt for b in beads])
        )
        rests.append((src.without(used_src), tgt.without(used_tgt)))
    sides = [
        (src.side(rest_src, own), tgt.side(rest_tgt))
        for (src, tgt), own, (rest_src, rest_tgt) in zip(documents, translated, rests, strict=True)
    ]
    found = find_beads(sides, on_progress=report)
    for beads, others, (src_numbers, tgt_numbers) in zip(known, found, rests, strict=True):
        beads.extend(
            Bead([src_numbers[at] for at in bead.src], [tgt_numbers[at] for at in bead.tgt], bead.confidence)
            for bead in others
        )
        beads.sort(key=lambda bead: (bead.src[0], bead.tgt[0]))
    return known


def _beads_by_key(src: Mapping[str, Sequence[int]], tgt: Mapping[str, Sequence[int]]) -> Iterator[Bead]:
    """Yield the beads of units with the same key: of their sentences, if both have as many, else of all."""
    for key in src.keys() & tgt.keys():
        if len(src[key]) == len(tgt[key]):
            yield from (Bead([one], [other], 1.0) for one, other in zip(src[key], tgt[key], strict=True))
        else:
            yield Bead(src[key], tgt[key], 1.0)


def _rows(
    src: _Document, tgt: _Document, beads: Sequence[Bead], least: float, left_out: _LeftOut
) -> list[Row]:
    """Return the rows of the pairs of two documents; all other sentences are left out."""
    sure = [bead for bead in beads if bead.confidence >= least]
    for side, document, found, used in (
        ("source", src, [bead.src for bead in beads], [bead.src for bead in sure]),
        ("target", tgt, [bead.tgt for bead in beads], [bead.tgt for bead in sure]),
    ):
        with_any, with_sure = ({number for numbers in some for number in numbers} for some in (found, used))
        left_out.sentences(side, document, sorted(with_any - with_sure), _UNSURE)
        left_out.sentences(side, document, sorted({*range(len(document.texts))} - with_any), _NO_COUNTERPART)
    return [
        (
            src.text(bead.src),
            tgt.text(bead.tgt),
            f"{bead.confidence:.3f}",
            src.name,
            f"{src.place(bead.src)}:{tgt.place(bead.tgt)}",
        )
        for bead in sure
    ]


def split_documents(
    documents: Sequence[Sequence[Row]], wanted: Sequence[int]
) -> tuple[list[list[Row]], list[Row]]:
    """Return the rows for training and for each held-out part, in whole documents, and the repeated rows.

    A row is repeated if it is held out, and its source is in an earlier part, too; it is in no part.

    Args:
        documents: the rows of each document.
        wanted: the number of rows of each held-out part; one of more has only one document, 0 has none.
    """
    order = random.Random(1).sample(range(len(documents)), len(documents))
    of_document: dict[int, int] = {}
    for part, size in enumerate(wanted, start=1):
        chosen = 0
        for number in sorted(order, key=lambda number: len(documents[number]) > size):
            num_rows = len(documents[number])
            fits = size > 0 and (chosen == 0 or chosen + num_rows <= size)
            if fits and number not in of_document:
                of_document[number] = part
                chosen += num_rows
    parts: list[list[Row]] = [[] for _ in (0, *wanted)]
    repeated: list[Row] = []
    seen: set[str] = set()
    for part, kept in enumerate(parts):
        rows = [
            row for number, rows in enumerate(documents) if of_document.get(number, 0) == part for row in rows
        ]
        for row in rows:
            (repeated if part and row[0] in seen else kept).append(row)
        seen.update(row[0] for row in rows)
    return parts, repeated


def write_table(file: BinaryIO, rows: Iterable[Row], head: Row = HEAD) -> None:
    """Write a table of pairs, or one with another head."""
    file.writelines(("\t".join(row) + "\n").encode() for row in (head, *rows))
