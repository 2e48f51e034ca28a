"""`heedful evaluate`: score the outputs of models, or of files, for a test set."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import check_stdin_once, print_precision, suggest_auto_precision, warnings_on_stderr
from heedful.data.streams import open_output, write_line
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
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.evaluation.calibration import CalibrationReport
    from heedful.evaluation.metrics import EvaluationReport
    from heedful.storage.bundle import Bundle


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
        if not self.runs:
            for name in self._for_translating():
                raise InputError(f"--{name.replace('_', '-')} is for translating, and no RUN translates")

    @property
    def runs(self) -> list[Path]:
        """The runs and bundles that translate, RUN first."""
        others = [path for path in self.compare or () if not _is_file(path)]
        return [*([] if self.run is None else [self.run]), *others]

    @property
    def files(self) -> list[Path]:
        """The files of outputs: those of --hyp, then those of --compare."""
        return [*(self.hyp or ()), *filter(_is_file, self.compare or ())]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics, without repetitions."""
        return list(dict.fromkeys(name.strip() for name in self.metric.split(",") if name.strip()))

    def _for_translating(self) -> list[str]:
        """Return the names of the settings that only translating uses and that are set."""
        groups = (replace(self.languages, tgt_lang=None), self.runtime)  # scores depend on tgt_lang too
        changed = [
            each for group in groups for each in fields(group) if getattr(group, each.name) != each.default
        ]
        return [*self.search, *(["shortlist"] if self.shortlist else []), *(each.name for each in changed)]


@dataclass(frozen=True)
class System:
    """The outputs of a system.

    Attributes:
        name: of its run or file.
        outputs: a line for each source.
        precision: of the computation; None for a file.
        bundle: the model; None for a file.
        translations: that the outputs are from; none for a file.
        calibration: how well its confidence is calibrated; None where it has none.
    """

    name: str
    outputs: Sequence[str]
    precision: str | None = None
    bundle: "Bundle | None" = None
    translations: "Sequence[Translation]" = ()
    calibration: "CalibrationReport | None" = None

    @property
    def num_cut(self) -> int:
        """How many outputs the length limit has cut."""
        return sum(not each.finished for each in self.translations)

    def as_dict(self) -> dict[str, Any]:
        """Return how many outputs of a model its length limit has cut, and its calibration if it has one."""
        values: dict[str, Any] = {}
        if self.bundle is not None:
            values["cut_outputs"] = self.num_cut
        if self.calibration is not None:
            values["calibration"] = self.calibration.as_dict()
        return values


def evaluate(task: Evaluate) -> "tuple[list[System], list[EvaluationReport]]":
    """Read everything, check it, translate, write the outputs, score.

    Returns:
        The systems, RUN first, then those of --hyp, then those of --compare; and a report for each.

    Raises:
        BundleError: no usable bundle.
        ConfigError: a metric that does not exist.
        CorpusError: files that cannot be read or are not parallel, or that cannot calibrate a model.
        InputError: settings that cannot be, or an output that cannot be written.
        MissingExtraError: scikit-learn would be needed, and is not installed.
    """
    from heedful.data.files import check_parallel, read_lines
    from heedful.evaluation.metrics import compare_systems

    _check_before_reading(task)
    references = [read_lines(_stdin_or(path)) for path in task.ref]
    sources = None if task.src is None else read_lines(_stdin_or(task.src))
    written = {path: read_lines(_stdin_or(path)) for path in task.files}
    first, lines = task.src or task.ref[0], sources or references[0]
    for path, others in (*zip(task.ref, references, strict=True), *written.items()):
        check_parallel(str(first), lines, str(path), others)
    systems = _systems(task, lines, written)
    systems = [
        _with_calibration(system, references, fit=task.calibrate and number == 0)
        for number, system in enumerate(systems)
    ]
    reports = compare_systems(
        sources,
        [system.outputs for system in systems],
        references,
        task.metrics,
        lowercase=task.lowercase,
        num_resamples=task.resamples,
        tokenize=task.tokenize,
        language=_target_language(task, systems, references),
    )
    return systems, reports


def _check_before_reading(task: Evaluate) -> None:
    """Refuse what cannot be, before anything is read, translated or written.

    Raises:
        BundleError, ConfigError, InputError, MissingExtraError: as `evaluate`.
    """
    from heedful.evaluation.metrics import metric_of
    from heedful.evaluation.tokenization import check_tokenizer
    from heedful.runs.loading import hub_repo
    from heedful.runs.output_checks import check_output

    for path in task.runs:
        if not path.exists() and hub_repo(path) is None:
            raise InputError(f"{path}: no such run, bundle or file")
    if task.runs and task.src is None:
        raise InputError(f"the sources are needed to translate them by {task.runs[0]}: give --src")
    if task.output is not None:
        inputs = [task.src, *task.ref, *task.files, task.shortlist]
        check_output(task.output, inputs=inputs, models=task.runs)
    if task.calibrate and task.run is not None:
        _check_can_calibrate(task.run)
    for name in task.metrics:
        metric_of(name)
    check_tokenizer(task.tokenize)


def _systems(task: Evaluate, sources: Sequence[str], written: dict[Path, list[str]]) -> list[System]:
    """Translate, and write the outputs of RUN before they are scored, to keep them whatever comes."""
    systems = [] if task.run is None else [_translated(task.run, sources, task)]
    if task.output is not None:
        with open_output(task.output) as file:
            for text in systems[0].outputs:
                write_line(file, text)
    return systems + [
        System(str(path), written[path]) if path in written else _translated(path, sources, task)
        for path in (*(task.hyp or ()), *(task.compare or ()))
    ]


def _target_language(
    task: Evaluate, systems: Sequence[System], references: Sequence[Sequence[str]]
) -> str | None:
    """Return the target language that an option, a bundle or the name of a file states."""
    from heedful.evaluation.tokenization import language_of_files

    bundles = [system.bundle for system in systems if system.bundle is not None]
    stated = [task.languages.tgt_lang, *(bundle.config.languages.target for bundle in bundles)]
    return next(filter(None, stated), None) or language_of_files(task.ref, references)


def _is_file(path: Path) -> bool:
    """Return whether a path is that of outputs, in a file or a pipe, and not of a run."""
    path = _stdin_or(path)
    return path.exists() and not path.is_dir()


def _stdin_or(path: Path) -> Path:
    return Path("/dev/stdin") if str(path) == "-" else path


def _translated(run: Path, sources: Sequence[str], task: Evaluate) -> System:
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator

    translator = load_translator(run, task.languages, task.runtime, shortlist=task.shortlist)
    options = search_options(task.search, translator.bundle.config.decode)
    translations = translate_distinct(translator, sources, options)
    outputs = [each.text for each in translations]
    return System(str(run), outputs, translator.precision_in_use, translator.bundle, translations)


def translate_distinct(
    translator: "Translator",
    sources: Sequence[str],
    options: "SearchOptions | None" = None,
    **search: Any,  # noqa: ANN401
) -> "list[Translation]":
    """Translate each distinct line once: a pronunciation dictionary, say, has a line for each reference."""
    first = {source: i for i, source in reversed([*enumerate(sources)])}
    # Empty lines cost nothing, and the numbers of lines in messages stay right.
    texts = [source if first[source] == i else "" for i, source in enumerate(sources)]
    translations = translator.translations(texts, options=options, **search)
    return [translations[first[source]] for source in sources]


def _check_can_calibrate(run: Path) -> None:
    """Refuse what a calibration cannot be stored in, before anything is translated.

    Raises:
        BundleError: it is no bundle.
        MissingExtraError: scikit-learn is not installed.
    """
    from heedful.evaluation.calibration import check_scikit_learn
    from heedful.storage.bundle import bundle_file_names, resolve_bundle

    bundle_file_names(resolve_bundle(run))
    check_scikit_learn()


def _with_calibration(system: System, references: Sequence[Sequence[str]], *, fit: bool) -> System:
    """Return a system with how well its confidence is calibrated, which may be fitted and stored first."""
    from heedful.evaluation.calibration import calibrate, measure_calibration
    from heedful.storage.bundle import store_calibration

    bundle = system.bundle
    if bundle is None:
        return system
    tgt, of_languages = bundle.tokenizers.tgt, bundle.config.languages
    if fit and bundle.path is not None:
        tags = of_languages.src_tag, of_languages.tgt_tag
        calibration, report = calibrate(system.translations, references, tgt, tags=tags)
        store_calibration(bundle.path, calibration)
    elif (known := bundle.calibration_in_use) is not None:
        report = measure_calibration(system.translations, references, tgt, level=known.level)
    else:
        return system
    return replace(system, calibration=report)


def command(task: Evaluate) -> None:
    """Evaluate, and print the scores."""
    started = time.monotonic()
    check_stdin_once(src=task.src, ref=task.ref, hyp=task.hyp, compare=task.compare)
    with warnings_on_stderr():
        systems, reports = evaluate(task)
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
    systems: Sequence[System], reports: "Sequence[EvaluationReport]", seconds: float
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
    systems: Sequence[System], reports: "Sequence[EvaluationReport]", num_resamples: int
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
