"""Inspect parallel text: faulty pairs, coverage, and the text without the faulty pairs."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from heedful.data.cleaning import (
    FILTERS,
    Filter,
    Pair,
    PairChecker,
    Survey,
    TextCounts,
    language_identifier,
    survey,
)
from heedful.data.files import PairFiles, Row
from heedful.errors import ConfigError, CorpusError, install_hint, suggestion
from heedful.interop.exporting import new_directory

Progress = Callable[[str, float], None]  # the current phase, and the progress, 0 to 1

REMOVED = "removed.tsv"
_OF_SURVEY = 0.3  # of the time
_FREQUENT = 10  # occurrences of a word that is worth an entry in a vocabulary
_SMALLEST_VOCABULARY, _LARGEST_VOCABULARY = 500, 32_000
_BYTES_OF_A_STRING = 64  # besides its characters, in Python


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """The text to inspect, and options.

    Attributes:
        train: the text.
        valid: the validation set, to find overlap.
        test: the test set, to find overlap.
        fix: a new directory for the text without faulty pairs; None: nothing is written.
        keep: names of filters whose pairs are kept there.
        remove: names of filters whose pairs are removed there.
        examples: how many to show of each filter.
        languages: the expected ones of source and target; None: found by the names of the files and the text.
    """

    train: PairFiles
    valid: PairFiles | None = None
    test: PairFiles | None = None
    fix: Path | None = None
    keep: Sequence[str] = ()
    remove: Sequence[str] = ()
    examples: int = 3
    languages: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True)
class Example:
    """A pair, and its line in the files, from 1."""

    line: int
    src: str
    tgt: str


@dataclass
class Finding:
    """Findings of a filter: the number of pairs, and a random sample of them (with a fixed seed)."""

    name: str
    finds: str
    removes: bool
    pairs: int = 0
    examples: list[Example] = field(default_factory=list)


@dataclass(frozen=True)
class TextSummary:
    """Statistics of the source or the target; words are separated by spaces."""

    language: str | None
    scripts: list[str]
    characters: int
    distinct_characters: int
    characters_seen_once: int
    words: int
    distinct_words: int
    words_seen_once: int


@dataclass(frozen=True)
class TextInspection:
    """The report on a text.

    Attributes:
        files: the names of the files.
        pairs: the number of pairs.
        faulty: the number of pairs that `--fix` removes.
        findings: of every applied filter, in the order of the registry.
        not_applied: why the others were not applied, by name.
        src: statistics of the source.
        tgt: statistics of the target.
        vocabulary: the number of words that occur ten times, rounded: a first guess at a vocabulary size.
        reading_mib: the memory that training needs to read the text.
        written: the files written by `--fix`.
    """

    files: list[str]
    pairs: int
    faulty: int
    findings: list[Finding]
    not_applied: dict[str, str]
    src: TextSummary
    tgt: TextSummary
    vocabulary: int
    reading_mib: float
    written: list[str]


def inspect_text(task: TextTask, on_progress: Progress | None = None) -> TextInspection:
    """Survey the text, check each pair, and write the text without the faulty pairs if requested.

    Raises:
        ConfigError: a filter or language is unknown.
        CorpusError: the text cannot be read, or no pair would be left.
        RunError: the output directory exists.
        InteropError: it cannot be written.
    """
    show = on_progress or (lambda what, done: None)
    removing = _removing(task)
    with _Output.open(task) as output:
        corpus = _survey(task, show)
        checker = PairChecker(corpus)
        findings = {
            each.name: Finding(each.name, each.finds, each.name in removing) for each in checker.applied
        }
        drawing = random.Random(0)
        faulty = 0
        for row in task.train.rows(lambda done: show("checking", _OF_SURVEY + (1.0 - _OF_SURVEY) * done)):
            names = checker.faults(Pair(row.src, row.tgt, row.number - 1))
            for name in names:
                _note(findings[name], row, task.examples, drawing)
            reasons = [name for name in names if name in removing]
            faulty += bool(reasons)
            output.write(row, reasons)
        if task.fix is not None and faulty == corpus.num_pairs:
            raise CorpusError(f"{task.train.name}: no pair would be left; see --keep")
    return TextInspection(
        files=list(map(str, task.train.paths)),
        pairs=corpus.num_pairs,
        faulty=faulty,
        findings=list(findings.values()),
        not_applied=_not_applied(task, checker),
        src=_summarise(corpus.src, corpus.languages[0]),
        tgt=_summarise(corpus.tgt, corpus.languages[1]),
        vocabulary=_vocabulary(corpus),
        reading_mib=_reading_mib(corpus),
        written=output.names,
    )


class _Output:
    """Files for clean pairs, and one for removed pairs; or none."""

    def __init__(self, directory: Path | None, names: Sequence[str]) -> None:
        self.names = [] if directory is None else [str(directory / name) for name in (*names, REMOVED)]
        self._clean: list[BinaryIO] = []
        self._removed: BinaryIO | None = None

    @classmethod
    @contextmanager
    def open(cls, task: TextTask) -> Iterator["_Output"]:
        names = [f"train{suffix}" for suffix in task.train.suffixes]
        output = cls(task.fix, names)
        if task.fix is None:
            yield output
            return
        with new_directory(task.fix, option="--fix") as directory, ExitStack() as stack:
            output._clean = [stack.enter_context((directory / name).open("wb")) for name in names]
            output._removed = stack.enter_context((directory / REMOVED).open("wb"))
            output._removed.write(b"line\tfilters\tsource\ttarget\n")
            yield output

    def write(self, row: Row, reasons: Sequence[str]) -> None:
        """Write a clean pair unchanged, and a removed one with its line and the reasons."""
        if not reasons:
            for file, raw in zip(self._clean, row.raw, strict=False):
                file.write(raw)
        elif self._removed is not None:
            columns = (str(row.number), ",".join(reasons), row.src, row.tgt)
            self._removed.write(
                ("\t".join(" ".join(c.splitlines()).replace("\t", " ") for c in columns) + "\n").encode()
            )


def _removing(task: TextTask) -> set[str]:
    known = {each.name for each in FILTERS}
    for name in (*task.keep, *task.remove):
        if name not in known:
            raise ConfigError(f"unknown filter {name!r}{suggestion(name, known)}")
    return ({each.name for each in FILTERS if each.removes} | set(task.remove)) - set(task.keep)


def _survey(task: TextTask, show: Progress) -> Survey:
    held_out: dict[str, Iterable[Row]] = {}
    for name, files in (("valid", task.valid), ("test", task.test)):
        if files is not None:
            held_out[name] = files.rows()
    return survey(
        task.train.rows(lambda done: show("surveying", _OF_SURVEY * done)),
        held_out=held_out,
        identifier=language_identifier(),
        languages=task.languages,
        files=task.train.paths if len(task.train.paths) == 2 else (),
    )


def _note(finding: Finding, row: Row, num_examples: int, drawing: random.Random) -> None:
    """Count a pair, and sample it as an example (reservoir sampling)."""
    finding.pairs += 1
    example = Example(row.number, row.src, row.tgt)
    if len(finding.examples) < num_examples:
        finding.examples.append(example)
    elif (slot := int(drawing.random() * finding.pairs)) < num_examples:
        finding.examples[slot] = example


def _not_applied(task: TextTask, checker: PairChecker) -> dict[str, str]:
    applied = {each.name for each in checker.applied}
    return {each.name: _why_not(each, task, checker) for each in FILTERS if each.name not in applied}


def _why_not(each: Filter, task: TextTask, checker: PairChecker) -> str:
    if each.name in checker.missing:
        return f"needs {checker.missing[each.name]}: {install_hint('clean')}"
    for name, files in (("valid", task.valid), ("test", task.test)):
        if each.name.endswith(f"in-{name}") and files is None:
            return f"needs --{name}-src and --{name}-tgt"
    if each.needs:
        return "source or target is not mostly in one language, or both are in the same; see --src-lang"
    return "the text is too short"


def _summarise(text: TextCounts, language: str | None) -> TextSummary:
    return TextSummary(
        language=language,
        scripts=sorted(text.scripts),
        characters=text.characters.total(),
        distinct_characters=len(text.characters),
        characters_seen_once=sum(count == 1 for count in text.characters.values()),
        words=text.num_words,
        distinct_words=len(text.words),
        words_seen_once=sum(count == 1 for count in text.words.values()),
    )


def _vocabulary(corpus: Survey) -> int:
    """Return the number of frequent words of source and target, rounded to hundreds."""
    frequent = {word for text in (corpus.src, corpus.tgt) for word, n in text.words.items() if n >= _FREQUENT}
    return min(max(round(len(frequent), -2), _SMALLEST_VOCABULARY), _LARGEST_VOCABULARY)


def _reading_mib(corpus: Survey) -> float:
    characters = corpus.src.characters.total() + corpus.tgt.characters.total()
    return (characters + 2 * corpus.num_pairs * _BYTES_OF_A_STRING) / 2**20
