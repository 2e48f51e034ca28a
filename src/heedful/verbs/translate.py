"""`heedful translate`: lines in, lines out."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import SamplingOverrides, SearchOverrides
from heedful.cli.streams import (
    Lines,
    check_stdin_once,
    open_input,
    open_output,
    print_precision,
    suggest_auto_precision,
    warnings_on_stderr,
    write_line,
)
from heedful.errors import InputError
from heedful.settings.options import (
    OUTPUT,
    SAMPLING,
    SEARCH,
    Ensemble,
    Languages,
    Option,
    Prefix,
    Run,
    Runtime,
    ShortlistFile,
    options_of,
)

if TYPE_CHECKING:
    from heedful.decoding.translation import Translation

_STDIN = Path("-")
_CHUNK_LINES = 1024
_HYPOTHESES_AT_ONCE = 65_536  # some 100 MB of them


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Translate lines, by default from stdin to stdout.

    Writes one line for each input line, in order; an empty line stays empty, with score 0. A score is the
    log-probability divided by the length penalty, plus the coverage penalty if there is one. N-best lists
    number the input lines from 0, as in Moses. With --json, each line is an object with the keys source,
    text, score and hypotheses. A hypothesis has text, score, log_prob (before the penalties) and ids, which
    score --tgt-ids reads. For a multilingual model, set --src-lang and --tgt-lang to its own tags, such as
    fra_Latn, or to short codes such as fr.

    A line of more than --max-source-tokens is split at ends of sentences, else at punctuation or spaces, with
    a warning. Each segment is translated by itself, the first one with the prefix. The outputs of each rank
    are joined and their log-probabilities added. The score is the mean of the segments' scores, weighted by
    tokens.
    """

    run: Run
    source: Annotated[
        Path | None,
        Option("Lines to translate; .gz too.", default="stdin", flags=("--input", "-i")),
    ] = None
    output: Annotated[
        Path | None,
        Option("Write the translations to this file.", default="stdout", flags=OUTPUT, is_file=True),
    ] = None
    n_best: Annotated[
        int,
        Option("Outputs per line; if above 1, printed as `number ||| text ||| score`.", minimum=1),
    ] = 1
    scores: Annotated[bool, Option("Print lines of `score<TAB>text`.")] = False
    json: Annotated[bool, Option("Print a JSON object for each line.")] = False
    line_buffered: Annotated[
        bool,
        Option(
            "Translate and flush each line at once, for use as a coprocess; slower. By default, 1,024 "
            "lines are translated together, unless the input is a terminal."
        ),
    ] = False
    ensemble: Ensemble = None
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    prefix: Prefix = None
    strategy: Annotated[
        str | None,
        Option(
            "Search strategy with its settings, as in mbr:samples=50,temperature=0.8. One of greedy, "
            "beam, diverse-beam, sampling, mbr, or one that another package registers. Unnamed "
            "settings have the strategy's defaults.",
            SEARCH,
            metavar="NAME[:KEY=VALUE,...]",
            default="the bundle's beam search",
        ),
    ] = None
    sample: Annotated[
        bool, Option("Sample each next token; --n-best says how many outputs to draw.", SAMPLING)
    ] = False
    sampling: SamplingOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    runtime: Runtime = field(default_factory=Runtime)


def translate(
    task: Translate,
    lines: Iterable[str],
    *,
    prefixes: Iterable[str] | None = None,
    chunk_lines: int = _CHUNK_LINES,
) -> "Iterator[Translation]":
    """Load a model, then translate line by line, in order, empty lines kept.

    Loading comes first, before any line is read and before anything is given.

    Args:
        task: the models, the search, and how to compute.
        lines: the source.
        prefixes: for each line, what its translations begin with.
        chunk_lines: how many lines are read and translated at a time; fewer where each has
            hundreds of hypotheses.

    Raises:
        BadParameter: options that say nothing together, or that exclude each other.
        BundleError: no usable bundle.
        InputError: settings that cannot be, models that cannot translate together, or a prefix that is
            missing or too long.
    """
    from heedful.verbs.loading import load_translator, search_options

    overrides = {**task.search, **_sampling(task), "n_best": task.n_best}
    translator = load_translator(
        task.run, task.languages, task.runtime, shortlist=task.shortlist, ensemble=task.ensemble or ()
    )
    if task.runtime.precision == "auto":
        print_precision(translator.precision_in_use)
    options = search_options(overrides, translator.bundle.config.decode)
    at_once = max(1, _HYPOTHESES_AT_ONCE // options.strategy.num_hypotheses(options.n_best))
    return translator.translate_lines(
        lines, options=options, prefixes=prefixes, chunk_lines=min(chunk_lines, at_once)
    )


def _sampling(task: Translate) -> dict[str, Any]:
    """Return the strategy in place of beam search and its settings; nothing where there is none.

    Raises:
        BadParameter: options that say nothing together, or that exclude each other.
    """
    from heedful.decoding.strategies.beam import DiverseBeamSearch
    from heedful.decoding.strategies.sampling import Sampling

    has_beam = not options_of(DiverseBeamSearch).keys().isdisjoint(task.search)
    if task.strategy is not None:
        if task.sampling or task.sample or has_beam:
            raise typer.BadParameter(
                "--strategy excludes the options of other searches; its settings follow its name, as in "
                "--strategy beam:beam_size=8"
            )
        return {"strategy": task.strategy}
    if not task.sample and "samples" not in task.sampling:
        if task.sampling:
            raise typer.BadParameter(f"{', '.join(_flags(Sampling))} need --sample or --mbr")
        return {}
    if has_beam:
        *others, last = _flags(DiverseBeamSearch)
        raise typer.BadParameter(
            f"--sample and --mbr exclude {', '.join(others)} and {last}; sampling needs no beam"
        )
    return {"sample": True, **task.sampling}


def _flags(strategy: type) -> list[str]:
    return [flag for name, option in options_of(strategy).items() for flag in option.flags_of(name)]


def command(task: Translate) -> None:
    """Translate a file or stdin; the lines before a bad one come out."""
    if task.scores and task.json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    check_stdin_once(input=task.source or _STDIN, prefix=task.prefix)
    _sampling(task)
    from heedful.verbs.output_checks import check_output

    started = time.monotonic()
    inputs = [task.source or _STDIN, task.prefix, task.shortlist]
    check_output(task.output, inputs=inputs, models=[task.run, *(task.ensemble or ())])
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        lines, prefixes = Lines(*stack.enter_context(open_input(task.source))), None
        if task.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(task.prefix))).strictly()
        # Somebody who types waits for each answer; a file is better read ahead, for fuller batches.
        typed = str(task.source or "-") == "-" and sys.stdin.isatty()
        at_once = typed or task.line_buffered
        translations = translate(task, lines, prefixes=prefixes, chunk_lines=1 if at_once else _CHUNK_LINES)
        out = stack.enter_context(open_output(task.output, at_once=at_once))
        for number, translation in enumerate(translations):
            for line in _shown(translation, number, task):
                write_line(out, line)
            if at_once:
                out.flush()
        out.flush()
        lines.raise_if_bad()
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{task.prefix}: has more lines than the input; give one for each line")
    if not typed:
        suggest_auto_precision(task.runtime.precision, time.monotonic() - started)


def _shown(translation: "Translation", number: int, task: Translate) -> Iterable[str]:
    if task.json:
        hypotheses = [
            {"text": each.text, "score": each.score, "log_prob": each.log_prob, "ids": each.written_ids}
            for each in translation.hypotheses
        ]
        yield json.dumps(
            {
                "source": translation.source,
                "text": translation.text,
                "score": translation.score,
                "hypotheses": hypotheses,
            },
            ensure_ascii=False,
        )
    elif task.n_best > 1:
        n_best = translation.hypotheses or (translation,)
        yield from (f"{number} ||| {each.text} ||| {each.score:.6f}" for each in n_best)
    elif task.scores:
        yield f"{translation.score:.6f}\t{translation.text}"
    else:
        yield translation.text
