"""The report of `heedful inspect` on parallel text, as lines for a terminal."""

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.workflows.inspect_text import Finding, TextInspection, TextSummary

_WIDTH = 60  # characters of each side of an example


def report_lines(found: "TextInspection") -> Iterator[str]:
    """Give the report, line by line."""
    yield f"text        {' and '.join(found.files)}"
    yield f"  pairs     {found.pairs:,}"
    yield f"  source    {_side_line(found.src)}"
    yield f"  target    {_side_line(found.tgt)}"
    yield "filters          pairs    share   (- those that --fix keeps)"
    for finding in found.findings:
        if finding.pairs:
            yield from _finding_lines(finding, found.pairs)
    if nothing := [finding.name for finding in found.findings if not finding.pairs]:
        yield f"  nothing   {', '.join(nothing)}"
    by_reason: dict[str, list[str]] = {}
    for name, reason in found.not_applied.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"  not run   {', '.join(names)}: {reason}"
    yield f"coverage           {'source':>12} {'target':>12}"
    for label, attribute in _COVERAGE:
        src, tgt = (getattr(side, attribute) for side in (found.src, found.tgt))
        yield f"  {label:<17}{src:>12,} {tgt:>12,}"
    yield "training"
    yield f"  reading   takes about {found.reading_mib:,.0f} MiB of memory"
    yield f"  words     {found.vocabulary:,} occur ten times: a first guess at tokenizer.vocab_size"
    yield f"  epoch     {found.tgt.words:,} target words; how long that takes here: {_bench(found)}"
    yield from _outcome(found)


_COVERAGE = (
    ("characters", "characters"),
    ("  different", "distinct_characters"),
    ("  seen once", "characters_seen_once"),
    ("words", "words"),
    ("  different", "distinct_words"),
    ("  seen once", "words_seen_once"),
)


def _side_line(side: "TextSummary") -> str:
    scripts = ", ".join(script.capitalize() for script in side.scripts) or "no letters"
    return f"{side.language or 'language unknown'}, {scripts}"


def _finding_lines(finding: "Finding", pairs: int) -> Iterator[str]:
    mark = " " if finding.removes else "-"
    share = finding.pairs / pairs
    yield f"{mark} {finding.name:<20}{finding.pairs:>8,} {share:>8.2%}   {finding.finds}"
    for example in finding.examples:
        yield f"    {example.line:,}: {_shorten(example.src)} | {_shorten(example.tgt)}"


def _shorten(text: str) -> str:
    """Cut a sentence for display, and make visible what a terminal would obey."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[: _WIDTH + 1])
    return shown if len(text) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _bench(found: "TextInspection") -> str:
    if len(found.files) == 1:
        return "heedful bench train"
    src, tgt = map(shlex.quote, found.files)
    return f"heedful bench train --src {src} --tgt {tgt}"


def _outcome(found: "TextInspection") -> Iterator[str]:
    kept = found.pairs - found.faulty
    share = found.faulty / max(found.pairs, 1)
    if not found.written:
        yield f"--fix DIR would remove {found.faulty:,} pairs ({share:.2%}) and keep {kept:,}"
        return
    yield f"removed     {found.faulty:,} pairs ({share:.2%}); why: {found.written[-1]}"
    yield f"kept        {kept:,} pairs in {os.path.commonpath(found.written)}"
    yield from (f"  {path}" for path in found.written[:-1])
