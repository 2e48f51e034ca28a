"""`heedful inspect SRC TGT`: faulty pairs, coverage, and the text without the faulty pairs."""

import os
import random
import shlex
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
    of_pair,
    survey,
)
from heedful.data.cleaning.pair import pair_filter
from heedful.data.files import PairFiles, Row
from heedful.errors import ConfigError, CorpusError, OptionError, install_hint, suggestion
from heedful.runtime.durable import new_directory
from heedful.settings.options import Filtering, HeldOutText
from heedful.text.round_trip import SAMPLE, RoundTrip, nmt_nfkc

Progress = Callable[[str, float], None]  # the current phase, and the progress, 0 to 1

REMOVED = "removed.tsv"
_OF_SURVEY = 0.3  # of the time
_FREQUENT = 10  # occurrences of a word that is worth an entry in a vocabulary
_SMALLEST_VOCABULARY, _LARGEST_VOCABULARY = 500, 32_000
_BYTES_OF_A_STRING = 64  # besides its characters, in Python
_WIDTH = 60  # characters of each sentence of an example


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
        vocabulary: the number of words that occur at least ten times, rounded: a first guess at a vocabulary
            size.
        reading_mib: the memory that training needs to read the text.
        rewritten: the target lines, in a sample, that tokenizer.normalization=nmt_nfkc rewrites.
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
    rewritten: RoundTrip
    written: list[str]


@dataclass(frozen=True)
class _Texts:
    """The text to inspect, and those that it may overlap."""

    train: PairFiles
    valid: PairFiles | None
    test: PairFiles | None

    @classmethod
    def of(cls, paths: Sequence[Path], held_out: HeldOutText) -> "_Texts":
        """Return the files of the options.

        Raises:
            OptionError: one of two files is missing, or there are too many.
        """
        keys = held_out.src_key, held_out.tgt_key

        def files(name: str) -> PairFiles | None:
            src, tgt, pairs = (getattr(held_out, f"{name}_{each}") for each in ("src", "tgt", "pairs"))
            if (src is None) != (tgt is None) or (src is not None and pairs is not None):
                raise OptionError(f"give both --{name}-src and --{name}-tgt, or --{name}-pairs")
            chosen = tuple(path for path in (src, tgt, pairs) if path is not None)
            return PairFiles(chosen, *keys) if chosen else None

        return cls(PairFiles(tuple(paths), *keys), files("valid"), files("test"))


def inspect_text(
    paths: Sequence[Path],
    *,
    held_out: HeldOutText = HeldOutText(),
    filtering: Filtering = Filtering(),
    on_progress: Progress = lambda what, done: None,
) -> TextInspection:
    """Survey the text, check each pair, and write the text without the faulty pairs if requested.

    Raises:
        OptionError: options that contradict each other.
        ConfigError: a filter or language is unknown.
        CorpusError: the text cannot be read, or no pair would be left.
        RunError: the output directory exists.
        InteropError: it cannot be written.
    """
    texts = _Texts.of(paths, held_out)
    removing = removed_filters(filtering)
    with _Output.open(texts.train, filtering.fix) as output:
        corpus = _survey(texts, filtering, on_progress)
        checker = PairChecker(corpus, filters=(*FILTERS, *_plugged(filtering)))
        findings = {
            each.name: Finding(each.name, each.finds, each.name in removing) for each in checker.applied
        }
        drawing = random.Random(0)
        faulty, step = 0, max(1, corpus.num_pairs // SAMPLE)
        normalized: list[tuple[str, str]] = []  # of some target lines
        rows = texts.train.rows(lambda done: on_progress("checking", _OF_SURVEY + (1.0 - _OF_SURVEY) * done))
        for index, row in enumerate(rows):
            names = checker.faults(Pair(row.src, row.tgt, index=index))
            normalized += [(row.tgt, nmt_nfkc(row.tgt))] if index % step == 0 else []
            for name in names:
                _note(findings[name], row, filtering.examples, drawing)
            reasons = [name for name in names if name in removing]
            faulty += bool(reasons)
            output.write(row, reasons)
        if filtering.fix is not None and faulty == corpus.num_pairs:
            raise CorpusError(f"{texts.train.name}: no pair would be left; see --keep")
    return TextInspection(
        files=list(map(str, texts.train.paths)),
        pairs=corpus.num_pairs,
        faulty=faulty,
        findings=list(findings.values()),
        not_applied=_not_applied(texts, checker),
        src=_summarise(corpus.src, corpus.languages[0]),
        tgt=_summarise(corpus.tgt, corpus.languages[1]),
        vocabulary=_vocabulary(corpus),
        reading_mib=_reading_mib(corpus),
        rewritten=RoundTrip.between(normalized),
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
    def open(cls, train: PairFiles, fix: Path | None) -> Iterator["_Output"]:
        names = [f"train{suffix}" for suffix in train.suffixes]
        output = cls(fix, names)
        if fix is None:
            yield output
            return
        with new_directory(fix, option="--fix") as directory, ExitStack() as stack:
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


def _plugged(filtering: Filtering) -> list[Filter]:
    """Return the filters of plugins that the options name.

    Raises:
        ConfigError: there is no such filter.
    """
    named = dict.fromkeys((*(filtering.keep or ()), *(filtering.remove or ())))
    return [of_pair(name, pair_filter(name, "filter")) for name in named if ":" in name]


def removed_filters(filtering: Filtering) -> set[str]:
    """Return the names of the filters whose pairs `--fix` removes.

    Raises:
        OptionError: one that is both kept and removed.
        ConfigError: one that does not exist.
    """
    known = {each.name for each in FILTERS}
    keep, remove = filtering.keep or (), filtering.remove or ()
    if both := sorted({*keep} & {*remove}):
        raise OptionError(f"--keep {both[0]} and --remove {both[0]} contradict: give one of them")
    for name in (*keep, *remove):
        if name not in known and ":" not in name:
            raise ConfigError(f"unknown filter {name!r}{suggestion(name, known)}")
    return ({each.name for each in FILTERS if each.removes} | {*remove}) - {*keep}


def _survey(texts: _Texts, filtering: Filtering, show: Progress) -> Survey:
    held_out: dict[str, Iterable[Row]] = {}
    for name, files in (("valid", texts.valid), ("test", texts.test)):
        if files is not None:
            held_out[name] = files.rows()
    return survey(
        texts.train.rows(lambda done: show("surveying", _OF_SURVEY * done)),
        held_out=held_out,
        identifier=language_identifier(),
        languages=(filtering.src_lang, filtering.tgt_lang),
        files=texts.train.paths if len(texts.train.paths) == 2 else (),
    )


def _note(finding: Finding, row: Row, num_examples: int, drawing: random.Random) -> None:
    """Count a pair, and sample it as an example (reservoir sampling)."""
    finding.pairs += 1
    example = Example(row.number, row.src, row.tgt)
    if len(finding.examples) < num_examples:
        finding.examples.append(example)
    elif (slot := int(drawing.random() * finding.pairs)) < num_examples:
        finding.examples[slot] = example


def _not_applied(texts: _Texts, checker: PairChecker) -> dict[str, str]:
    applied = {each.name for each in checker.applied}
    return {each.name: _why_not(each, texts, checker) for each in FILTERS if each.name not in applied}


def _why_not(each: Filter, texts: _Texts, checker: PairChecker) -> str:
    if each.name in checker.missing:
        return f"needs {checker.missing[each.name]}: {install_hint('clean')}"
    for name, files in (("valid", texts.valid), ("test", texts.test)):
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


def report_lines(result: TextInspection) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"text        {' and '.join(result.files)}"
    yield f"  pairs     {result.pairs:,}"
    yield f"  source    {_text_line(result.src)}"
    yield f"  target    {_text_line(result.tgt)}"
    yield "filters          pairs    share   (-: reported only, kept by --fix)"
    for finding in result.findings:
        if finding.pairs:
            yield from _finding_lines(finding, result.pairs)
    if nothing := [finding.name for finding in result.findings if not finding.pairs]:
        yield f"  no findings: {', '.join(nothing)}"
    by_reason: dict[str, list[str]] = {}
    for name, reason in result.not_applied.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"  not run   {', '.join(names)}: {reason}"
    yield f"coverage           {'source':>12} {'target':>12}"
    for label, attribute in _COVERAGE:
        src, tgt = (getattr(summary, attribute) for summary in (result.src, result.tgt))
        yield f"  {label:<17}{src:>12,} {tgt:>12,}"
    yield "training"
    yield f"  reading   takes about {result.reading_mib:,.0f} MiB of memory"
    yield (
        f"  vocab     {result.vocabulary:,}: a first guess at tokenizer.vocab_size, about as many as words "
        f"occur at least {_FREQUENT} times"
    )
    if result.rewritten.num_changed:
        yield f"  rewritten {result.rewritten}, if tokenizer.normalization=nmt_nfkc; by default none"
    yield f"  epoch     {result.tgt.words:,} target words; to measure its time: {_bench(result)}"
    yield from _outcome(result)


_COVERAGE = (
    ("characters", "characters"),
    ("  different", "distinct_characters"),
    ("  seen once", "characters_seen_once"),
    ("words", "words"),
    ("  different", "distinct_words"),
    ("  seen once", "words_seen_once"),
)


def _text_line(summary: TextSummary) -> str:
    scripts = ", ".join(script.capitalize() for script in summary.scripts) or "no letters"
    return f"{summary.language or 'language unknown'}, {scripts}"


def _finding_lines(finding: Finding, pairs: int) -> Iterator[str]:
    mark = " " if finding.removes else "-"
    share = finding.pairs / pairs
    yield f"{mark} {finding.name:<20}{finding.pairs:>8,} {share:>8.2%}   {finding.finds}"
    for example in finding.examples:
        yield f"    {example.line:,}: {_shorten(example.src)} | {_shorten(example.tgt)}"


def _shorten(text: str) -> str:
    """Truncate a sentence for display, and escape control characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: _WIDTH + 1])
    return shown if len(text) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _bench(result: TextInspection) -> str:
    if len(result.files) == 1:
        return "heedful bench train"
    src, tgt = map(shlex.quote, result.files)
    return f"heedful bench train --src {src} --tgt {tgt}"


def _outcome(result: TextInspection) -> Iterator[str]:
    remaining = result.pairs - result.faulty
    share = result.faulty / max(result.pairs, 1)
    if not result.written:
        yield f"--fix DIR would remove {result.faulty:,} pairs ({share:.2%}) and keep {remaining:,}"
        return
    yield f"removed     {result.faulty:,} pairs ({share:.2%}); why: {result.written[-1]}"
    yield f"kept        {remaining:,} pairs in {os.path.commonpath(result.written)}"
    yield from (f"  {path}" for path in result.written[:-1])
