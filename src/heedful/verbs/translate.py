"""`heedful translate`: lines in, lines out."""

import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

from heedful.cli.options import SamplingOverrides, SearchOverrides, sampling_overrides
from heedful.cli.streams import (
    check_stdin_once,
    notify,
    print_json,
    print_table,
    suggest_auto_precision,
    translation_display,
    warnings_on_stderr,
)
from heedful.settings.options import KEEPING, SAMPLING, SEARCH, Option, Run
from heedful.tasks.options import TranslationOptions


@dataclass(frozen=True, kw_only=True)
class Translate(TranslationOptions):
    """Translate lines, by default from stdin to stdout.

    Writes one line for each input line, in order; an empty line stays empty, with score 0. A score is the
    log-probability divided by the length penalty, plus the coverage penalty if there is one. N-best lists
    number the input lines from 0, as in Moses. With --json, each line is an object with the keys source,
    text, score, confidence and hypotheses. A hypothesis has text, score, log_prob (before penalties), ids
    (score --tgt-ids reads them), finished, alignment and confidence. It is not finished if its length limit
    has cut it; a warning says how many lines are. An alignment has pairs of a source and a target word, both
    from 0. Confidence has values for the sentence, its words between spaces and its tokens without the end.
    It is null without calibration (docs/confidence.md). With --glossary there is the key terms. With --memory
    there is memory: the share, source and target of the match, or null; a text that it translates has score 0
    and no hypotheses. With --markup, there is no alignment. For a multilingual model, set --src-lang and
    --tgt-lang to its own tags (fra_Latn) or to short codes (fr).

    A line of more than --max-source-tokens is split at ends of sentences, else at punctuation or spaces, with
    a warning. Each segment is translated by itself, the first one with the prefix. The outputs of each rank
    are joined and their log-probabilities added. The score is the mean of the segments' scores, weighted by
    tokens.

    Examples:
        heedful translate runs/en-de -i news.en -o news.de
        heedful translate runs/en-de --document report.docx -o report.de.docx
    """

    run: Run
    search: SearchOverrides = field(default_factory=dict)
    strategy: Annotated[
        str | None,
        Option(
            "Search strategy with its settings, as in mbr:samples=50,temperature=0.8. One of greedy, "
            "beam, diverse-beam, sampling, mbr, or a search of a plugin, PLUGIN:NAME. Unnamed settings "
            "have the strategy's defaults.",
            SEARCH,
            metavar="NAME[:KEY=VALUE,...]",
            default="the bundle's beam search",
        ),
    ] = None
    sample: Annotated[
        bool, Option("Sample each next token; --n-best says how many outputs to draw.", SAMPLING)
    ] = False
    sampling: SamplingOverrides = field(default_factory=dict)
    marks: Annotated[
        bool,
        Option(
            "Translate nothing: list the marks that stay as they are (placeholders, codes, what --keep says) "
            "and what looks like a mark but is translated; with --json, as an object.",
            KEEPING,
        ),
    ] = False


def command(task: Translate) -> None:
    """Translate a file or stdin, a document, or shards, and print what was done of a directory."""
    if task.marks:
        _print_marks(task)
        return
    from heedful.tasks.translate import translate

    chosen = sampling_overrides(task.search, task.sampling, sample=task.sample, strategy=task.strategy)
    task = replace(task, search={**task.search, **chosen})
    source = Path(task.source or "-")
    is_document = task.document is not None
    # Interactive input is translated line by line; a file is better read ahead, for fuller batches.
    typed = not is_document and source == Path("-") and sys.stdin.isatty()
    if not is_document:
        check_stdin_once(input=source, prefix=task.prefix)
        task = replace(task, line_buffered=typed or task.line_buffered)
    started = time.monotonic()
    with warnings_on_stderr():
        outcome = translate(task.run, task, notify=notify, display=translation_display)
    if outcome is None:
        if not is_document and not typed:
            suggest_auto_precision(task.runtime.precision, time.monotonic() - started)
        return
    if not is_document:  # shards
        outcome.raise_if_failed()
    notify(outcome)
    if is_document and task.json:
        print_json(outcome.as_dict())
    outcome.raise_if_failed()


def _print_marks(task: Translate) -> None:
    """Print the marks of the input by kind: what stays as it is, and what is translated."""
    from heedful.tasks.marks import list_marks

    source = task.document or task.source or "-"
    is_document = task.document is not None
    kinds = list_marks(
        source, document=is_document, column=task.column, keep=task.keep, keep_file=task.keep_file
    )
    if task.json:
        print_json({"marks": [asdict(kind) for kind in kinds]})
        return
    rows = [
        ["kept" if kind.kept else "translated", f"{kind.count:,}", kind.kind, kind.first, kind.example[:60]]
        for kind in kinds
    ]
    print_table([["", "count", "kind", "first", "example"], *rows], align=str.ljust)
