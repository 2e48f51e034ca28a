"""`heedful translate`: lines in, lines out."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import Lines, open_input, open_output, tell_of_auto, tell_precision, write_line
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.translation import Translation
    from heedful.workflows.loading import Runtime, SearchWishes


def translate(
    run: opt.Run,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Lines to translate; .gz too. [default: stdin]")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: stdout]")] = None,
    n_best: opt.NBest = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Lines of `score<TAB>text`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each line.")] = False,
    line_buffered: opt.LineBuffered = False,
    ensemble: opt.Ensemble = None,
    src_lang: opt.SrcLang = None,
    tgt_lang: opt.TgtLang = None,
    beam_size: opt.BeamSize = None,
    length_penalty: opt.LengthPenalty = None,
    length_normalization: opt.LengthNormalization = None,
    coverage_penalty: opt.CoveragePenalty = None,
    early_stopping: opt.EarlyStopping = None,
    num_groups: opt.NumGroups = None,
    diversity_penalty: opt.DiversityPenalty = None,
    max_length_offset: opt.MaxLengthOffset = None,
    max_length: opt.MaxLength = None,
    min_length: opt.MinLength = None,
    no_repeat_ngram_size: opt.NoRepeatNgramSize = None,
    repetition_penalty: opt.RepetitionPenalty = None,
    replace_unknown: opt.ReplaceUnknown = False,
    prefix: opt.Prefix = None,
    sample: opt.Sample = False,
    temperature: opt.Temperature = None,
    top_k: opt.TopK = None,
    top_p: opt.TopP = None,
    min_p: opt.MinP = None,
    epsilon: opt.Epsilon = None,
    seed: opt.Seed = None,
    mbr: opt.Mbr = None,
    batch_tokens: opt.BatchTokens = None,
    threads: opt.Threads = None,
    precision: opt.Precision = "float32",
    engine: opt.Engine = "auto",
    shortlist: opt.Shortlist = None,
    device: opt.Device = "auto",
) -> None:
    """Translate lines, from stdin to stdout unless told otherwise.

    One line out for each line in, in order; an empty line stays empty, with score 0. A score is the model's
    log-probability over the length penalty, plus the coverage penalty where one is asked for. The n-best form
    numbers the input lines from 0, as Moses does. With --json, an object has the keys source, text, score and
    hypotheses; a hypothesis has text, score, log_prob (before the penalties) and ids, the pieces that were
    written, for score --tgt-ids. A model of many languages takes --src-lang and --tgt-lang, with its own tags
    for them, such as fra_Latn or fr.
    """
    from heedful.workflows.loading import Runtime, SamplingWishes, SearchWishes

    if scores and as_json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    chance = SamplingWishes(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, epsilon=epsilon, seed=seed
    )
    sample = sample or mbr is not None
    if chance != SamplingWishes() and not sample:
        raise typer.BadParameter("--temperature, --top-k, --top-p, --min-p, --epsilon, --seed need --sample")
    if sample and beam_size is not None:
        raise typer.BadParameter("--beam-size and --sample or --mbr exclude each other; chance needs no beam")
    wishes = SearchWishes(
        beam_size=beam_size, n_best=n_best, length_penalty=length_penalty,
        length_normalization=length_normalization, coverage_penalty=coverage_penalty,
        early_stopping=early_stopping, max_length_offset=max_length_offset, max_length=max_length,
        min_length=min_length, no_repeat_ngram_size=no_repeat_ngram_size,
        repetition_penalty=repetition_penalty, replace_unknown=replace_unknown or None, shortlist=shortlist,
        num_groups=num_groups, diversity_penalty=diversity_penalty,
        sampling=chance if sample else None, mbr_samples=mbr, src_lang=src_lang, tgt_lang=tgt_lang,
    )  # fmt: skip
    runtime = Runtime(
        precision=precision, engine=engine, device=device, threads=threads, batch_tokens=batch_tokens
    )
    form = _Form(n_best=n_best, scores=scores, as_json=as_json, line_buffered=line_buffered)
    _translate_files([run, *(ensemble or ())], _Files(source, prefix, output), form, wishes, runtime)


@dataclass(frozen=True)
class _Files:
    source: Path | None
    prefix: Path | None
    output: Path | None


@dataclass(frozen=True, kw_only=True)
class _Form:
    """How a translation is written, and whether each is before the next line is read."""

    n_best: int
    scores: bool
    as_json: bool
    line_buffered: bool


def _translate_files(
    runs: Sequence[Path], files: _Files, form: _Form, wishes: "SearchWishes", runtime: "Runtime"
) -> None:
    from heedful.workflows.outputs import check_output
    from heedful.workflows.translate import translate as translate_lines

    started = time.monotonic()
    if files.output is not None:
        check_output(files.output, [files.source, files.prefix, wishes.shortlist])
    with ExitStack() as stack:
        stream, name = stack.enter_context(open_input(files.source))
        lines, prefixes = Lines(stream, name), None
        if files.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(files.prefix))).strictly()
        # Somebody who types waits for each answer; a file is better read ahead, for fuller batches.
        typed = str(files.source or "-") == "-" and sys.stdin.isatty()
        at_once = typed or form.line_buffered
        translations = translate_lines(
            runs[0], lines, wishes=wishes, runtime=runtime, prefixes=prefixes, ensemble=runs[1:],
            chunk_lines=1 if at_once else 1024, told=tell_precision,
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


def _render(translation: "Translation", number: int, form: _Form) -> Iterable[str]:
    if form.as_json:
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
        found = [(h.text, h.score) for h in translation.hypotheses] or [(translation.text, translation.score)]
        yield from (f"{number} ||| {text} ||| {score:.6f}" for text, score in found)
    elif form.scores:
        yield f"{translation.score:.6f}\t{translation.text}"
    else:
        yield translation.text
