"""The report of `heedful inspect` on parallel text, as lines for a terminal."""

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.workflows.inspect_text import Finding, TextInspection, TextSummary

_WIDTH = 60  # characters of each sentence of an example


def report_lines(result: "TextInspection") -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"text        {' and '.join(result.files)}"
    yield f"  pairs     {result.pairs:,}"
    yield f"  source    {_text_line(result.src)}"
    yield f"  target    {_text_line(result.tgt)}"
    yield "filters          pairs    share   (- those that --fix keeps)"
    for finding in result.findings:
        if finding.pairs:
            yield from _finding_lines(finding, result.pairs)
    if nothing := [finding.name for finding in result.findings if not finding.pairs]:
        yield f"  nothing   {', '.join(nothing)}"
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
    yield f"  words     {result.vocabulary:,} occur ten times: a first guess at tokenizer.vocab_size"
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


def _text_line(summary: "TextSummary") -> str:
    scripts = ", ".join(script.capitalize() for script in summary.scripts) or "no letters"
    return f"{summary.language or 'language unknown'}, {scripts}"


def _finding_lines(finding: "Finding", pairs: int) -> Iterator[str]:
    mark = " " if finding.removes else "-"
    share = finding.pairs / pairs
    yield f"{mark} {finding.name:<20}{finding.pairs:>8,} {share:>8.2%}   {finding.finds}"
    for example in finding.examples:
        yield f"    {example.line:,}: {_shorten(example.src)} | {_shorten(example.tgt)}"


def _shorten(text: str) -> str:
    """Truncate a sentence for display, and escape control characters."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: _WIDTH + 1])
    return shown if len(text) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _bench(result: "TextInspection") -> str:
    if len(result.files) == 1:
        return "heedful bench train"
    src, tgt = map(shlex.quote, result.files)
    return f"heedful bench train --src {src} --tgt {tgt}"


def _outcome(result: "TextInspection") -> Iterator[str]:
    remaining = result.pairs - result.faulty
    share = result.faulty / max(result.pairs, 1)
    if not result.written:
        yield f"--fix DIR would remove {result.faulty:,} pairs ({share:.2%}) and keep {remaining:,}"
        return
    yield f"removed     {result.faulty:,} pairs ({share:.2%}); why: {result.written[-1]}"
    yield f"kept        {remaining:,} pairs in {os.path.commonpath(result.written)}"
    yield from (f"  {path}" for path in result.written[:-1])
