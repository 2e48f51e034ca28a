"""What commands show: warnings of searches, bars and lines of progress on stderr; tables."""

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.data.streams import Lines, clock, open_input
from heedful.errors import InputError
from heedful.settings.options import Languages

if TYPE_CHECKING:
    from heedful.settings.run import Config

_STDIN = 0
_SEARCHES = "heedful.decoding"  # the logger of all engines
_SHOWN = 5
_SLOW = 10.0  # seconds after which a faster option is suggested
_BETWEEN_LINES = 60.0  # seconds between printed lines of a translation's progress
_BETWEEN_SHARES = 20.0  # seconds between printed lines of other progress
_PAIRS_SHOWN = 64  # pairs between two movements of a bar


def notify(message: object) -> None:
    """Print a line on stderr."""
    print(message, file=sys.stderr, flush=True)


def note(message: str) -> None:
    """Print a remark on stderr."""
    notify(f"note: {message}")


def print_json(value: object) -> None:
    """Print a value as JSON on one line."""
    print(json.dumps(value, ensure_ascii=False))


def check_stdin_once(**inputs: Path | Sequence[Path] | None) -> None:
    """Check that at most one of the inputs is stdin, under any name.

    Args:
        inputs: files by their options, one or several; `-` is stdin, and None is ignored.

    Raises:
        BadParameter: they would share its lines.
    """
    from heedful.runtime.durable import descriptor_of

    names = [
        f"--{option}"
        for option, paths in inputs.items()
        for path in ([paths] if isinstance(paths, Path) else paths or ())
        if str(path) == "-" or descriptor_of(path) == _STDIN
    ]
    if len(names) > 1:
        raise typer.BadParameter(f"{' and '.join(names)} cannot both be stdin; write one to a file")


def argument_text(text: str, name: str) -> str:
    """Return an argument if it is valid UTF-8.

    Raises:
        InputError: it is not UTF-8.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{name}: not UTF-8; check the encoding of the terminal or script") from None
    return text


def open_pairs(
    stack: ExitStack, src: Path, tgt: Path, config: "Config", languages: Languages
) -> tuple[Iterator[tuple[str, str]], str]:
    """Open the lines of a source and their translations; return the pairs, and the name of the target.

    A TMX file that is both is read for the languages of a model, which its settings and tags say.
    """
    from heedful.data.files import holds_units, parallel_lines, read_parallel
    from heedful.text.pair import languages_of_pairs

    if holds_units(src, tgt):
        text = read_parallel(src, tgt, languages=languages_of_pairs(config, **asdict(languages)))
        if text.num_empty:
            notify(f"{tgt}: {text.num_empty:,} of {text.num_read:,} units left out as empty")
        return zip(text.src, text.tgt, strict=True), str(tgt)
    (src_file, src_name), (tgt_file, tgt_name) = (
        stack.enter_context(open_input(path)) for path in (src, tgt)
    )
    sources, targets = Lines(src_file, src_name).strictly(), Lines(tgt_file, tgt_name).strictly()
    return parallel_lines(sources, targets, src_name=src_name, tgt_name=tgt_name), tgt_name


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print the first warnings of the search on stderr, and at the end the number of the others.

    Numbers, such as of outputs that their length limit has cut, are added up and printed at the end.
    """
    log, handler = logging.getLogger(_SEARCHES), _Warnings(logging.WARNING)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = True
        if handler.count > _SHOWN:
            notify(f"warning: {handler.count - _SHOWN:,} more lines like these")
        for message, number in handler.numbers.items():
            notify(f"warning: {message % f'{number:,}'}")


class _Warnings(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.count = 0
        self.numbers: Counter[str] = Counter()  # by message

    def emit(self, record: logging.LogRecord) -> None:
        if number := getattr(record, "number", 0):
            self.numbers[record.msg] += number
            return
        self.count += 1
        if self.count <= _SHOWN:
            notify(f"warning: {record.getMessage()}")


@contextmanager
def bar() -> Iterator[Callable[[str, float], None]]:
    """Yield a function that shows the current phase and the progress (0 to 1): as a bar, else in lines."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True, highlight=False)
    columns = (BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f} % {task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task, latest = progress.add_task("", total=1.0), time.monotonic()

        def show(what: str, done: float) -> None:
            nonlocal latest
            progress.update(task, completed=done, description=what)
            if progress.disable and (now := time.monotonic()) - latest >= _BETWEEN_SHARES:
                latest = now
                notify(f"{done:.0%} {what}")

        yield show


@contextmanager
def bar_of_pairs(total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of pairs done; without a total, it shows nothing."""
    with bar() if total else nullcontext() as show:

        def show_pairs(number: int) -> None:
            if show and total and number % _PAIRS_SHOWN == 0:
                show(f"{number:,} of {total:,} pairs", number / total)

        yield show_pairs


@contextmanager
def translation_display(
    share_read: Callable[[], float | None], *, items: str = "lines", size: str = "tokens"
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the progress of a long translation: on a terminal as a bar, else in lines.

    Args:
        share_read: returns the share of the input that was read, 0 to 1; None: not known.
        items: the name of the translated items.
        size: the name of the counted units.

    Yields:
        A function of the number of items done, and the number of units written since the start.
    """
    started = latest = time.monotonic()
    share_before = share_read() or 0.0
    with ExitStack() as stack:
        draw: Callable[[str, float], None] | None = None

        def show(lines: int, tokens: int) -> None:
            nonlocal draw, latest
            now, share = time.monotonic(), share_read()
            if draw is None and sys.stderr.isatty():
                draw = stack.enter_context(bar())
            if draw is None and now - latest < _BETWEEN_LINES:
                return
            seconds = max(now - started, 1e-3)
            parts = [f"{lines:,} {items}", f"{tokens / seconds:,.0f} {size}/s"]
            if share is not None and share > share_before:
                parts.append(f"{clock(seconds * (1.0 - share) / (share - share_before))} left")
            if draw is not None:
                draw(" · ".join(parts), share or 0.0)
            else:
                notify(" · ".join(parts))
                latest = now

        yield show


def print_table(rows: Sequence[Sequence[str]], *, align: Callable[[str, int], str] = str.rjust) -> None:
    """Print rows as columns: the first to the left, the others by `align`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        aligned = map(align, cells, widths[1:])
        print("  ".join([first.ljust(widths[0]), *aligned]).rstrip())


def suggest_auto_precision(precision: str, seconds: float) -> None:
    """Suggest `--precision auto` on stderr after a slow run in float32."""
    if precision == "float32" and seconds > _SLOW:
        notify(f"{seconds:,.0f} seconds in float32, the default; --precision auto chooses the fastest here")
