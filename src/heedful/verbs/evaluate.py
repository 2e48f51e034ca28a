"""`heedful evaluate`: translate a test set and score the outputs."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.streams import (
    open_output,
    print_precision,
    suggest_auto_precision,
    warnings_on_stderr,
    write_line,
)
from heedful.errors import ConfigError, suggestion
from heedful.settings.options import OUTPUT, AsJson, Option, Run, Runtime, SearchRequest

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translator import Translator
    from heedful.evaluation.metrics import EvaluationReport


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Translate a test set and score the outputs.

    Each score comes with its signature. `bleu`, `chrf` and `ter` are sacreBLEU's. `wer` is the word error
    rate, in percent: edit distance to the closest reference over its length, in words. `exact` is the
    percentage of lines that equal one of their references. The others are for dictionaries, where a source
    that occurs several times is one item with several references. `item_error_rate` is the percentage of
    sources with no correct output (`wer` in earlier versions). `per` is the token error rate.
    """

    run: Run
    src: Annotated[Path, Option("Source lines; .gz too.")]
    ref: Annotated[
        list[Path], Option("Reference lines; repeatable, for several references.", metavar="<path>")
    ]
    metric: Annotated[
        str, Option("bleu, chrf, ter, wer, item_error_rate, per, exact; comma-separated.", metavar="NAMES")
    ] = "bleu,chrf"
    lowercase: Annotated[bool, Option("Ignore case.")] = False
    as_json: AsJson = False
    output: Annotated[Path | None, Option("Write the outputs to this file.", flags=OUTPUT)] = None
    search: SearchRequest = field(default_factory=SearchRequest)
    runtime: Runtime = field(default_factory=Runtime)


def evaluate(task: Evaluate) -> "tuple[EvaluationReport, str]":
    """Read everything, check it, translate, write the outputs, score.

    Returns:
        The report, and the precision of the matrix multiplications.

    Raises:
        BundleError: no usable bundle.
        ConfigError: a metric that does not exist.
        CorpusError: files that cannot be read or are not parallel.
        InputError: settings that cannot be, or an output that cannot be written.
    """
    from heedful.data.files import check_parallel, read_lines
    from heedful.evaluation.metrics import METRICS, evaluate_texts
    from heedful.verbs.loading import load_translator, search_options
    from heedful.verbs.output_checks import check_output

    if task.output is not None:
        check_output(task.output, inputs=[task.src, *task.ref, task.search.shortlist], models=[task.run])
    metrics = list(dict.fromkeys(name.strip() for name in task.metric.split(",") if name.strip()))
    for name in metrics:
        if name not in METRICS:
            raise ConfigError(f"metric {name!r} does not exist{suggestion(name, METRICS)}")
    sources = read_lines(task.src)
    references = [read_lines(path) for path in task.ref]
    for path, lines in zip(task.ref, references, strict=True):
        check_parallel(str(task.src), sources, str(path), lines)
    translator = load_translator(task.run, task.search, task.runtime)
    options = search_options(task.search, translator.bundle.config.decode)
    outputs = _translate_distinct(translator, sources, options)
    if task.output is not None:  # before they are scored, to keep them whatever comes
        with open_output(task.output) as file:
            for text in outputs:
                write_line(file, text)
    report = evaluate_texts(sources, outputs, references, metrics, lowercase=task.lowercase)
    return report, translator.precision_in_use


def _translate_distinct(
    translator: "Translator", sources: Sequence[str], options: "SearchOptions"
) -> list[str]:
    """Translate each distinct line once: a pronunciation dictionary, say, has a line for each reference."""
    first = {source: i for i, source in reversed([*enumerate(sources)])}
    # Empty lines cost nothing, and the numbers of lines in messages stay right.
    texts = [source if first[source] == i else "" for i, source in enumerate(sources)]
    outputs = translator.translate(texts, options=options)
    return [outputs[first[source]] for source in sources]


def command(task: Evaluate) -> None:
    """Evaluate, and print the scores."""
    started = time.monotonic()
    with warnings_on_stderr():
        report, precision = evaluate(task)
    if task.runtime.precision == "auto":
        print_precision(precision)
    seconds = round(time.monotonic() - started, 3)
    if task.as_json:
        print(json.dumps(report.as_dict(seconds=seconds), ensure_ascii=False))
        return
    for name, score in report.scores.items():
        print(f"{name} {score:.2f}  {report.signatures[name]}")
    print(f"{report.num_sentences:,} sentences in {seconds:.1f} s, in {precision}")
    if task.runtime.precision != "auto":
        suggest_auto_precision(precision, seconds)
