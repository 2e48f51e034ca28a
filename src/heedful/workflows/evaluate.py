"""Translate a test set and score the outputs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.data.files import check_parallel, read_lines
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, suggestion
from heedful.evaluation.metrics import METRICS, EvaluationReport, evaluate_texts
from heedful.settings.options import Runtime, SearchRequest
from heedful.workflows.loading import load_translator, search_options


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation: the report, the outputs, and the precision of the matrix multiplications."""

    report: EvaluationReport
    outputs: list[str]
    precision: str


@dataclass(frozen=True, kw_only=True)
class EvaluationTask:
    """Inputs of an evaluation: a source file, one or more reference files, the metrics."""

    src: Path
    refs: Sequence[Path]
    metrics: Sequence[str] = ("bleu", "chrf")
    lowercase: bool = False


def evaluate(
    run: Path,
    task: EvaluationTask,
    *,
    request: SearchRequest,
    runtime: Runtime,
    translated: Callable[[Sequence[str]], None] = lambda outputs: None,
) -> Evaluation:
    """Read everything, check it, translate, score.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        task: what to score.
        request: what to change in the search, and the languages of a model that has many.
        runtime: how to compute.
        translated: gets the outputs before they are scored, to keep them whatever comes.

    Raises:
        BundleError: no usable bundle.
        ConfigError: a metric that does not exist.
        CorpusError: files that cannot be read or are not parallel.
        InputError: settings that cannot be.
    """
    for name in task.metrics:
        if name not in METRICS:
            raise ConfigError(f"metric {name!r} does not exist{suggestion(name, METRICS)}")
    sources = read_lines(task.src)
    references = [read_lines(path) for path in task.refs]
    for path, lines in zip(task.refs, references, strict=True):
        check_parallel(str(task.src), sources, str(path), lines)
    translator = load_translator(run, request, runtime)
    options = search_options(request, translator.bundle.config.decode)
    outputs = translate_distinct(translator, sources, options)
    translated(outputs)
    report = evaluate_texts(sources, outputs, references, task.metrics, lowercase=task.lowercase)
    return Evaluation(report, outputs, translator.precision_in_use)


def translate_distinct(translator: Translator, sources: Sequence[str], options: SearchOptions) -> list[str]:
    """Translate each distinct line once: a pronunciation dictionary, say, has a line for each reference."""
    first = {source: i for i, source in reversed([*enumerate(sources)])}
    # Empty lines cost nothing, and the numbers of lines in messages stay right.
    texts = [source if first[source] == i else "" for i, source in enumerate(sources)]
    outputs = translator.translate(texts, options=options)
    return [outputs[first[source]] for source in sources]
