"""`heedful translate`: lines in, lines out."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import Lines, open_input, open_output, write_line
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.translator import Translation


def translate(
    run: opt.Run,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", help="Lines to translate; .gz too. [default: stdin]")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: stdout]")] = None,
    beam_size: opt.BeamSize = None,
    length_penalty: opt.LengthPenalty = None,
    length_normalization: opt.LengthNormalization = None,
    early_stopping: opt.EarlyStopping = None,
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Outputs for each line; above 1 as lines of `number ||| text ||| score`."),
    ] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Lines of `score<TAB>text`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each line.")] = False,
    max_length_offset: opt.MaxLengthOffset = None,
    src_lang: opt.SrcLang = None,
    tgt_lang: opt.TgtLang = None,
    batch_tokens: opt.BatchTokens = None,
    threads: opt.Threads = None,
    precision: opt.Precision = "float32",
    device: opt.Device = "auto",
) -> None:
    """Translate lines, from stdin to stdout unless told otherwise.

    One line out for each line in, in order; an empty line stays empty, with score 0. A score is the
    log-probability over the length penalty. The n-best form numbers the input lines from 0, as Moses does.
    With --json, an object has the keys source, text, score and hypotheses. A model of many languages takes
    --src-lang and --tgt-lang, with its own tags for them, such as fra_Latn or fr.
    """
    from heedful.workflows.loading import Runtime, SearchWishes
    from heedful.workflows.translate import translate as translate_lines

    if scores and as_json:
        raise typer.BadParameter("--scores and --json exclude each other; JSON holds the scores")
    if source is not None and output is not None and source.exists() and source.resolve() == output.resolve():
        raise InputError(f"{output}: is the input too; write to another file")
    wishes = SearchWishes(
        beam_size=beam_size,
        n_best=n_best,
        length_penalty=length_penalty,
        length_normalization=length_normalization,
        early_stopping=early_stopping,
        max_length_offset=max_length_offset,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
    )
    runtime = Runtime(precision=precision, device=device, threads=threads, batch_tokens=batch_tokens)
    with open_input(source) as (stream, name):
        lines = Lines(stream, name)
        # Somebody who types waits for each answer; a file is better read ahead, for fuller batches.
        typed = source is None and sys.stdin.isatty()
        translations = translate_lines(
            run, lines, wishes=wishes, runtime=runtime, chunk_lines=1 if typed else 1024
        )
        with open_output(output) as out:
            for number, translation in enumerate(translations):
                for line in _render(translation, number, n_best=n_best, scores=scores, as_json=as_json):
                    write_line(out, line)
                if typed:
                    out.flush()
            out.flush()
        lines.raise_if_bad()


def _render(
    translation: "Translation", number: int, *, n_best: int, scores: bool, as_json: bool
) -> Iterable[str]:
    if as_json:
        hypotheses = [{"text": h.text, "score": h.score} for h in translation.hypotheses]
        yield json.dumps(
            {
                "source": translation.source,
                "text": translation.text,
                "score": translation.score,
                "hypotheses": hypotheses,
            },
            ensure_ascii=False,
        )
    elif n_best > 1:
        found = [(h.text, h.score) for h in translation.hypotheses] or [(translation.text, translation.score)]
        yield from (f"{number} ||| {text} ||| {score:.6f}" for text, score in found)
    elif scores:
        yield f"{translation.score:.6f}\t{translation.text}"
    else:
        yield translation.text
