"""Evaluate: score a model or outputs, or read a test set, translate it with models, and compare systems."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Unpack

from heedful.data.files import check_parallel, holds_units, read_lines, read_parallel
from heedful.data.streams import is_text, open_output, stdin_or, write_line
from heedful.decoding.translator import Translator
from heedful.errors import InputError, refuse_if
from heedful.evaluation.calibration import check_scikit_learn
from heedful.evaluation.metrics import EvaluationReport, Metric, compare_systems, metric_names, metric_of
from heedful.evaluation.systems import System
from heedful.evaluation.tokenization import check_tokenizer, language_of_files
from heedful.settings.arguments import checked
from heedful.settings.keywords import Texts
from heedful.settings.loading import plain
from heedful.settings.options import Languages
from heedful.settings.run import Config
from heedful.storage.bundle import load_bundle
from heedful.storage.description import bundle_file_names, resolve_bundle, runs_of
from heedful.tasks.directory import CONFIG
from heedful.tasks.keywords import EvaluationKeywords
from heedful.tasks.loading import (
    from_keywords,
    hub_repo,
    load_translator,
    local_bundle,
    refuse_options_of_models,
)
from heedful.tasks.options import METRICS_SHOWN, EvaluationOptions, Notify, ScoringOptions, say_nothing
from heedful.tasks.output_checks import check_output
from heedful.text.pair import has_target_languages, languages_of_pairs

_OF_OUTPUTS = {"tokenize", "lowercase", "resamples", "tgt_lang"}  # the options that need no model


@checked
def evaluate(
    system: Translator | Texts,
    *,
    src: Texts | None = None,
    ref: Texts,
    metric: str | Metric = METRICS_SHOWN,
    **options: Unpack[EvaluationKeywords],
) -> EvaluationReport:
    """Score a model's translations, or given outputs, against references: `heedful evaluate`.

    >>> translator = heedful.Translator.load("runs/demo")
    >>> heedful.evaluate(translator, src="test.en", ref="test.de", metric="exact", resamples=0)
    EvaluationReport(exact=100.00, 3 sentences)
    >>> heedful.evaluate(["Das Haus."], ref=["Das Haus."], metric="chrf").scores
    {'chrf': 100.0}

    Args:
        system: a translator, the path of a run or bundle, or a list of outputs.
        src: the sources, as a file or a list of lines; outputs need none.
        ref: the references, the same; both may be one TMX file.
        metric: names, comma-separated: see `compare_systems`; or your own metric, a function of a module.
        options: tokenize: sacreBLEU's tokenizer for BLEU, by default by the language; lowercase: ignore case;
            resamples: bootstrap resamples for the confidence intervals, 1,000, or 0 for none. For a model,
            also options as for `Translator.translations`, such as beam_size=1; for a path also
            precision, src_lang, shortlist and others that a `Translator` has already; for outputs only
            tgt_lang, which chooses the tokenizer.

    Raises:
        BundleError: no usable bundle.
        ConfigError: a metric that does not exist.
        CorpusError: files that cannot be read or are not parallel.
        InputError: no sources, or an option that does not exist.
    """
    keywords = {"metric": plain(metric, "metric"), **options}
    scoring = from_keywords(ScoringOptions, keywords, evaluate)
    if isinstance(system, Translator):
        refuse_options_of_models(options)
    elif isinstance(system, str | Path):
        system = translator_for(Path(system), scoring)
    elif others := [name for name in options if name not in _OF_OUTPUTS]:
        raise InputError(f"{others[0]}: is for a model, and these are outputs")
    if isinstance(src, str | Path) and isinstance(ref, str | Path) and holds_units(Path(src), Path(ref)):
        config = system.bundle.config if isinstance(system, Translator) else Config()
        sources, references = _units(Path(src), config, scoring.languages)
    else:
        sources, references = None if src is None else _lines(src), _lines(ref)
    if not isinstance(system, Translator):
        scored = System("outputs", list(system))
    elif sources is None:
        raise InputError("src: the sources are needed, to translate them")
    else:
        check_parallel("src", sources, "ref", references)
        scored = System.translating("model", system, sources, scoring.search)
    files = [ref] if isinstance(ref, str | Path) else []
    return score([scored], [references], scoring, sources=sources, files=files)[0]


def _test_text(
    options: EvaluationOptions, runs: Sequence[Path], notify: Notify
) -> tuple[list[str] | None, list[list[str]]]:
    """Read the sources, if they are given, and the references; both may be one TMX file."""
    src, ref = options.src, options.ref
    if src is None or not holds_units(src, *ref):
        references = [read_lines(stdin_or(path)) for path in ref]
        return None if src is None else read_lines(stdin_or(src)), references
    config = load_bundle(local_bundle(runs[0])).config if runs else Config()
    sources, targets = _units(src, config, options.languages, notify)
    return sources, [targets]


def _units(
    path: Path, config: Config, languages: Languages, notify: Notify = say_nothing
) -> tuple[list[str] | None, list[str]]:
    """Read the sources and the references in a TMX file, for the languages of a model."""
    text = read_parallel(path, path, languages=languages_of_pairs(config, **asdict(languages)))
    if text.num_empty:
        notify(f"{path}: {text.num_empty:,} of {text.num_read:,} units left out as empty")
    return [*text.src], [*text.tgt]


def _lines(text: Texts) -> list[str]:
    return read_lines(text) if isinstance(text, str | Path) else list(text)


def evaluate_systems(
    options: EvaluationOptions, *, notify: Notify
) -> tuple[list[System], list[EvaluationReport]]:
    """Read everything, check it, translate, write the outputs, score; see the command of this name.

    `notify` is called with the precision that "auto" has chosen for a model.

    Returns:
        The systems: the run, or the runs in its directory, then `hyp`, then `compare`; and a report for each.
    """
    src, ref, output = options.src, options.ref, options.output
    first = runs_of(options.run) if options.run else []
    if len(first) > 1 and (output is not None or options.calibrate or options.ensemble):
        raise InputError(
            f"{options.run}: has {len(first)} runs; --output, --calibrate and --ensemble need one"
        )
    others = [run for other in options.compare or () for run in runs_of(other)]
    compared = [*(options.hyp or ()), *others]
    files = [*(options.hyp or ()), *filter(is_text, others)]
    runs = [*first, *(path for path in compared if path not in files)]
    _check_runs(options, runs)
    if output is not None:
        check_output(output, inputs=[src, *ref, *files, options.shortlist], models=runs)
    for name in metric_names(options.metric):
        metric_of(name)
    check_tokenizer(options.tokenize)
    sources, references = _test_text(options, runs, notify)
    written = {path: read_lines(stdin_or(path)) for path in files}
    lines = sources or references[0]
    for path, parallel in (*zip(ref, references, strict=True), *written.items()):
        check_parallel(str(src or ref[0]), lines, str(path), parallel)
    alone = replace(options, ensemble=None)

    def system(path: Path) -> System:
        if path in written:
            return System(str(path), written[path])
        own = options if path in first else alone
        name = " + ".join(map(str, [path, *(own.ensemble or ())]))
        translator = translator_for(path, own, notify=notify)
        return System.translating(name, translator, lines, options.search)

    systems = [system(path) for path in first]
    if output is not None:  # before scoring, to keep them if that fails
        with open_output(output) as file:
            for text in systems[0].outputs:
                write_line(file, text)
    systems += [system(path) for path in compared]
    fits = options.calibrate  # the first system, which is a run then
    systems = [scored.calibrated(references, fit=fits and scored is systems[0]) for scored in systems]
    return systems, score(systems, references, options, sources=sources, files=ref)


def spread_of(
    systems: Sequence[System], reports: Sequence[EvaluationReport]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the mean and the sample standard deviation of each score over the runs in each directory.

    Such a directory has several seeds or settings of one training; others are left out.
    """
    groups = dict[str, list[EvaluationReport]]()
    for system, report in zip(systems, reports, strict=True):
        run = Path(system.name)
        if system.bundle is not None and not run.parent.joinpath(CONFIG).exists():
            groups.setdefault(str(run.parent), []).append(report)
    spread = dict[str, dict[str, tuple[float, float]]]()
    for directory, of_runs in groups.items():
        if len(of_runs) > 1:
            columns = {name: [report.scores[name] for report in of_runs] for name in of_runs[0].scores}
            spread[directory] = {name: (fmean(values), stdev(values)) for name, values in columns.items()}
    return spread


def _check_runs(options: EvaluationOptions, runs: Sequence[Path]) -> None:
    """Check, before the work, that all models are there and have what they need."""
    missing = [path for path in runs if not path.exists() and hub_repo(path) is None]
    refuse_if(
        *((True, f"{path}: no such run, bundle or file") for path in missing),
        *(
            (options.src is None, f"the sources are needed to translate them by {run}: give --src")
            for run in runs
        ),
        error=InputError,
    )
    if options.calibrate:
        bundle_file_names(resolve_bundle(runs[0]))  # one that a calibration can be stored in
        check_scikit_learn()


def translator_for(path: Path, options: ScoringOptions, *, notify: Notify = say_nothing) -> Translator:
    """Load a model to evaluate; if it has one target language, `tgt_lang` only says how words are counted."""
    translator = load_translator(
        path,
        Languages(),
        options.runtime,
        shortlist=options.shortlist,
        adapter=options.adapter,
        ensemble=options.ensemble or (),
        notify=notify,
    )
    languages, bundle = options.languages, translator.bundle
    if languages.tgt_lang and not has_target_languages(bundle.config, bundle.tokenizers):
        languages = replace(languages, tgt_lang=None)
    return translator.for_languages(src_lang=languages.src_lang, tgt_lang=languages.tgt_lang)


def score(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    options: ScoringOptions,
    *,
    sources: Sequence[str] | None,
    files: Iterable[Path | str],
) -> list[EvaluationReport]:
    """Score systems in the target language, which the options, a model, or the names of the references state.

    The first system is the baseline of the others. There are N lines in each reference file and in the
    sources, which may not be known (None); `files` are the names of the reference files.
    """
    bundles = [system.bundle for system in systems if system.bundle is not None]
    stated = [options.languages.tgt_lang, *(bundle.config.languages.target for bundle in bundles)]
    return compare_systems(
        sources,
        [system.outputs for system in systems],
        references,
        metric_names(options.metric),
        lowercase=options.lowercase,
        num_resamples=options.resamples,
        tokenize=options.tokenize,
        language=next(filter(None, stated), None) or language_of_files(files, references),
    )
