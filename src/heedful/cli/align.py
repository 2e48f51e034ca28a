"""`heedful align`: which source words the words of given translations come from."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import Lines, count_pairs, open_input, open_output, write_line
from heedful.settings.options import Languages

_PAIRS_SHOWN = 64  # between two movements of the bar


def align(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines; .gz too, - for stdin.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line; .gz too, - for stdin.")],
    layer: Annotated[
        int | None, typer.Option(min=1, help="Decoder layer to read. [default: the last but one]")
    ] = None,
    shift: Annotated[
        bool,
        typer.Option(
            "--shift",
            help="Read where a token is the decoder's input, not where it is predicted: better in the middle "
            "layers of deep models.",
        ),
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="[default: stdout]")] = None,
    languages: Languages = Languages(),
) -> None:
    """Align the words of given translations by the cross-attention of the model.

    One line for each pair, in Pharaoh form: `0-0 2-1` says that the first target word comes from the first
    source word, and the second from the third. Words are what is between spaces; every target word has at
    least one link, and a pair with an empty line none.

    Each token of a translation is aligned with the source token that it attends to most, by the mean of the
    heads of the last layer but one (Garg et al., 2019), and words by their tokens. For models of six layers,
    --layer 3 --shift is better (Chen et al., 2020).
    """
    if str(src) == str(tgt) == "-":
        raise typer.BadParameter("--src and --tgt cannot both be stdin")
    from heedful.cli.bar import bar
    from heedful.decoding.alignment import AlignmentMethod
    from heedful.workflows.align import AlignmentTask, align_lines
    from heedful.workflows.outputs import check_output

    check_output(output, [src, tgt], models=[run])
    total = count_pairs(src, tgt)
    with ExitStack() as stack:
        sources, src_name = stack.enter_context(open_input(src))
        targets, tgt_name = stack.enter_context(open_input(tgt))
        task = AlignmentTask(
            sources=Lines(sources, src_name).strictly(),
            targets=Lines(targets, tgt_name).strictly(),
            src_name=src_name,
            tgt_name=tgt_name,
            method=AlignmentMethod(layer=layer, shift=shift),
        )
        alignments = align_lines(run, task, languages=languages)
        file = stack.enter_context(open_output(output))
        to_terminal = output is None and sys.stdout.isatty()  # where the lines themselves show the progress
        show = stack.enter_context(bar()) if total and not to_terminal else None
        for number, alignment in enumerate(alignments, start=1):
            write_line(file, str(alignment))
            if show and total and number % _PAIRS_SHOWN == 0:
                show(f"{number:,} of {total:,} pairs", number / total)
    if output is None:
        sys.stdout.flush()
