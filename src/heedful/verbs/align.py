"""`heedful align`: which source words the words of given translations come from."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import bar_of_pairs, check_stdin_once, notify, open_pairs, warnings_on_stderr
from heedful.data.streams import count_pairs, open_output, write_line
from heedful.errors import OptionError
from heedful.settings.options import OUTPUT, PAIR_TOKENS, Languages, Option, Run, Runtime

_ENOUGH_PAIRS = 10_000


@dataclass(frozen=True, kw_only=True)
class Align:
    """Align the words of given translations.

    Prints a line for each pair, in Pharaoh format: `0-0 2-1` means that the first target word comes from the
    first source word, and the second from the third. Words are separated by ASCII white space; no-break and
    other spaces are inside words. A pair with an empty line has no links. A pair that is too long has none
    either, with a warning.

    --learn adds an aligner to the bundle, learned from these pairs, for example the training text. From then
    on, the aligner makes alignments and places tags in translations, which is better. Translations do not
    change.

    Without an aligner, or with --layer or --shift, the model's cross-attention is read. Each token of a
    translation is aligned with the source token that it attends to most: in the head that was trained to
    align words, if the model has one (model.alignment_layer; published students of Marian do), else in the
    mean of the heads of the last layer but one (Garg et al., 2019). Words are aligned if their tokens are.
    Without a trained head, every target word has at least one link.
    For models of six layers, --layer 3 --shift is better (Chen et al., 2020).

    Examples:
        heedful align runs/en-de --src test.en --tgt test.de -o test.align
    """

    run: Run
    src: Annotated[Path, Option("Source lines; .gz too, - for stdin. A TMX file may be source and target.")]
    tgt: Annotated[Path, Option("Their translations, line by line; .gz too, - for stdin.")]
    layer: Annotated[
        int | None,
        Option(
            "Decoder layer to read, with all its heads.",
            minimum=1,
            default="the trained head, or else the last layer but one",
        ),
    ] = None
    shift: Annotated[
        bool,
        Option(
            "Read the attention when a token is the decoder's input, not when it is predicted; better in the "
            "middle layers of deep models."
        ),
    ] = False
    max_source_tokens: Annotated[
        int | None,
        Option(
            "Maximum length of a source or a target in tokens; longer pairs have no links.",
            minimum=1,
            default=f"none for an aligner; for attention as in the bundle, else {PAIR_TOKENS:,} or more",
        ),
    ] = None
    learn: Annotated[
        bool, Option("Learn an aligner from the pairs, and add it to the bundle; nothing is aligned.")
    ] = False
    output: Annotated[
        Path | None,
        Option("Write the alignments to this file.", default="stdout", flags=OUTPUT, is_file=True),
    ] = None
    languages: Languages = field(default_factory=Languages)
    runtime: Runtime = field(default_factory=Runtime)


def command(task: Align) -> None:
    """Align files; the pairs before a bad line are written."""
    from heedful.bulk.alignments import align_pairs
    from heedful.tasks.loading import load_translator
    from heedful.tasks.output_checks import check_output

    check_stdin_once(src=task.src, tgt=task.tgt)
    if task.learn:
        _learn(task)
        return
    check_output(task.output, inputs=[task.src, task.tgt], models=[task.run])
    total = count_pairs(task.src, task.tgt)
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        translator = load_translator(task.run, task.languages, task.runtime, notify=notify)
        pairs, _ = open_pairs(stack, task.src, task.tgt, translator.bundle.config, task.languages)
        alignments = align_pairs(
            translator, pairs, layer=task.layer, shift=task.shift, max_source_tokens=task.max_source_tokens
        )
        file = stack.enter_context(open_output(task.output))
        to_terminal = task.output is None and sys.stdout.isatty()  # the lines themselves show the progress
        show = stack.enter_context(bar_of_pairs(None if to_terminal else total))
        for number, alignment in enumerate(alignments, start=1):
            write_line(file, str(alignment))
            show(number)
    if task.output is None:
        sys.stdout.flush()


def _learn(task: Align) -> None:
    from heedful.bulk.alignments import add_aligner

    for name in ("layer", "shift", "output", "max_source_tokens"):
        if getattr(task, name):
            raise OptionError(f"--{name.replace('_', '-')} is for aligning; leave it out, or --learn")
    learned = add_aligner(task.run, task.src, task.tgt, languages=task.languages)
    print(f"{learned.path}\n  learned   from {learned.pairs:,} pairs in {learned.seconds:,.1f} s")
    if learned.pairs < _ENOUGH_PAIRS:
        notify(
            f"warning: {learned.pairs:,} pairs are few: an aligner of fewer than {_ENOUGH_PAIRS:,} is "
            "often worse than the attention of the model; give more, such as the training text"
        )
