"""Learning curves from `log.jsonl`, as numbers and as an image."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

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
from heedful.storage.description import runs_inside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
_TRAINING = ("loss", "nll", "learning_rate", "tokens_per_second", "seconds")
_VALIDATION = ("nll", "perplexity", "bleu", "chrf", "seconds")
_MAX_DRAWN = 1e30  # larger and non-finite values leave a gap
_FLOAT = sys.float_info.max
_Style = Literal["-", "--", ":", "-."]


@dataclass(frozen=True)
class Curve:
    """One quantity over the steps."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()


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


def read_curves(log: Path) -> Curves:
    """Read the curves of a run from its log; RunError if there is no log, or a line is not an event.

    A truncated last line is ignored, and so are steps that were taken again after a resumption.
    """
    events = _read_events(log)
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


def _read_events(log: Path) -> list[dict[str, object]]:
    try:
        lines = [line.strip() for line in log.read_bytes().split(b"\n")]
    except OSError as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        remedy = runs_inside(log.parent) or "give a run directory that `heedful train` made"
        raise RunError(f"{log}: {problem}; {remedy}") from None
    events: list[dict[str, object]] = []
    for number, line in enumerate(lines, start=1):
        event: object = None
        try:
            event = parse_json(line or b"{}")
        except ValueError:
            if number == len(lines):  # truncated: the run was killed while it wrote
                break
        if not isinstance(event, dict):
            raise RunError(f"{log}: line {number:,} is not a JSON object; remove the line")
        events.append(event)
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
