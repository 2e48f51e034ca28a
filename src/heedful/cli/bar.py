"""A progress bar on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


@contextmanager
def bar() -> Iterator[Callable[[str, float], None]]:
    """Yield a function that shows, on a terminal, the current phase and the progress (0 to 1)."""
    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f} % {task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=1.0)
        yield lambda what, done: progress.update(task, completed=done, description=what)
