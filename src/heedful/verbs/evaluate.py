"""`heedful evaluate`: score the outputs of models, or of files, for a test set."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import check_stdin_once, print_precision, suggest_auto_precision, warnings_on_stderr
from heedful.data.streams import is_text
from heedful.errors import InputError
from heedful.settings.options import (
    OUTPUT,
    RUN,
    TOKENIZE,
    AsJson,
    BleuTokenizer,
    Languages,
    Option,
    Runtime,
    ShortlistFile,
)

if TYPE_CHECKING:
    from heedful.evaluation.metrics import EvaluationReport
    from heedful.evaluation.systems import System


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score translations of a test set, and compare systems.

    RUN translates the sources; --hyp takes existing outputs.

    Each score comes with its 95 % confidence interval and its signature. `bleu`, `chrf`, `chrf++`, `spbleu`
    and `ter` are sacreBLEU's, all with case. `wer` is the word error rate, in percent: edit distance to the
    closest reference over its length, in words; `cer` is the same in characters. `exact` is the percentage of
    lines that equal one of their references. The others are for dictionaries, where a source that occurs
    several times is one item with several references. `item_error_rate` is the percentage of sources with no
    correct output, and `per` the token error rate.

    Words are those of the target language: that of --tgt-lang, of RUN, of the name of the first reference
    file (ref.zh), or else of the scripts in the references. In Chinese, for example, characters count
    (docs/languages.md).

    Several systems share a table, with the p-value of each difference to the first (paired bootstrap).

    With --calibrate, RUN learns how sure it may be of its translations (docs/confidence.md). Evaluating a
    calibrated RUN also prints the expected calibration error (ECE) of that confidence on these lines.

    Examples:
        heedful evaluate runs/en-de --src test.en --ref test.de
        heedful evaluate --hyp ours.de --hyp theirs.de --ref test.de --metric bleu,chrf
    """

    run: Annotated[Path | None, RUN] = None
    src: Annotated[
        Path | None, Option("Source lines; .gz too. Needed to translate, and for item_error_rate and per.")
    ] = None
    ref: Annotated[
        list[Path], Option("Reference lines; repeatable, for several references.", metavar="<path>")
    ]
    hyp: Annotated[
        list[Path] | None,
        Option("Score the outputs in this file; give it again for more systems.", metavar="<path>"),
    ] = None
    compare: Annotated[
        list[Path] | None,
        Option(
            "Another run or bundle, or a file of outputs, to compare with the first system; give it again "
            "for more.",
            metavar="OTHER",
        ),
    ] = None
    metric: Annotated[
        str,
        Option(
            "bleu, chrf, chrf++, spbleu, ter, wer, cer, item_error_rate, per, exact, comet=MODEL; "
            "comma-separated.",
            metavar="NAMES",
        ),
    ] = "bleu,chrf"
    tokenize: Annotated[BleuTokenizer, Option(TOKENIZE)] = "auto"
    lowercase: Annotated[bool, Option("Ignore case.")] = False
    resamples: Annotated[
        int,
        Option(
            "Bootstrap resamples for confidence intervals and p-values; 0 disables both.",
            minimum=0,
            maximum=100_000,
        ),
    ] = 1000
    calibrate: Annotated[
        bool,
        Option("Fit the confidence of RUN to these lines, which it was not trained on, and store it in RUN."),
    ] = False
    as_json: AsJson = False
    output: Annotated[
        Path | None, Option("Write the outputs of RUN to this file.", flags=OUTPUT, is_file=True)
    ] = None
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        """Check that there is something to score.

        Raises:
            InputError: neither a run nor a file of outputs, or an option of a run without one.
        """
        if self.run is None and not self.hyp:
            raise InputError("nothing to score: give RUN, or a file of outputs with --hyp")
        if self.run is None and self.calibrate:
            raise InputError("--calibrate is for RUN, and there is none")
        if self.run is None and self.output is not None:
            raise InputError("--output is for the outputs of RUN, and there is none")
        if self.run is None and all(map(is_text, self.compare or ())):
            for name in self._for_translating():
                raise InputError(f"--{name.replace('_', '-')} is for translating, and no RUN translates")

    def _for_translating(self) -> list[str]:
        """Return the names of the settings that only translating uses and that are set."""
        groups = (replace(self.languages, tgt_lang=None), self.runtime)  # scores depend on tgt_lang too
        changed = [
            each for group in groups for each in fields(group) if getattr(group, each.name) != each.default
        ]
        return [*self.search, *(["shortlist"] if self.shortlist else []), *(each.name for each in changed)]


def command(task: Evaluate) -> None:
    """Evaluate, and print the scores."""
    from heedful.runs.evaluate import evaluate

    started = time.monotonic()
    check_stdin_once(src=task.src, ref=task.ref, hyp=task.hyp, compare=task.compare)
    with warnings_on_stderr():
        systems, reports = evaluate(
            task.run,
            ref=task.ref,
            src=task.src,
            hyp=task.hyp or (),
            compare=task.compare or (),
            metric=task.metric,
            tokenize=task.tokenize,
            lowercase=task.lowercase,
            resamples=task.resamples,
            calibrate=task.calibrate,
            output=task.output,
            languages=task.languages,
            search=task.search,
            shortlist=task.shortlist,
            runtime=task.runtime,
        )
    precision, report = systems[0].precision, reports[0]
    if task.runtime.precision == "auto" and precision is not None:
        print_precision(precision)
    seconds = round(time.monotonic() - started, 3)
    if task.as_json:
        print(json.dumps(_as_dict(systems, reports, seconds), ensure_ascii=False))
        return
    if len(systems) == 1:
        for name in report.scores:
            print(f"{name} {_shown(report, name)}  {report.signatures[name]}")
    else:
        _print_table(systems, reports, task.resamples)
    for number, system in enumerate(systems):
        if system.calibration is not None:
            stored = f", by cross-validation; stored in {task.run}" if task.calibrate and not number else ""
            print(f"confidence{f' of {system.name}' if number else ''}: {system.calibration}{stored}")
    for number, system in enumerate(systems):
        if num_cut := system.num_cut:
            print(f"cut at the length limit{f' by {system.name}' if number else ''}: {num_cut:,} outputs")
    used = f", in {precision}" if precision is not None else ""
    print(f"{report.num_sentences:,} sentences in {seconds:.1f} s{used}")
    if precision is not None and task.runtime.precision != "auto":
        suggest_auto_precision(precision, seconds)


def _as_dict(
    systems: "Sequence[System]", reports: "Sequence[EvaluationReport]", seconds: float
) -> dict[str, object]:
    """Return what --json prints: the report, or, of several systems, a list of theirs."""
    rows = [report.as_dict() | system.as_dict() for system, report in zip(systems, reports, strict=True)]
    if len(rows) == 1:
        return {**rows[0], "seconds": seconds}
    named = [{"system": system.name} | row for system, row in zip(systems, rows, strict=True)]
    return {"systems": named, "seconds": seconds}


def _shown(report: "EvaluationReport", name: str) -> str:
    """Return a score, half the width of its interval, and the p-value of its difference to the baseline."""
    shown = f"{report.scores[name]:.2f}"
    shown += f" ± {report.confidence[name]:.2f}" if name in report.confidence else ""
    return shown + (f" (p = {report.p_values[name]:.4f})" if name in report.p_values else "")


def _print_table(
    systems: "Sequence[System]", reports: "Sequence[EvaluationReport]", num_resamples: int
) -> None:
    names = list(reports[0].scores)
    rows = [["system", *names]]
    rows += [
        [system.name, *(_shown(report, name) for name in names)]
        for system, report in zip(systems, reports, strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for name, signature in reports[0].signatures.items():
        print(f"{name}: {signature}")
    if reports[-1].p_values:
        print(f"p: paired bootstrap against {systems[0].name}, {num_resamples:,} resamples")
