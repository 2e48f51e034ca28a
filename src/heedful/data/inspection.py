"""`heedful inspect SRC TGT`: faulty pairs, coverage, and the text without the faulty pairs."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from heedful.data.cleaning import (
    FILTERS,
    Filter,
    Pair,
    PairChecker,
    Survey,
    TextCounts,
    draw,
    language_identifier,
    of_pair,
    survey,
)
from heedful.data.cleaning.pair import pair_filter
from heedful.data.files import PairFiles, Row, WantedLanguages
from heedful.errors import ConfigError, CorpusError, OptionError, install_hint, suggestion
from heedful.runtime.durable import new_directory
from heedful.settings.options import Filtering, HeldOutText
from heedful.text.round_trip import SAMPLE, RoundTrip, nmt_nfkc

Progress = Callable[[str, float], None]  # the current phase, and the progress, 0 to 1

REMOVED = "removed.tsv"
_OF_SURVEY = 0.3  # share of the time
_FREQUENT = 10  # occurrences of a word that is worth an entry in a vocabulary
_SPECIAL_TOKENS = 10  # padding, unknown, begin, end, the space, and some tags
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
        faulty: the number of pairs that `--fix` removes.
        findings: the findings of every applied filter, in the order of the registry.
        not_applied: why the others were not applied, by name.
        vocabulary: the number of words that occur at least ten times, rounded: a first guess at its size.
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


def _held_out_files(held_out: HeldOutText, languages: WantedLanguages) -> dict[str, PairFiles]:
    """Return the validation and test texts that are given, by name."""
    files = {}
    for name in ("valid", "test"):
        match [getattr(held_out, f"{name}_{part}") for part in ("src", "tgt", "pairs")]:
            case None, None, None:
                continue
            case None, None, pairs:
                paths: tuple[Path, ...] = (pairs,)
            case Path() as src, Path() as tgt, None:
                paths = (src, tgt)
            case _:
                raise OptionError(f"give both --{name}-src and --{name}-tgt, or --{name}-pairs")
        files[name] = PairFiles(paths, held_out.src_key, held_out.tgt_key, languages)
    return files


def inspect_text(
    paths: Sequence[Path],
    *,
    held_out: HeldOutText = HeldOutText(),
    filtering: Filtering = Filtering(),
    on_progress: Progress = lambda what, done: None,
) -> TextInspection:
    """Survey the text, check each pair, and write the text without the faulty pairs if requested."""
    languages = filtering.src_lang, filtering.tgt_lang
    train = PairFiles(tuple(paths), held_out.src_key, held_out.tgt_key, languages)
    others = _held_out_files(held_out, languages)
    removing, outputs = removed_filters(filtering), [f"train{suffix}" for suffix in train.suffixes]
    with _writer(filtering.fix, outputs, train.header) as write:
        corpus = survey(
            train.rows(lambda done: on_progress("surveying", _OF_SURVEY * done)),
            held_out={name: files.rows() for name, files in others.items()},
            identifier=language_identifier(),
            languages=languages,
            files=train.paths if train.kind == "lines" else (),
        )
        checker = PairChecker(corpus, filters=(*FILTERS, *_plugged(filtering)))
        findings = {
            each.name: Finding(each.name, each.finds, each.name in removing) for each in checker.applied
        }
        random, faulty, step = Random(0), 0, max(1, corpus.num_pairs // SAMPLE)
        normalized: list[tuple[str, str]] = []  # of some target lines
        rows = train.rows(lambda done: on_progress("checking", _OF_SURVEY + (1.0 - _OF_SURVEY) * done))
        for index, row in enumerate(rows):
            names = checker.faults(Pair(row.src, row.tgt, index=index))
            if index % step == 0:
                normalized.append((row.tgt, nmt_nfkc(row.tgt)))
            for name in names:
                found = findings[name]
                found.pairs += 1
                example = Example(row.number, row.src, row.tgt)
                draw(example, found.examples, size=filtering.examples, seen=found.pairs, random=random)
            reasons = [name for name in names if name in removing]
            faulty += bool(reasons)
            write(row, reasons)
        if filtering.fix is not None and faulty == corpus.num_pairs:
            raise CorpusError(f"{train.name}: no pair would be left; see --keep")
    characters = corpus.src.characters.total() + corpus.tgt.characters.total()
    return TextInspection(
        files=list(dict.fromkeys(map(str, train.paths))),
        pairs=corpus.num_pairs,
        faulty=faulty,
        findings=list(findings.values()),
        not_applied=_not_applied(findings, others, checker),
        src=_summarise(corpus.src, corpus.languages[0]),
        tgt=_summarise(corpus.tgt, corpus.languages[1]),
        vocabulary=_vocabulary(corpus),
        reading_mib=(characters + 2 * corpus.num_pairs * _BYTES_OF_A_STRING) / 2**20,
        rewritten=RoundTrip.between(normalized),
        written=[] if filtering.fix is None else [str(filtering.fix / name) for name in (*outputs, REMOVED)],
    )


@contextmanager
def _writer(
    fix: Path | None, names: Sequence[str], header: bytes
) -> Iterator[Callable[[Row, Sequence[str]], None]]:
    """Give a function that writes a clean pair unchanged, and a removed one with its line and the reasons."""
    if fix is None:
        yield lambda row, reasons: None
        return
    with new_directory(fix, option="--fix") as directory, ExitStack() as stack:
        *clean, removed = (stack.enter_context((directory / name).open("wb")) for name in (*names, REMOVED))
        removed.write(b"line\tfilters\tsource\ttarget\n")
        for file in clean:
            file.write(header)

        def write(row: Row, reasons: Sequence[str]) -> None:
            if reasons:
                columns = (str(row.number), ",".join(reasons), row.src, row.tgt)
                cells = (" ".join(each.splitlines()).replace("\t", " ") for each in columns)
                removed.write(("\t".join(cells) + "\n").encode())
                return
            for file, raw in zip(clean, row.raw, strict=True):
                file.write(raw)

        yield write


def _plugged(filtering: Filtering) -> list[Filter]:
    """Return the filters of plugins that the options name; ConfigError if there is none of that name."""
    named = dict.fromkeys((*(filtering.keep or ()), *(filtering.remove or ())))
    return [of_pair(name, pair_filter(name, "filter")) for name in named if ":" in name]


def removed_filters(filtering: Filtering) -> set[str]:
    """Return the names of the filters that remove pairs; raises if a name is wrong or contradictory."""
    removes = {applied.name: applied.removes for applied in FILTERS}
    keep, remove = filtering.keep or (), filtering.remove or ()
    if both := sorted({*keep} & {*remove}):
        raise OptionError(f"--keep {both[0]} and --remove {both[0]} contradict: give one of them")
    for name in (*keep, *remove):
        if name not in removes and ":" not in name:
            raise ConfigError(f"unknown filter {name!r}{suggestion(name, removes)}")
    return {name for name, is_removing in removes.items() if is_removing}.union(remove).difference(keep)


def _not_applied(
    findings: Mapping[str, Finding], held_out: Mapping[str, PairFiles], checker: PairChecker
) -> dict[str, str]:
    return {
        unused.name: _why_not(unused, held_out, checker) for unused in FILTERS if unused.name not in findings
    }


def _why_not(unused: Filter, held_out: Mapping[str, PairFiles], checker: PairChecker) -> str:
    if unused.name in checker.missing:
        return f"needs {checker.missing[unused.name]}: {install_hint('clean')}"
    for name in {"valid", "test"} - held_out.keys():
        if unused.name.endswith(f"in-{name}"):
            return f"needs --{name}-src and --{name}-tgt"
    if unused.needs:
        return "source or target is not mostly in one language, or both are in the same; see --src-lang"
    return "the text is too short"


def _summarise(text: TextCounts, language: str | None) -> TextSummary:
    return TextSummary(
        language=language,
        scripts=sorted(text.scripts),
        characters=text.characters.total(),
        distinct_characters=len(text.characters),
        characters_seen_once=[*text.characters.values()].count(1),
        words=text.num_words,
        distinct_words=len(text.words),
        words_seen_once=[*text.words.values()].count(1),
    )


def _vocabulary(corpus: Survey) -> int:
    """Return the number of characters, which a vocabulary must have, and of frequent words, in hundreds."""
    texts = corpus.src, corpus.tgt
    frequent = {word for text in texts for word, count in text.words.items() if count >= _FREQUENT}
    size = len(corpus.src.characters | corpus.tgt.characters) + len(frequent) + _SPECIAL_TOKENS
    return min(max(math.ceil(size / 100) * 100, _SMALLEST_VOCABULARY), _LARGEST_VOCABULARY)


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
        f"  vocab     {result.vocabulary:,} as a first guess at tokenizer.vocab_size: all characters, and "
        f"words that occur at least {_FREQUENT} times"
    )
    if result.rewritten.num_changed:
        yield f"  rewritten {result.rewritten}, if tokenizer.normalization=nmt_nfkc; by default none"
    yield f"  epoch     {result.tgt.words:,} target words"
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
    """Return the beginning of a sentence, with escapes for what cannot be printed."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: _WIDTH + 1])
    return shown if len(text) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _outcome(result: TextInspection) -> Iterator[str]:
    remaining = result.pairs - result.faulty
    share = result.faulty / max(result.pairs, 1)
    if not result.written:
        yield f"--fix DIR would remove {result.faulty:,} pairs ({share:.2%}) and keep {remaining:,}"
        return
    yield f"removed     {result.faulty:,} pairs ({share:.2%}); why: {result.written[-1]}"
    yield f"kept        {remaining:,} pairs in {os.path.commonpath(result.written)}"
    yield from (f"  {path}" for path in result.written[:-1])
