"""Evaluate: read a test set, translate it with runs and bundles, and score these and other outputs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from heedful.data.files import check_parallel, read_lines
from heedful.data.streams import is_text, open_output, stdin_or, write_line
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.evaluation.calibration import check_scikit_learn
from heedful.evaluation.metrics import EvaluationReport, compare_systems, metric_names, metric_of
from heedful.evaluation.systems import System
from heedful.evaluation.tokenization import check_tokenizer, language_of_files
from heedful.settings.options import Languages
from heedful.storage.description import bundle_file_names, resolve_bundle
from heedful.tasks.loading import hub_repo, load_translator
from heedful.tasks.options import EvaluationOptions
from heedful.tasks.output_checks import check_output
from heedful.text.pair import has_target_languages


def evaluate(
    options: EvaluationOptions, *, notify: Callable[[str], None]
) -> tuple[list[System], list[EvaluationReport]]:
    """Read everything, check it, translate, write the outputs, score; see the command of this name.

    `notify` is called with the precision that "auto" has chosen for a model.

    Returns:
        The systems: the run, then `hyp`, then `compare`; and a report for each.
    """
    run, src, ref, output = options.run, options.src, options.ref, options.output
    hyp, compare = options.hyp or (), options.compare or ()
    files = [*hyp, *filter(is_text, compare)]
    runs = [*([] if run is None else [run]), *(path for path in compare if not is_text(path))]
    _check_runs(options, runs)
    if output is not None:
        check_output(output, inputs=[src, *ref, *files, options.shortlist], models=runs)
    for name in metric_names(options.metric):
        metric_of(name)
    check_tokenizer(options.tokenize)
    references = [read_lines(stdin_or(path)) for path in ref]
    sources = None if src is None else read_lines(stdin_or(src))
    written = {path: read_lines(stdin_or(path)) for path in files}
    lines = sources or references[0]
    for path, others in (*zip(ref, references, strict=True), *written.items()):
        check_parallel(str(src or ref[0]), lines, str(path), others)

    def system(path: Path) -> System:
        if path in written:
            return System(str(path), written[path])
        return System.translating(
            str(path), translator_for(path, options, notify=notify), lines, options.search
        )

    systems = [] if run is None else [system(run)]
    if output is not None:  # before scoring, to keep them if that fails
        with open_output(output) as file:
            for text in systems[0].outputs:
                write_line(file, text)
    systems += [system(path) for path in (*hyp, *compare)]
    systems = [each.calibrated(references, fit=options.calibrate and not i) for i, each in enumerate(systems)]
    return systems, score(systems, references, options, sources=sources, files=ref)


def _check_runs(options: EvaluationOptions, runs: Sequence[Path]) -> None:
    """Check, before the work, that all models are there and have what they need."""
    problem = ""
    if runs and options.src is None:
        problem = f"the sources are needed to translate them by {runs[0]}: give --src"
    if missing := [path for path in runs if not path.exists() and hub_repo(path) is None]:
        problem = f"{missing[0]}: no such run, bundle or file"
    if problem:
        raise InputError(problem)
    if options.calibrate and options.run is not None:
        bundle_file_names(resolve_bundle(options.run))  # one that a calibration can be stored in
        check_scikit_learn()


def translator_for(
    path: Path, options: EvaluationOptions, *, notify: Callable[[str], None] = lambda message: None
) -> Translator:
    """Load a model to evaluate; if it has one target language, `tgt_lang` only says how words are counted."""
    translator = load_translator(
        path, Languages(), options.runtime, shortlist=options.shortlist, notify=notify
    )
    languages, bundle = options.languages, translator.bundle
    if languages.tgt_lang and not has_target_languages(bundle.config, bundle.tokenizers):
        languages = replace(languages, tgt_lang=None)
    return translator.for_languages(src_lang=languages.src_lang, tgt_lang=languages.tgt_lang)


def score(
    systems: Sequence[System],
    references: Sequence[Sequence[str]],
    options: EvaluationOptions,
    *,
    sources: Sequence[str] | None,
    files: Iterable[Path | str],
) -> list[EvaluationReport]:
    """Score systems in the target language, which the options, a model, or the names of the references state.

    The first system is the baseline of the others. There are N lines in each reference file and in the
    sources, which may not be known (None); `files` are the names of the reference files.
    """
    bundles = [each.bundle for each in systems if each.bundle is not None]
    stated = [options.languages.tgt_lang, *(bundle.config.languages.target for bundle in bundles)]
    return compare_systems(
        sources,
        [each.outputs for each in systems],
        references,
        metric_names(options.metric),
        lowercase=options.lowercase,
        num_resamples=options.resamples,
        tokenize=options.tokenize,
        language=next(filter(None, stated), None) or language_of_files(files, references),
    )
