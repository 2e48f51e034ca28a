"""Learning curves from `log.jsonl`, as numbers and as an image."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal, get_args

from heedful.analysis.plotting import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    LINE_COLOURS,
    ORANGE,
    check_picture,
    fonts,
    new_figure,
    printable,
    save_figure,
    style_axes,
    title_axes,
)
from heedful.errors import RunError
from heedful.settings.parsing import is_whole, parse_json
from heedful.storage.description import runs_inside, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
_TRAINING = ("loss", "nll", "learning_rate", "tokens_per_second", "seconds")
_VALIDATION = ("nll", "perplexity", "bleu", "chrf", "seconds")
_LOG = "log.jsonl"
_MAX_DRAWN = 1e30  # larger and non-finite values leave a gap
_FLOAT = sys.float_info.max
_Style = Literal["-", "--", ":", "-."]


@dataclass(frozen=True)
class Curve:
    """One quantity over the steps."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()  # of several runs; empty for one


@dataclass(frozen=True)
class Curves:
    """All curves of a run, by name; a quantity that was never logged has an empty curve."""

    training: Mapping[str, Curve] = field(default_factory=dict)
    validation: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class _Line:
    """A curve as it is drawn; one without a label is not in the legend of its axes."""

    curve: Curve
    colour: str
    style: _Style = "-"
    label: str = ""


@dataclass(frozen=True)
class _Panel:
    """One set of axes: its title and its curves."""

    title: str
    lines: Sequence[_Line]
    log_scale: bool = False
    marked: bool = False  # whether to mark each point
    from_zero: bool = False

    @property
    def steps(self) -> list[int]:
        """The steps of all points."""
        return [step for line in self.lines for step in line.curve.steps]


def read_log(run: str | Path) -> list[dict[str, Any]]:
    """Return the events of a run, one flat dictionary each: `pandas.DataFrame(heedful.read_log(run))`.

    Rows are dictionaries because all libraries for tables take a list of them, and none of these libraries is
    needed. `event` says what a row is: start, step, validation, checkpoint, notice, warning, skipped or end.
    Steps and validations have `step` and `seconds`, and their losses and scores under their own names.

    >>> [row["bleu"] for row in heedful.read_log("runs/demo") if "bleu" in row]  # doctest: +SKIP
    [63.2, 97.4]

    Args:
        run: a run directory; or one of several seeds or settings: then `run` says which run a row is of.

    Raises:
        RunError: there is no log, or a line is not an event.
    """
    runs = runs_of(Path(run))
    if runs == [Path(run)]:
        return _read_events(Path(run) / _LOG)
    rows = list[dict[str, Any]]()
    for inside in runs:
        name = inside.relative_to(run).as_posix()
        rows += ({"run": name} | event for event in _read_events(inside / _LOG))
    return rows


def read_curves(run: Path) -> Curves:
    """Read the curves of a run; of several seeds or settings, means and deviations at the steps of all.

    A truncated last line is ignored, and so are steps that were taken again after a resumption.

    Raises:
        RunError: there is no log, or a line is not an event.
    """
    of_runs = [_curves_of(inside) for inside in runs_of(run)]
    if len(of_runs) == 1:
        return of_runs[0]
    return Curves(
        training={name: _mean([curves.training[name] for curves in of_runs]) for name in _TRAINING},
        validation={name: _mean([curves.validation[name] for curves in of_runs]) for name in _VALIDATION},
    )


def _mean(curves: Sequence[Curve]) -> Curve:
    """Return the mean at the steps that all curves have, with the sample standard deviation."""
    values = [dict(zip(curve.steps, curve.values, strict=True)) for curve in curves]
    steps = sorted(set.intersection(*map(set, values)))
    at_steps = [[of_curve[step] for of_curve in values] for step in steps]
    return Curve(tuple(steps), tuple(map(fmean, at_steps)), tuple(map(stdev, at_steps)))


def _curves_of(run: Path) -> Curves:
    events = _read_events(run / _LOG)
    return Curves(
        training={name: _curve(events, "step", name) for name in _TRAINING},
        validation={name: _curve(events, "validation", name) for name in _VALIDATION},
    )


def draw_curves(runs: Mapping[str, Curves], path: Path) -> None:
    """Write `curves_figure` as PNG or SVG; raises also as `check_picture`."""
    check_picture(path)
    save_figure(curves_figure(runs), path)


def curves_figure(runs: Mapping[str, Curves]) -> "Figure":
    """Draw the curves of one run, or of several in the same axes; RunError if nothing was logged yet.

    There is a panel for each quantity; of several runs, each has its colour.
    """
    title, panels = f"Learning curves of {len(runs)} runs", _compared(runs)
    if len(runs) == 1:
        [(name, curves)] = runs.items()
        title, panels = f"Learning curves of {name}", _panels(curves)
    panels = [panel for panel in panels if panel.steps]
    if not panels:
        raise RunError("plot: no steps are logged yet; wait for the first ones")
    num_columns = min(3, len(panels))
    num_rows = -(-len(panels) // num_columns)
    figure = new_figure(4.3 * num_columns, 3.0 * num_rows + 0.5, title=title)
    last = max(max(panel.steps) for panel in panels)
    for axes, panel in zip_longest(figure.subplots(num_rows, num_columns, squeeze=False).flat, panels):
        if panel is None:
            axes.set_visible(False)
        else:
            _draw_panel(axes, panel, last)
    if len(runs) > 1:
        _add_legend(figure, list(runs), num_columns)
    return figure


def _read_events(log: Path) -> list[dict[str, Any]]:
    try:
        lines = [line.strip() for line in log.read_bytes().split(b"\n")]
    except OSError as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        remedy = runs_inside(log.parent) or "give a run directory that `heedful train` made"
        raise RunError(f"{log}: {problem}; {remedy}") from None
    events: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        event: object = None
        try:
            event = parse_json(line or b"{}")
        except ValueError:
            if number == len(lines):  # truncated: the run was killed while it wrote
                break
        if not isinstance(event, dict):
            raise RunError(f"{log}: line {number:,} is not a JSON object; remove the line")
        events += [event] if event else []
    return events


def _curve(events: Sequence[Mapping[str, object]], kind: str, name: str) -> Curve:
    points: dict[int, float] = {}
    for event in events:
        step, value = event.get("step"), event.get(name)
        if not (isinstance(step, int) and is_whole(step)):
            continue
        if event.get("event") == "start":
            points = {known: points[known] for known in points if known <= step}
        elif event.get("event") == kind and isinstance(value, int | float):
            points[step] = value if isinstance(value, float) else float(min(max(value, -_FLOAT), _FLOAT))
    steps = sorted(points)
    return Curve(tuple(steps), tuple(points[step] for step in steps))


def _panels(curves: Curves) -> list[_Panel]:
    """Return the panels of a single run."""
    train, valid = curves.training, curves.validation
    return [
        _Panel(
            "loss, nats per target token",
            [
                _Line(train["loss"], FAINT, label="training, smoothed labels"),
                _Line(train["nll"], BLUE, label="training"),
                _Line(valid["nll"], ORANGE, label="validation"),
            ],
        ),
        _Panel("validation perplexity", [_Line(valid["perplexity"], ORANGE)], log_scale=True, marked=True),
        _Panel(
            "validation score",
            [_Line(valid["bleu"], BLUE, label="BLEU"), _Line(valid["chrf"], GREEN, label="chrF")],
            marked=True,
        ),
        _Panel("learning rate", [_Line(train["learning_rate"], BLUE)]),
        _Panel("target tokens per second", [_Line(train["tokens_per_second"], BLUE)], from_zero=True),
    ]


def _compared(runs: Mapping[str, Curves]) -> list[_Panel]:
    """Return the panels of several runs: one quantity in each, a line for each run."""

    def lines(kind: str, name: str) -> list[_Line]:
        of_runs = [getattr(curves, kind)[name] for curves in runs.values()]
        return [_Line(curve, *_look(number)) for number, curve in enumerate(of_runs)]

    return [
        _Panel("training loss, nats per target token", lines("training", "nll")),
        _Panel("validation loss, nats per target token", lines("validation", "nll"), marked=True),
        _Panel("validation BLEU", lines("validation", "bleu"), marked=True),
        _Panel("validation chrF", lines("validation", "chrf"), marked=True),
        _Panel("learning rate", lines("training", "learning_rate")),
        _Panel("target tokens per second", lines("training", "tokens_per_second"), from_zero=True),
    ]


def _draw_panel(axes: "Axes", panel: _Panel, last_step: int) -> None:
    style_axes(axes)
    least = sys.float_info.min if panel.log_scale else -_MAX_DRAWN
    drawn = [line for line in panel.lines if line.curve.steps]
    is_positive = False
    for line in drawn:
        steps = line.curve.steps
        values = [value if least <= value <= _MAX_DRAWN else math.nan for value in line.curve.values]
        is_positive |= any(value > 0 for value in values)
        most_marked = 60 if panel.marked else 1
        axes.plot(
            steps, values, color=line.colour, linestyle=line.style, label=line.label, linewidth=1.6,
            marker="o" if len(steps) <= most_marked else "", markersize=3,
        )  # fmt: skip
        if deviations := line.curve.deviations:
            low, high = ([v + sign * d for v, d in zip(values, deviations, strict=True)] for sign in (-1, 1))
            axes.fill_between(steps, low, high, color=line.colour, alpha=0.2, linewidth=0)
    if panel.log_scale and is_positive:
        _set_log_scale(axes)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(1, last_step) * 1.02)
    title_axes(axes, panel.title, x="step")
    if any(line.label for line in drawn):
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _set_log_scale(axes: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _look(number: int) -> tuple[str, _Style]:
    """Return the colour and the style of a run's line; when the colours are used up, the style changes."""
    styles = get_args(_Style)
    return LINE_COLOURS[number % len(LINE_COLOURS)], styles[number // len(LINE_COLOURS) % len(styles)]


def _add_legend(figure: "Figure", names: Sequence[str], num_columns: int) -> None:
    from matplotlib.lines import Line2D

    looks = map(_look, range(len(names)))
    handles = [Line2D([], [], color=colour, linestyle=style) for colour, style in looks]
    legend = figure.legend(
        handles, ["-"] * len(names), loc="outside lower left", ncols=num_columns, frameon=False, fontsize=9,
        labelcolor=INK,
    )  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):  # a label may not begin with `_`
        text.set(text=printable(name), parse_math=False, fontfamily=fonts())
