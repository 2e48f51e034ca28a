"""`heedful shortlist`: learn which target tokens may translate which source tokens."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.settings.options import BeamRequest, Runtime, SearchRequest, ShortlistSize

_ENOUGH_PAIRS = 10_000


def shortlist(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines, such as those of the training; .gz too.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [default: shortlist.safetensors in RUN]"),
    ] = None,
    size: ShortlistSize = ShortlistSize(),
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sentences to translate without and with it, to compare the outputs."
        ),
    ] = None,
    beam: BeamRequest = BeamRequest(),
    runtime: Runtime = Runtime(),
    as_json: opt.AsJson = False,
) -> None:
    """Learn which target tokens may translate which source tokens, for translate --shortlist.

    It limits the output of each sentence to a few hundred tokens: the most probable translations of its
    tokens (IBM Model 1), the most frequent ones and, with a joint vocabulary, its own. The search is faster;
    all other tokens have probability 0, and those of the shortlist sum to 1, in scores too. --check measures
    the effect, by a search with --beam-size; tokens outside are those of a search without the shortlist that
    are not in it.
    """
    from heedful.workflows.shortlist import ShortlistTask, make_shortlist

    result = make_shortlist(
        run,
        ShortlistTask(src=src, tgt=tgt, size=size, check=check),
        output=output,
        request=SearchRequest(beam_size=beam.beam_size),
        runtime=runtime,
    )
    if result.pairs < _ENOUGH_PAIRS:
        print(
            f"warning: {result.pairs:,} pairs are few: learned from fewer than {_ENOUGH_PAIRS:,}, a "
            "shortlist lacks many translations; take more text, or measure its effect with --check",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(asdict(result), ensure_ascii=False))
        return
    print(result.path)
    print(f"  learned   from {result.pairs:,} pairs in {result.seconds:,.1f} s")
    if (effect := result.effect) is not None:
        print(f"  outside   {effect.tokens_outside:,} of {effect.tokens:,} tokens")
        print(f"  changed   {effect.texts_changed:,} of {effect.sentences:,} texts")
        print(f"  size      {effect.mean_size:,.0f} of {result.vocab_size:,} tokens for a sentence")
