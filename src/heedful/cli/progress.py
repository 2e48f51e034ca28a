"""What the verb train prints: the best bundle, tables of several runs, learning rates."""

import sys

from heedful.cli.streams import print_json, print_table
from heedful.tasks.card import shell_command, without_directories
from heedful.tasks.learning_rate import FoundRate
from heedful.tasks.seeds import SeedsResult
from heedful.tasks.sweep import SweepResult
from heedful.tasks.training import TrainResult


def print_result(result: TrainResult, *, as_json: bool) -> None:
    """Print the best bundle, or a summary as JSON."""
    summary = {"best": str(result.best), "last": str(result.last), **result.end.to_json()}
    if as_json:
        print_json(summary)
    else:
        print(result.best)


def print_seeds(result: SeedsResult, *, as_json: bool) -> None:
    """Print the scores of the runs with several seeds, their mean and deviation."""
    if as_json:
        print_json(result.to_json())
        return
    print_table(result.rows())


def print_sweep(result: SweepResult, *, as_json: bool) -> None:
    """Print the scores of the runs with several values of settings, and the best values."""
    if as_json:
        print_json(result.to_json())
        return
    print_table(result.rows())
    if result.metric in result.best.results.mean:
        best = " ".join(f"--set {key}={value}" for key, value in result.best.settings.items())
        print(f"best {result.metric}: {best}")


def print_found_rate(found: FoundRate, *, as_json: bool) -> None:
    """Print the rates that were tried, and the setting for the best one."""
    if as_json:
        print_json(found.to_json())
        return
    test = found.test
    rows = [
        [f"{tested.rate:.1e}", f"{tested.nll:.3f}", f"{tested.training_nll:.3f}"] for tested in test.tested
    ]
    print_table([["rate", "nll", "training nll"], *rows])
    [setting] = (f"--set {key}={value:g}" for key, value in found.settings.items())
    print(
        f"best after {test.num_steps} steps: {test.rate:.1e} (nll before: {test.before:.3f}); write {setting}"
    )


def command_line() -> str:
    """Return the command as it was typed, for a model card; of each file its name alone."""
    return shell_command(["heedful", *map(without_directories, sys.argv[1:])])
