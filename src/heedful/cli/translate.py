"""`heedful translate`: lines in, lines out."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import (
    Lines,
    open_input,
    open_output,
    tell_of_auto,
    tell_precision,
    warnings_on_stderr,
    write_line,
)
from heedful.errors import InputError
from heedful.settings.options import Option, Runtime, SamplingRequest, SearchRequest

if TYPE_CHECKING:
    from heedful.decoding.translation import Translation

_STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class Form:
    """How translations are written, and whether each is before the next line is read."""

    n_best: Annotated[
        int,
        Option("Outputs for each line; above 1 as lines of `number ||| text ||| score`.", minimum=1),
    ] = 1
    scores: Annotated[bool, Option("Lines of `score<TAB>text`.")] = False
    json: Annotated[bool, Option("One JSON object for each line.")] = False
    line_buffered: Annotated[
        bool,
        Option(
            "Answer each line before the next is read, for a program that waits; slower. Without it, 1,024 "
            "lines are translated together, unless somebody types them."
        ),
    ] = False


def translate(
    run: opt.Run,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Lines to translate; .gz too. [default: stdin]")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: stdout]")] = None,
    form: Form = Form(),
    ensemble: opt.Ensemble = None,
    search: SearchRequest = SearchRequest(),
    prefix: opt.Prefix = None,
    sampling: SamplingRequest = SamplingRequest(),
    runtime: Runtime = Runtime(),
) -> None:
    """Translate lines, by default from stdin to stdout.

    One line out for each line in, in order; an empty line stays empty, with score 0. A score is the model's
    log-probability over the length penalty, plus the coverage penalty where one is asked for. The n-best form
    numbers the input lines from 0, as Moses does. With --json, an object has the keys source, text, score and
    hypotheses; a hypothesis has text, score, log_prob (before the penalties) and ids, the tokens that were
    written, for score --tgt-ids. A model of many languages takes --src-lang and --tgt-lang, with its own tags
    for them, such as fra_Latn or fr.

    A line of more tokens than --max-source-tokens is split at ends of sentences, else at punctuation or
    spaces, with a warning. Its segments are translated by themselves, the first one with the prefix; outputs
    are joined by their rank, log-probabilities are added, and a score is the mean of the segments' scores,
    weighted by tokens.
    """
    if form.scores and form.json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    search = replace(search, n_best=form.n_best, sampling=_checked(sampling, search))
    _translate_files([run, *(ensemble or ())], _Files(source, prefix, output), form, search, runtime)


def _checked(sampling: SamplingRequest, search: SearchRequest) -> SamplingRequest | None:
    """Return the strategy in place of beam search; None where there is none.

    Raises:
        BadParameter: options that say nothing together, or that exclude each other.
    """
    beam = (search.beam_size, search.early_stopping, search.num_groups, search.diversity_penalty)
    has_beam = any(each is not None for each in beam)
    if sampling.strategy is not None:
        if sampling != SamplingRequest(strategy=sampling.strategy) or has_beam:
            raise typer.BadParameter(
                "--strategy excludes the options of other searches; its settings follow its name, as in "
                "--strategy beam:beam_size=8"
            )
        return sampling
    if not sampling.sample and sampling.mbr is None:
        if sampling != SamplingRequest():
            raise typer.BadParameter(
                "--temperature, --top-k, --top-p, --min-p, --epsilon, --seed need --sample or --mbr"
            )
        return None
    if has_beam:
        raise typer.BadParameter(
            "--sample and --mbr exclude --beam-size, --early-stopping, --num-groups and --diversity-penalty; "
            "sampling needs no beam"
        )
    return sampling


@dataclass(frozen=True)
class _Files:
    source: Path | None
    prefix: Path | None
    output: Path | None


def _translate_files(
    runs: Sequence[Path], files: _Files, form: Form, search: SearchRequest, runtime: Runtime
) -> None:
    from heedful.workflows.outputs import check_output
    from heedful.workflows.translate import translate as translate_lines

    started = time.monotonic()
    check_output(files.output, [files.source or _STDIN, files.prefix, search.shortlist], models=runs)
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        stream, name = stack.enter_context(open_input(files.source))
        lines, prefixes = Lines(stream, name), None
        if files.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(files.prefix))).strictly()
        # Somebody who types waits for each answer; a file is better read ahead, for fuller batches.
        typed = str(files.source or "-") == "-" and sys.stdin.isatty()
        at_once = typed or form.line_buffered
        translations = translate_lines(
            runs[0], lines, request=search, runtime=runtime, prefixes=prefixes, ensemble=runs[1:],
            chunk_lines=1 if at_once else 1024, on_precision=tell_precision,
        )  # fmt: skip
        out = stack.enter_context(open_output(files.output, at_once=at_once))
        for number, translation in enumerate(translations):
            for line in _render(translation, number, form):
                write_line(out, line)
            if at_once:
                out.flush()
        out.flush()
        lines.raise_if_bad()
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{files.prefix}: has more lines than the input; give one for each line")
    if not typed:
        tell_of_auto(runtime.precision, time.monotonic() - started)


def _render(translation: "Translation", number: int, form: Form) -> Iterable[str]:
    if form.json:
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
    elif form.n_best > 1:
        n_best = translation.hypotheses or (translation,)
        yield from (f"{number} ||| {each.text} ||| {each.score:.6f}" for each in n_best)
    elif form.scores:
        yield f"{translation.score:.6f}\t{translation.text}"
    else:
        yield translation.text
