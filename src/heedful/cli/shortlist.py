"""`heedful shortlist`: which target pieces may translate which source pieces, learned from parallel text."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.requests import Runtime, SearchRequest


def shortlist(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines, such as those of the training; .gz too.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write. [default: shortlist.safetensors in RUN]"),
    ] = None,
    candidates: Annotated[
        int, typer.Option(min=0, help="Target pieces for each source piece, the most probable ones.")
    ] = 100,
    frequent: Annotated[
        int, typer.Option(min=0, help="Target pieces for every sentence, the most frequent ones.")
    ] = 100,
    pairs: Annotated[
        int, typer.Option(min=1, help="Lines to learn from at most, spread over the text.")
    ] = 200_000,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sentences to translate without and with it, to say what it changes."
        ),
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option(min=1, help="Beam of --check. [default: as in the bundle]")
    ] = None,
    runtime: Runtime = Runtime(),
    as_json: opt.AsJson = False,
) -> None:
    """Learn which target pieces may translate which source pieces, for translate --shortlist.

    With it, each sentence is written with a few hundred pieces: the most probable translations of its own
    (IBM Model 1), the most frequent ones, and, where both sides share a vocabulary, its own. The search is
    faster and knows no others: their probability is 0, and those of the shortlist sum to 1, in scores too.
    --check measures what that changes; pieces outside are those that a search without the shortlist wrote,
    and that it would not have had.
    """
    from heedful.workflows.shortlist import ShortlistTask, make_shortlist

    found = make_shortlist(
        run,
        ShortlistTask(src=src, tgt=tgt, candidates=candidates, frequent=frequent, pairs=pairs, check=check),
        output=output,
        request=SearchRequest(beam_size=beam_size),
        runtime=runtime,
    )
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
        return
    print(found.path)
    print(f"  learned   from {found.pairs:,} pairs in {found.seconds:,.1f} s")
    if (effect := found.effect) is not None:
        print(f"  outside   {effect.tokens_outside:,} of {effect.tokens:,} pieces")
        print(f"  changed   {effect.texts_changed:,} of {effect.sentences:,} texts")
        print(f"  size      {effect.mean_size:,.0f} of {found.vocab_size:,} pieces for a sentence")
