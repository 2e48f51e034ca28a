"""Scores of plain text against references, with confidence intervals: sacreBLEU's metrics, and error rates.

A metric is a function from `Texts` to a `Measurement`. A plugin's metric (`settings/plugins.py`) may also be
a class that is made from the text after its name, `PLUGIN:NAME=text`, and called.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import estimate_ci

from heedful.errors import ConfigError, CorpusError, suggestion
from heedful.evaluation.comet import Comet
from heedful.evaluation.measurement import Measurement, Texts
from heedful.evaluation.tokenization import References, check_tokenizer, tokenization_of
from heedful.notebook_html import text_table
from heedful.settings.plugins import checked_function, is_number, made_by, plugin_part

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EvaluationReport:
    """Scores of one system's outputs, each with the signature that makes it comparable.

    >>> EvaluationReport({"exact": 50.0}, {"exact": "lines:2"}, 2)
    EvaluationReport(exact=50.00, 2 sentences)

    Attributes:
        scores: the score by metric, in the requested order.
        signatures: for each metric, how the score was computed.
        num_sentences: the number of scored lines.
        confidence: for each metric, half the width of the 95 % interval; empty if nothing was resampled.
        p_values: for each metric, the p-value of the difference to the baseline; empty if there is none.
    """

    scores: dict[str, float]
    signatures: dict[str, str]
    num_sentences: int
    confidence: dict[str, float] = field(default_factory=dict)
    p_values: dict[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        interval = {name: f" ± {half:.2f}" for name, half in self.confidence.items()}
        scores = [f"{name}={score:.2f}{interval.get(name, '')}" for name, score in self.scores.items()]
        return f"EvaluationReport({', '.join(scores)}, {self.num_sentences:,} sentences)"

    def as_dict(self) -> dict[str, object]:
        """Return the report for `--json`.

        >>> EvaluationReport({"exact": 50.0}, {"exact": "lines:2"}, 2).as_dict()
        {'exact': 50.0, 'signatures': {'exact': 'lines:2'}, 'sentences': 2}
        """
        resampled = {"confidence": self.confidence, "p_values": self.p_values}
        return {
            **self.scores,
            "signatures": dict(self.signatures),
            "sentences": self.num_sentences,
            **{name: dict(values) for name, values in resampled.items() if values},
        }

    def _repr_html_(self) -> str:
        """Return the scores as a table, for notebooks."""
        rows = [[name, f"{score:.2f}", self.signatures[name]] for name, score in self.scores.items()]
        return text_table(f"{self.num_sentences:,} sentences", ["metric", "score", "signature"], rows)


def p_value(baseline: float, other: float, resampled: tuple[Floats, Floats]) -> float:
    """Return the p-value of a difference by paired bootstrap resampling (Koehn, 2004); 1 for equal scores.

    Args:
        baseline: the score of a system.
        other: the score of another system, by the same metric on the same lines.
        resampled: the scores of both for the same resamples.
    """
    difference = abs(baseline - other)
    if difference == 0.0:
        return 1.0  # where sacreBLEU has 1 / (resamples + 1), as if equal systems differed for sure
    differences = np.abs(resampled[0] - resampled[1])
    more = int((differences - differences.mean() > difference).sum())
    return (more + 1) / (len(differences) + 1)


def evaluate_texts(
    sources: Sequence[str] | None,
    hypotheses: Sequence[str],
    references: References,
    metrics: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "auto",
    language: str | None = None,
) -> EvaluationReport:
    """Score the outputs of one system, as `compare_systems` does, without confidence intervals."""
    [report] = compare_systems(
        sources, [hypotheses], references, metrics,
        lowercase=lowercase, num_resamples=0, tokenize=tokenize, language=language,
    )  # fmt: skip
    return report


def compare_systems(
    sources: Sequence[str] | None,
    systems: References,
    references: References,
    metrics: Sequence[str],
    *,
    lowercase: bool = False,
    num_resamples: int = 1000,
    tokenize: str = "auto",
    language: str | None = None,
) -> list[EvaluationReport]:
    """Score the outputs of one or more systems against references; the first is the baseline of the others.

    `bleu`, `chrf`, `chrf++`, `spbleu` and `ter` are sacreBLEU's, on plain text, with its signatures; `ter` is
    case-sensitive, unlike sacreBLEU's default. `wer` is the word error rate in percent: the edit distance of
    each line to its closest reference over its length, in words, both summed over the lines. `cer` is the
    same in characters, the spaces between words included. `exact` is the percentage of lines that equal one
    of their references.

    In languages that are written without spaces, such as Chinese, `bleu` has sacreBLEU's tokenizer for the
    language, `ter` counts Han characters, or all characters, as words, and `wer` and `per` count characters;
    the signatures say so. All metrics ignore an empty reference if the line has another one.

    `item_error_rate` and `per` are for pronunciation dictionaries: a source on several lines is one item,
    with the references of all these lines, and the worst of its outputs counts. `item_error_rate` is the
    percentage of items without a correct output (in the literature on pronunciation: WER); `per`, the token
    error rate, is as `wer` over items. All but sacreBLEU's normalise white space.

    Intervals and p-values are from bootstrap resamples (Koehn, 2004), as in sacreBLEU, but equal scores have
    the p-value 1.

    Args:
        sources: N lines; None if no metric needs them.
        systems: N lines of outputs for each system.
        references: one list of N lines for each reference file.
        metrics: distinct names.
        lowercase: whether to ignore case.
        num_resamples: the number of bootstrap resamples; 0: no intervals and no p-values.
        tokenize: sacreBLEU's tokenizer for `bleu`; auto: by the language.
        language: code or tag of the target language; None: by the scripts of the references.

    Raises:
        ConfigError: a metric or tokenizer does not exist or cannot be used, or there is no metric.
        CorpusError: the numbers of lines differ, or there is nothing to score.
        InputError: a metric needs the sources.
        MissingExtraError: the packages of a tokenizer or metric are not installed.
    """
    functions = {name: metric_of(name) for name in metrics}
    if not metrics:
        raise ConfigError(f"metrics: none given; choose from {', '.join(METRICS)}")
    tokenization = tokenization_of(references, language=language, tokenize=tokenize)
    reports = list[EvaluationReport]()
    baseline = dict[str, Floats]()  # the scores of its resamples
    for hypotheses in systems:
        _check_numbers(sources, hypotheses, references)
        texts = Texts(sources, hypotheses, references, lowercase, tokenization)
        report = EvaluationReport({}, {}, len(hypotheses), {}, {})
        for name, function in functions.items():
            measured = function(texts)
            report.scores[name], report.signatures[name] = measured.score, measured.signature
            if num_resamples < 2 or len(measured.rows) < 2:  # nothing that could differ
                continue
            resampled = measured.resampled(num_resamples)
            report.confidence[name] = float(estimate_ci(resampled)[1])
            if reports:
                both = baseline[name], resampled
                report.p_values[name] = p_value(reports[0].scores[name], measured.score, both)
            else:
                baseline[name] = resampled
        reports.append(report)
    return reports


def metric_names(text: str) -> list[str]:
    """Return the names of metrics between commas, without repetitions."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def metric_of(name: str, key: str = "metric") -> "Metric":
    """Return the metric of this name: one of heedful's, or a plugin's (`plugin:name`, `plugin:name=text`).

    `key` is the setting, for messages.

    Raises:
        ConfigError: it does not exist, or lacks a model or the text after its name.
        MissingExtraError: a package that it needs is not installed.
    """
    if name in METRICS:
        if name == "spbleu":
            check_tokenizer("flores200")
        return METRICS[name]
    first, _, text = name.partition("=")
    if first == "comet":
        loaded: Any = Comet
    elif ":" in first:
        loaded = plugin_part(first, key)
    else:
        raise ConfigError(f"metric {name!r} does not exist{suggestion(first, [*METRICS, 'comet'])}")
    if text and not isinstance(loaded, type):
        raise ConfigError(f"metric {name!r}: {first} takes no text after its name; leave out ={text}")
    if first == "comet":
        return Comet(text)
    part = f"{key}={first}"
    metric = made_by(loaded, part, text=text) if isinstance(loaded, type) else loaded
    returns = "a heedful.evaluation.measurement.Measurement"
    return checked_function(metric, part, "texts", returns=returns, is_right=_is_measurement)


def try_metric(name: str, key: str) -> None:
    """Score three lines with a metric, for its mistakes to be found before the work.

    Raises:
        ConfigError: it does not exist, takes other arguments, fails, or returns no `Measurement`.
    """
    lines = ["a dog runs .", "two birds", "zwei Vögel"]
    metric_of(name, key)(Texts(lines, lines, [lines], lowercase=False, tokenization=tokenization_of([lines])))


def _is_measurement(result: object, _: object) -> bool:
    return isinstance(result, Measurement) and is_number(result.score, None)


def _check_numbers(sources: Sequence[str] | None, hypotheses: Sequence[str], references: References) -> None:
    if not (references and hypotheses):
        missing = "evaluation: no lines to score" if references else "references: none given"
        raise CorpusError(f"{missing}; at least one is needed")
    labelled = {} if sources is None else {"sources": sources}
    labelled |= {f"reference {i}": lines for i, lines in enumerate(references, start=1)}
    for name, lines in labelled.items():
        if len(lines) != len(hypotheses):
            raise CorpusError(
                f"{name}: {len(lines):,} lines but there are {len(hypotheses):,} outputs; one for each"
            )


def _bleu(texts: Texts, tokenize: str | None = None) -> Measurement:
    metric = BLEU(lowercase=texts.lowercase, tokenize=tokenize or texts.tokenization.bleu)
    return _sacrebleu(metric, texts)


def _chrf(texts: Texts, word_order: int = 0) -> Measurement:
    return _sacrebleu(CHRF(lowercase=texts.lowercase, word_order=word_order), texts)


def _ter(texts: Texts) -> Measurement:
    is_asian = texts.tokenization.ter == "asian"
    metric = TER(case_sensitive=not texts.lowercase, normalized=is_asian, asian_support=is_asian)
    if texts.tokenization.ter != "character":
        return _sacrebleu(metric, texts)
    spaced = replace(
        texts, hypotheses=_spaced(texts.hypotheses), references=[*map(_spaced, texts.references)]
    )
    measured = _sacrebleu(metric, spaced)
    return replace(measured, signature=f"{measured.signature}|unit:character")


def _spaced(lines: Sequence[str]) -> list[str]:
    """Return lines with a space between all characters."""
    return [" ".join("".join(line.split())) for line in lines]


def _sacrebleu(metric: BLEU | CHRF | TER, texts: Texts) -> Measurement:
    by_line = texts.references_by_line()
    references = [  # sacreBLEU takes None for a missing one, although its types do not say so
        [cast("str", line[number] if number < len(line) else None) for line in by_line]
        for number in range(max(map(len, by_line)))
    ]
    # What `corpus_score` does in two steps: sacreBLEU has no public name for the statistics of the lines.
    statistics = metric._extract_corpus_statistics(list(texts.hypotheses), references)
    score = metric._aggregate_and_compute(statistics)

    def score_of(sums: Floats) -> float:
        return float(metric._compute_score_from_stats(sums.tolist()).score)

    rows = np.array(statistics, dtype=np.float64)
    return Measurement(float(score.score), str(metric.get_signature()), rows, score_of)


def _exact(texts: Texts) -> Measurement:
    outputs, references = _normalised_lines(texts)
    matches = [output in line for output, line in zip(outputs, references, strict=True)]
    signature = f"lines:{len(outputs)}|correct:any reference|unit:line|{_suffix(texts)}"
    return Measurement.percentage([(match, 1) for match in matches], signature)


def _error_rate(texts: Texts, unit: str | None = None) -> Measurement:
    unit = unit or texts.tokenization.unit
    outputs, references = _normalised_lines(texts)
    pairs = [_closest(output, line, unit) for output, line in zip(outputs, references, strict=True)]
    signature = f"lines:{len(outputs)}|distance:closest reference|unit:{unit}|{_suffix(texts)}"
    return Measurement.percentage(pairs, signature)


def _item_error_rate(texts: Texts) -> Measurement:
    items = _items(texts, "item_error_rate")
    errors = [not outputs <= references for outputs, references in items]
    signature = f"items:{len(items)}|correct:any listed reference|sources:grouped|unit:line|{_suffix(texts)}"
    return Measurement.percentage([(error, 1) for error in errors], signature)


def _per(texts: Texts) -> Measurement:
    items, unit = _items(texts, "per"), texts.tokenization.unit
    pairs = [max(_closest(output, references, unit) for output in outputs) for outputs, references in items]
    shown = "token" if unit == "word" else unit
    signature = (
        f"items:{len(items)}|distance:closest listed reference|sources:grouped|unit:{shown}|{_suffix(texts)}"
    )
    return Measurement.percentage(pairs, signature)


def _items(texts: Texts, metric: str) -> list[tuple[set[str], set[str]]]:
    """Return the outputs and references of each distinct source, in the order of first occurrence."""
    items = defaultdict[str, tuple[set[str], set[str]]](lambda: (set(), set()))
    outputs, references = _normalised_lines(texts)
    sources = [" ".join(source.split()) for source in texts.sources_for(metric)]
    for source, output, line in zip(sources, outputs, references, strict=True):
        items[source][0].add(output)
        items[source][1].update(line)
    # Of several lines too, an empty reference is missing.
    return [(outputs, references - {""} or references) for outputs, references in items.values()]


def _normalised_lines(texts: Texts) -> tuple[list[str], list[set[str]]]:
    """Return the outputs, and the references of each line, with single spaces between words."""

    def normalised(lines: Iterable[str]) -> list[str]:
        return [" ".join((line.lower() if texts.lowercase else line).split()) for line in lines]

    return normalised(texts.hypotheses), [set(normalised(line)) for line in texts.references_by_line()]


def _suffix(texts: Texts) -> str:
    return f"case:{'lc' if texts.lowercase else 'mixed'}|heedful:{version('heedful')}"


def _closest(output: str, references: set[str], unit: str) -> tuple[int, int]:
    """Return the distance to the closest reference and its length; of equally close ones, the shortest."""
    divided = list if unit == "character" else str.split
    if output in references:
        return 0, len(divided(output))
    tokens = [divided(reference) for reference in references]
    return min((edit_distance(divided(output), each), len(each)) for each in tokens)


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the Levenshtein distance of two sequences.

    >>> edit_distance("K AE T".split(), "K AA T S".split())
    2
    """
    *_, last = edit_distances(left, right)
    return last[-1]


def edit_distances(left: Sequence[object], right: Sequence[object]) -> Iterator[list[int]]:
    """Yield, for each prefix of the left sequence, its distances to the prefixes of the right one."""
    row = list(range(len(right) + 1))
    yield row
    for i, item in enumerate(left, start=1):
        above, row = row, [i]
        for j, other in enumerate(right, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (item != other)))
        yield row


Metric = Callable[[Texts], Measurement]
METRICS: dict[str, Metric] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": partial(_chrf, word_order=2),
    "spbleu": partial(_bleu, tokenize="flores200"),
    "ter": _ter,
    "wer": _error_rate,
    "cer": partial(_error_rate, unit="character"),
    "item_error_rate": _item_error_rate,
    "per": _per,
    "exact": _exact,
}
