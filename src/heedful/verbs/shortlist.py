"""`heedful shortlist`: learn which target tokens may translate which source tokens."""

from dataclasses import asdict, dataclass, field

from heedful.cli.options import BeamOverrides
from heedful.cli.streams import bar, notify, print_json
from heedful.settings.options import AsJson
from heedful.tasks.options import ShortlistOptions

_ENOUGH_PAIRS = 10_000


@dataclass(frozen=True, kw_only=True)
class LearnShortlist(ShortlistOptions):
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

    search: BeamOverrides = field(default_factory=dict)
    as_json: AsJson = False


def command(task: LearnShortlist) -> None:
    """Learn a shortlist, and print what it was learned from and its effect."""
    from heedful.tasks.shortlist import learn_shortlist

    with bar() as show:
        result = learn_shortlist(task, on_progress=show)
    if result.pairs < _ENOUGH_PAIRS:
        notify(
            f"warning: {result.pairs:,} pairs are few: learned from fewer than {_ENOUGH_PAIRS:,}, a "
            "shortlist lacks many translations; take more text, or measure its effect with --check"
        )
    if task.as_json:
        print_json(asdict(result))
        return
    print(result.path)
    print(f"  learned   from {result.pairs:,} pairs in {result.seconds:,.1f} s")
    if (effect := result.effect) is not None:
        print(f"  outside   {effect.tokens_outside:,} of {effect.tokens:,} tokens")
        print(f"  changed   {effect.texts_changed:,} of {effect.sentences:,} texts")
        print(f"  size      {effect.mean_size:,.0f} of {result.vocab_size:,} tokens for a sentence")
