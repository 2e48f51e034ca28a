"""`heedful adapt`: adapt a model to texts of one's own, and say whether it has become better."""

import signal
from dataclasses import dataclass

import typer

from heedful.cli.streams import bar, notify, print_json, print_table
from heedful.errors import Terminated
from heedful.settings.options import AsJson
from heedful.tasks.adapt_options import Adaptation

_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class Adapt(Adaptation):
    """Adapt a model to your own texts, if that makes it better.

    The texts are documents in two languages, or files of pairs. OUTPUT gets the pairs, the adapted model
    (best), a list of terms, a translation memory, and report.html. Whole documents are held out: if the
    adapted model does not translate them better, best is the model as it was, and the exit status is 1.
    docs/adapt.md is a walk through it.

    Examples:
        heedful adapt models/en-de site/en site/de -o runs/ours
        heedful adapt models/en-de --pairs ours.tmx -o runs/ours
    """

    as_json: AsJson = False


def command(task: Adapt) -> None:
    """Adapt, and print the scores before and after."""
    from heedful.tasks.adapt import adapt

    with bar() as show:
        options = {name: value for name, value in vars(task).items() if name != "as_json"}
        try:
            adapted = adapt(**options | {"on_progress": show})
        except Terminated:  # the training is saved, and nothing is adapted yet
            raise typer.Exit(_TERMINATED) from None
    if task.as_json:
        print_json(adapted.as_dict())
    else:
        print_table([(f"{name} pairs", f"{number:,}") for name, number in adapted.pairs.items()])
        print_table([("", "before", "after", "p"), *adapted.rows()])
        print(adapted.best)
    if adapted.general is not None and adapted.general.is_worse:
        notify(f"warning: general text is translated worse than before; {adapted.report} says what helps")
    if not adapted.is_better:
        notify(f"{adapted.best} is the model as it was: the adapted one is no better; see {adapted.report}")
        raise typer.Exit(1)
