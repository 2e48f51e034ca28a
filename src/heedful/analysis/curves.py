"""Learning curves from `log.jsonl`, as numbers and as an image."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.analysis.plotting import BLUE, FAINT, GREEN, INK, ORANGE, new_figure, save_figure, style_axes
from heedful.errors import RunError
from heedful.parsing import is_whole, parse_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TRAINING = ("loss", "nll", "learning_rate", "tokens_per_second", "seconds")
_VALIDATION = ("nll", "perplexity", "bleu", "chrf", "seconds")
_MAX_DRAWN = 1e30  # larger and non-finite values leave a gap


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
class _Panel:
    """One set of axes: its title and its curves as (label, curve, colour)."""

    title: str
    lines: Sequence[tuple[str, Curve, str]]
    log_scale: bool = False
    marked: bool = False  # whether to mark each point
    from_zero: bool = False

    @property
    def num_points(self) -> int:
        return sum(len(curve.steps) for _, curve, _ in self.lines)


def read_curves(log: Path) -> Curves:
    """Read the curves of a run from its log.

    A truncated last line is ignored, and so are steps that were taken again after a resumption.

    Raises:
        RunError: there is no log, or a line is not an event.
    """
    events = _read_events(log)
    return Curves(
        training={name: _curve(events, "step", name) for name in _TRAINING},
        validation={name: _curve(events, "validation", name) for name in _VALIDATION},
    )


def draw_curves(curves: Curves, path: Path, *, title: str) -> None:
    """Draw the curves as a PNG, one panel for each kind of quantity.

    Raises:
        MissingExtraError: matplotlib is not installed.
        RunError: nothing was logged yet.
    """
    panels = [panel for panel in _panels(curves) if panel.num_points]
    if not panels:
        raise RunError("plot: no steps are logged yet; wait for the first ones")
    num_columns = min(3, len(panels))
    num_rows = -(-len(panels) // num_columns)
    figure = new_figure(4.3 * num_columns, 3.0 * num_rows + 0.5)
    figure.suptitle(title, fontsize=12, color=INK, x=0.02, ha="left", fontweight="bold", parse_math=False)
    last = max(max(curve.steps) for panel in panels for _, curve, _ in panel.lines if curve.steps)
    for index, axes in enumerate(figure.subplots(num_rows, num_columns, squeeze=False).flat):
        if index < len(panels):
            _draw_panel(axes, panels[index], last)
        else:
            axes.set_visible(False)
    save_figure(figure, path)


def _read_events(log: Path) -> list[dict[str, object]]:
    try:
        lines = log.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise RunError(f"{log}: no such file; give a run directory that `heedful train` made") from None
    except OSError as error:
        raise RunError(f"{log}: cannot be read ({error.strerror})") from None
    events: list[dict[str, object]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            event = parse_json(line)
        except ValueError:
            if number == len(lines):  # truncated: the run was killed while it wrote
                break
            raise RunError(f"{log}: line {number:,} is not a JSON object; remove the line") from None
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
            points[step] = value if isinstance(value, float) else _nearest_float(value)
    steps = sorted(points)
    return Curve(tuple(steps), tuple(points[step] for step in steps))


def _nearest_float(value: int) -> float:
    return float(min(max(value, -sys.float_info.max), sys.float_info.max))


def _drawn(curve: Curve, *, log_scale: bool) -> list[float]:
    least = sys.float_info.min if log_scale else -_MAX_DRAWN
    return [value if least <= value <= _MAX_DRAWN else math.nan for value in curve.values]


def _panels(curves: Curves) -> list[_Panel]:
    train, valid = curves.training, curves.validation
    return [
        _Panel(
            "loss, nats per target token",
            [
                ("training, smoothed labels", train["loss"], FAINT),
                ("training", train["nll"], BLUE),
                ("validation", valid["nll"], ORANGE),
            ],
        ),
        _Panel("validation perplexity", [("", valid["perplexity"], ORANGE)], log_scale=True, marked=True),
        _Panel(
            "validation score",
            [("BLEU", valid["bleu"], BLUE), ("chrF", valid["chrf"], GREEN)],
            marked=True,
        ),
        _Panel("learning rate", [("", train["learning_rate"], BLUE)]),
        _Panel("target tokens per second", [("", train["tokens_per_second"], BLUE)], from_zero=True),
    ]


def _draw_panel(axes: "Axes", panel: _Panel, last_step: int) -> None:
    style_axes(axes)
    is_positive = False
    for label, curve, colour in panel.lines:
        if not curve.steps:
            continue
        values = _drawn(curve, log_scale=panel.log_scale)
        is_positive |= any(value > 0 for value in values)
        few = len(curve.steps) <= 60
        marker = "o" if (panel.marked and few) or len(curve.steps) == 1 else ""
        axes.plot(curve.steps, values, color=colour, label=label, linewidth=1.6, marker=marker, markersize=3)
    if panel.log_scale and is_positive:
        _set_log_scale(axes)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    axes.set_xlim(0, max(1, last_step) * 1.02)
    axes.set_title(panel.title, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("step", fontsize=8, color=FAINT)
    if any(label for label, curve, _ in panel.lines if curve.steps):
        axes.legend(frameon=False, fontsize=8, labelcolor=INK)


def _set_log_scale(axes: "Axes") -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
