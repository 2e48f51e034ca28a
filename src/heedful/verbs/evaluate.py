"""`heedful evaluate`: score the outputs of models, or of files, for a test set."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import (
    check_stdin_once,
    notify,
    print_json,
    print_table,
    suggest_auto_precision,
    warnings_on_stderr,
)
from heedful.settings.options import AsJson
from heedful.tasks.options import EvaluationOptions

if TYPE_CHECKING:
    from heedful.evaluation.metrics import EvaluationReport
    from heedful.evaluation.systems import System


@dataclass(frozen=True, kw_only=True)
class Evaluate(EvaluationOptions):
    """Score translations of a test set, and compare systems.

    RUN translates the sources; --hyp takes existing outputs. RUN may also be a checkpoint, such as
    runs/base/checkpoints/step-6, or a directory of runs with several seeds or settings: each is scored, and
    the table has their mean and standard deviation.

    Each score comes with its 95 % confidence interval and its signature. `bleu`, `chrf`, `chrf++`, `spbleu`
    and `ter` are sacreBLEU's, all with case. `wer` is the word error rate, in percent: edit distance to the
    closest reference over its length, in words; `cer` is the same in characters. `exact` is the percentage of
    lines that equal one of their references. The others are for dictionaries, where a source that occurs
    several times is one item with several references. `item_error_rate` is the percentage of sources with no
    correct output, and `per` the token error rate.

    Words are counted as in the target language. --tgt-lang says which it is, or RUN, or the name of the first
    reference file (ref.zh), or else the scripts in the references. In Chinese, for example, characters count
    (docs/languages.md).

    Several systems share a table, with the p-value of each difference to the first (paired bootstrap).

    With --calibrate, RUN learns how sure it may be of its translations (docs/confidence.md). Evaluating a
    calibrated RUN also prints the expected calibration error (ECE) of that confidence on these lines.

    Examples:
        heedful evaluate runs/en-de --src test.en --ref test.de
        heedful evaluate --hyp ours.de --hyp theirs.de --ref test.de --metric bleu,chrf
    """

    as_json: AsJson = False
    search: SearchOverrides = field(default_factory=dict)


def command(task: Evaluate) -> None:
    """Evaluate, and print the scores."""
    from heedful.tasks.evaluate import evaluate_systems, spread_of

    started = time.monotonic()
    check_stdin_once(src=task.src, ref=task.ref, hyp=task.hyp, compare=task.compare)
    with warnings_on_stderr():
        systems, reports = evaluate_systems(task, notify=notify)
    spread = spread_of(systems, reports)
    precision, seconds = systems[0].precision, round(time.monotonic() - started, 3)
    if task.as_json:
        means = {
            directory: {
                name: {"mean": mean, "deviation": deviation} for name, (mean, deviation) in scores.items()
            }
            for directory, scores in spread.items()
        }
        print_json(_as_dict(systems, reports, seconds) | ({"directories": means} if means else {}))
        return
    _print_scores(task, systems, reports, spread)
    names = ["", *(system.name for system in systems[1:])]
    for name, system in zip(names, systems, strict=True):
        if system.calibration is not None:
            stored = f", by cross-validation; stored in {task.run}" if task.calibrate and not name else ""
            print(f"confidence{name and f' of {name}'}: {system.calibration}{stored}")
    for name, system in zip(names, systems, strict=True):
        if num_cut := system.num_cut:
            print(f"cut at the length limit{name and f' by {name}'}: {num_cut:,} outputs")
    used = f", in {precision}" if precision is not None else ""
    print(f"{reports[0].num_sentences:,} sentences in {seconds:.1f} s{used}")
    if precision is not None and task.runtime.precision != "auto":
        suggest_auto_precision(precision, seconds)


def _as_dict(
    systems: "Sequence[System]", reports: "Sequence[EvaluationReport]", seconds: float
) -> dict[str, object]:
    """Return what --json prints: the report, or the reports of several systems as a list."""
    rows = [report.as_dict() | system.as_dict() for system, report in zip(systems, reports, strict=True)]
    if len(rows) == 1:
        return {**rows[0], "seconds": seconds}
    named = [{"system": system.name} | row for system, row in zip(systems, rows, strict=True)]
    return {"systems": named, "seconds": seconds}


def _print_scores(
    task: Evaluate,
    systems: "Sequence[System]",
    reports: "Sequence[EvaluationReport]",
    spread: Mapping[str, Mapping[str, tuple[float, float]]],
) -> None:
    signatures = reports[0].signatures
    if len(systems) == 1:
        for name, signature in signatures.items():
            print(f"{name} {_shown(reports[0], name)}  {signature}")
        return
    shown = [[_shown(report, name) for name in signatures] for report in reports]
    rows = [[system.name, *cells] for system, cells in zip(systems, shown, strict=True)]
    for directory, scores in spread.items():
        for number, label in enumerate(("mean", "deviation")):
            rows.append([f"{label} of {directory}", *(f"{scores[name][number]:.2f}" for name in signatures)])
    print_table([["system", *signatures], *rows], align=str.ljust)
    for name, signature in signatures.items():
        print(f"{name}: {signature}")
    if reports[-1].p_values:
        print(f"p: paired bootstrap against {systems[0].name}, {task.resamples:,} resamples")


def _shown(report: "EvaluationReport", name: str) -> str:
    """Return a score, half the width of its interval, and the p-value of its difference to the baseline."""
    shown = f"{report.scores[name]:.2f}"
    shown += f" ± {report.confidence[name]:.2f}" if name in report.confidence else ""
    return shown + (f" (p = {report.p_values[name]:.4f})" if name in report.p_values else "")
