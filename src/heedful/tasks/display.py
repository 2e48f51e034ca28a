"""The display of training on stderr: a progress bar in a terminal or a notebook, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from typing_extensions import override

from heedful.data.streams import clock
from heedful.training.events import (
    EndEvent,
    Event,
    NoticeEvent,
    SkippedEvent,
    StartEvent,
    StepEvent,
    ValidationEvent,
    WarningEvent,
)
from heedful.training.reporting import has_learned

_SHOWN_SCORES = ("nll", "perplexity", "bleu", "chrf", "exact")


@contextmanager
def training_display(*, is_plain: bool = True) -> Iterator[Callable[[Event], None]]:
    """Yield a listener that shows the events of training: a bar in a terminal or a notebook.

    Elsewhere it writes plain lines, or nothing without `is_plain`.
    """
    console = _LastingConsole(stderr=True, highlight=False, soft_wrap=True)
    if not (console.is_terminal or console.is_jupyter):
        yield PlainDisplay(console) if is_plain else (lambda _: None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield LiveDisplay(console, progress)


class _LastingConsole(Console):
    """A console that becomes silent on a broken pipe instead of ending the program."""

    @override
    def on_broken_pipe(self) -> None:
        """Rich calls this from version 13.8 on."""
        self.quiet = True


class PlainDisplay:
    """Writes a line for each event, steps included."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._best = ""
        self._shown: tuple[int, float] | None = None  # the step of the last line, and its loss

    def __call__(self, event: Event) -> None:
        """Show one event; checkpoints are not shown."""
        if isinstance(event, StartEvent):
            self._best = ""  # of the run before, if there are several
        if isinstance(event, StepEvent):
            self._show_step(event)
        elif lines := _LINES.get(type(event)):
            self._write(lines(event))
        if isinstance(event, ValidationEvent) and event.is_best:
            self._best = f"best {event.step:,}"

    def _show_step(self, event: StepEvent) -> None:
        if self._shown != (shown := (event.step, event.loss)):  # else it was shown before it was logged
            self._write(_step_line(event, self._best))
        self._shown = shown

    def _write(self, line: str) -> None:
        with suppress(OSError):  # events are in log.jsonl too
            self._console.print(line, markup=False)


class LiveDisplay(PlainDisplay):
    """Shows the steps on one line with a bar; everything else scrolls above it."""

    def __init__(self, console: Console, progress: Progress) -> None:
        super().__init__(console)
        self._progress = progress
        self._bar = progress.add_task("preparing", total=1.0)

    def _show_step(self, event: StepEvent) -> None:
        line = _step_line(event, self._best)
        self._progress.update(self._bar, completed=event.progress, description=line)


def _start_line(event: StartEvent) -> str:
    resumed = f"resuming from step {event.step:,}: " if event.step else ""
    threads = f", {event.threads} thread{'s' if event.threads > 1 else ''}" if event.device == "cpu" else ""
    some = f", {event.num_trained:,} of them trained" if event.num_trained < event.num_parameters else ""
    return (
        f"{resumed}{event.num_parameters / 1e6:.1f}M parameters{some}, {event.num_pairs:,} pairs, "
        f"{event.precision} on {event.device}{threads}"
    )


def _step_line(event: StepEvent, best: str) -> str:
    left = event.seconds / event.progress * (1.0 - event.progress) if event.progress else 0.0
    parts = [
        f"step {event.step:,}",
        f"epoch {event.epoch + 1}",
        f"loss {event.loss:.3f}",
        f"{event.tokens_per_second:,.0f} tokens/s",
        f"lr {event.learning_rate:.2e}",
        f"{clock(left)} left",
    ]
    return " · ".join([*parts, best] if best else parts)


def _scores_line(event: ValidationEvent) -> str:
    names = (*_SHOWN_SCORES, *(name for name in event.scores if ":" in name))  # metrics of plugins
    shown = [f"{name} {_score(event.scores[name])}" for name in names if name in event.scores]
    best = " · best so far" if event.is_best else ""
    learned = "" if has_learned(event.scores) else " · does not translate yet"
    cut = f" · {event.cut_outputs:,} outputs end at the length limit" if event.cut_outputs else ""
    return f"validation at step {event.step:,}: {', '.join(shown)}{cut}{best}{learned}"


def _skipped_line(event: SkippedEvent) -> str:
    where = f"; its sentences are in {event.sentences}" if event.sentences else ""
    return (
        f"warning: step {event.step:,} is skipped: at learning rate {event.rate:.2e}, its loss "
        f"({event.loss:g}) or its gradient ({event.gradient_norm:g}) is not finite{where}"
    )


def _end_lines(event: EndEvent) -> str:
    done = f"done: {event.reason}; took {clock(event.seconds)}"
    warning = f"\nwarning: {event.warning}" if event.warning else ""
    return (done if event.steps_taken else f"nothing to do: {event.reason}") + warning


_LINES: dict[type[Event], Callable[[Any], str]] = {
    ValidationEvent: _scores_line,
    WarningEvent: lambda event: f"warning: {event.message}",
    NoticeEvent: lambda event: str(event.message),
    SkippedEvent: _skipped_line,
    StartEvent: _start_line,
    EndEvent: _end_lines,
}


def _score(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1e6 else f"{value:.2e}"
