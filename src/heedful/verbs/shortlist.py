"""`heedful shortlist`: learn which target tokens may translate which source tokens."""

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.options import BeamOverrides
from heedful.cli.streams import bar
from heedful.errors import InputError
from heedful.settings.options import OUTPUT, AsJson, Option, Run, Runtime

_FILE = "shortlist.safetensors"
_ENOUGH_PAIRS = 10_000


@dataclass(frozen=True, kw_only=True)
class LearnShortlist:
    """Learn which target tokens may translate a source token.

    The file is for translate --shortlist.

    A shortlist limits the output of each sentence to a few hundred tokens, which makes the search faster.
    These are the most probable translations of the sentence's tokens (IBM Model 1), the most frequent tokens
    and, with a joint vocabulary, the sentence's own. All other tokens have probability 0; the rest sums to 1,
    in scores too. --check measures the effect, by a search with --beam-size. It counts as outside the tokens
    that a search without the shortlist writes and that are not in it.

    Examples:
        heedful shortlist runs/en-de --src train.en --tgt train.de
    """

    run: Run
    src: Annotated[Path, Option("Source lines, such as the training text; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    output: Annotated[
        Path | None, Option("The file to write.", default=f"{_FILE} in RUN", flags=OUTPUT, is_file=True)
    ] = None
    candidates: Annotated[int, Option("Number of likely target tokens per source token.", minimum=0)] = 100
    frequent: Annotated[int, Option("Number of frequent target tokens in each shortlist.", minimum=0)] = 100
    pairs: Annotated[
        int, Option("Maximum number of lines to learn from, spread over the text.", minimum=1)
    ] = 200_000
    check: Annotated[
        Path | None,
        Option("Sentences to translate with and without the shortlist, to compare.", metavar="FILE"),
    ] = None
    search: BeamOverrides = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)
    as_json: AsJson = False


def command(task: LearnShortlist) -> None:
    """Learn a shortlist, and print what it was learned from and its effect."""
    from heedful.runs.shortlist import learn_shortlist

    if task.output is None and not task.run.is_dir():
        raise InputError(f"{task.run}: is not a local directory; name the shortlist with --output")
    with bar() as show:
        result = learn_shortlist(
            task.run,
            task.src,
            task.tgt,
            task.output or task.run / _FILE,
            candidates=task.candidates,
            frequent=task.frequent,
            pairs=task.pairs,
            check=task.check,
            search=task.search,
            runtime=task.runtime,
            on_progress=show,
        )
    if result.pairs < _ENOUGH_PAIRS:
        print(
            f"warning: {result.pairs:,} pairs are few: learned from fewer than {_ENOUGH_PAIRS:,}, a "
            "shortlist lacks many translations; take more text, or measure its effect with --check",
            file=sys.stderr,
        )
    if task.as_json:
        print(json.dumps(asdict(result), ensure_ascii=False))
        return
    print(result.path)
    print(f"  learned   from {result.pairs:,} pairs in {result.seconds:,.1f} s")
    if (effect := result.effect) is not None:
        print(f"  outside   {effect.tokens_outside:,} of {effect.tokens:,} tokens")
        print(f"  changed   {effect.texts_changed:,} of {effect.sentences:,} texts")
        print(f"  size      {effect.mean_size:,.0f} of {result.vocab_size:,} tokens for a sentence")
