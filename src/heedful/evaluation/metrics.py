"""Scores of plain text against references: sacreBLEU's metrics, and error rates."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from heedful.errors import ConfigError, CorpusError
from heedful.notebook_html import text_table


@dataclass(frozen=True)
class EvaluationReport:
    """Scores of one system's outputs, each with the signature that makes it comparable.

    Attributes:
        scores: by metric, in the requested order.
        signatures: by metric: how the score was computed.
        num_sentences: the number of scored lines.
    """

    scores: dict[str, float]
    signatures: dict[str, str]
    num_sentences: int

    def as_dict(self, *, seconds: float | None = None) -> dict[str, object]:
        """Return the report for `--json`; `seconds` is the time of the whole evaluation.

        >>> EvaluationReport({"exact": 50.0}, {"exact": "lines:2"}, 2).as_dict(seconds=1.5)
        {'exact': 50.0, 'signatures': {'exact': 'lines:2'}, 'sentences': 2, 'seconds': 1.5}
        """
        report: dict[str, object] = {
            **self.scores,
            "signatures": dict(self.signatures),
            "sentences": self.num_sentences,
        }
        if seconds is not None:
            report["seconds"] = seconds
        return report

    def _repr_html_(self) -> str:
        """Return the scores as a table, for notebooks."""
        rows = [[name, f"{score:.2f}", self.signatures[name]] for name, score in self.scores.items()]
        return text_table(f"{self.num_sentences:,} sentences", ["metric", "score", "signature"], rows)


@dataclass(frozen=True)
class Texts:
    """Sources, hypotheses and references; `references` holds one list of lines for each reference file."""

    sources: Sequence[str]
    hypotheses: Sequence[str]
    references: Sequence[Sequence[str]]
    lowercase: bool


@dataclass(frozen=True)
class _Item:
    """One distinct source with its outputs and references."""

    outputs: set[str]
    references: set[str]


def evaluate_texts(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    *,
    lowercase: bool = False,
) -> EvaluationReport:
    """Score outputs against references.

    `bleu`, `chrf` and `ter` are sacreBLEU's, on plain text, with its signatures; `ter` is case-sensitive like
    the others, unlike sacreBLEU's default. `wer` is the word error rate: the edit distance of each line to
    its closest reference, in words, over the words of these references, summed over the lines, in percent.
    `exact` is the percentage of lines that equal one of their references.

    `item_error_rate` and `per` are over items, as for a pronunciation dictionary: a source on several lines
    is one item, with the references of all these lines. `item_error_rate` is the percentage of items whose
    output is not a reference (in the literature on pronunciation this is called WER); `per`, the token error
    rate, is the edit distance, in tokens, to the closest reference, over that reference's length, summed over
    the items. If a source has several different outputs, the worst counts. All but sacreBLEU's normalise
    white space.

    Args:
        sources: N lines.
        hypotheses: N lines, the outputs.
        references: one list of N lines for each reference file.
        metrics: distinct names.
        lowercase: whether to ignore case.

    Raises:
        ConfigError: a metric does not exist, or there is none.
        CorpusError: the numbers of lines differ, or there is nothing to score.
    """
    for name in metrics:
        _check_name(name)
    if not metrics:
        raise ConfigError(f"metrics: none given; choose from {', '.join(METRICS)}")
    _check_numbers(sources, hypotheses, references)
    texts = Texts(sources, hypotheses, references, lowercase)
    scores: dict[str, float] = {}
    signatures: dict[str, str] = {}
    for name in metrics:
        scores[name], signatures[name] = METRICS[name](texts)
    return EvaluationReport(scores, signatures, len(hypotheses))


def _check_name(name: str) -> None:
    if name not in METRICS:
        close = difflib.get_close_matches(name.lower(), METRICS, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(METRICS)}"
        raise ConfigError(f"metrics: unknown metric '{name}'; {hint}")


def _check_numbers(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> None:
    if not references:
        raise CorpusError("references: none given; at least one is needed")
    if not hypotheses:
        raise CorpusError("evaluation: no lines to score")
    labelled = [
        ("sources", sources),
        *((f"reference {i}", lines) for i, lines in enumerate(references, start=1)),
    ]
    for name, lines in labelled:
        if len(lines) != len(hypotheses):
            raise CorpusError(
                f"{name}: {len(lines):,} lines but there are {len(hypotheses):,} outputs; one for each"
            )


def _bleu(texts: Texts) -> tuple[float, str]:
    return _sacrebleu(BLEU(lowercase=texts.lowercase), texts)


def _chrf(texts: Texts) -> tuple[float, str]:
    return _sacrebleu(CHRF(lowercase=texts.lowercase), texts)


def _ter(texts: Texts) -> tuple[float, str]:
    return _sacrebleu(TER(case_sensitive=not texts.lowercase), texts)


def _sacrebleu(metric: BLEU | CHRF | TER, texts: Texts) -> tuple[float, str]:
    score = metric.corpus_score(list(texts.hypotheses), [list(lines) for lines in texts.references])
    return float(score.score), str(metric.get_signature())


def _exact(texts: Texts) -> tuple[float, str]:
    outputs = _normalised(texts.hypotheses, texts)
    references = [_normalised(lines, texts) for lines in texts.references]
    matches = sum(output in line for output, line in zip(outputs, zip(*references, strict=True), strict=True))
    signature = f"lines:{len(outputs)}|correct:any reference|unit:line|{_suffix(texts)}"
    return 100 * matches / len(outputs), signature


def _wer(texts: Texts) -> tuple[float, str]:
    outputs = _normalised(texts.hypotheses, texts)
    references = zip(*(_normalised(lines, texts) for lines in texts.references), strict=True)
    pairs = [_closest(output, set(line)) for output, line in zip(outputs, references, strict=True)]
    distances, lengths = map(sum, zip(*pairs, strict=True))
    signature = f"lines:{len(outputs)}|distance:closest reference|unit:word|{_suffix(texts)}"
    return 100 * distances / max(lengths, 1), signature


def _item_error_rate(texts: Texts) -> tuple[float, str]:
    items = _items(texts)
    errors = sum(not item.outputs <= item.references for item in items)
    signature = f"items:{len(items)}|correct:any listed reference|sources:grouped|unit:line|{_suffix(texts)}"
    return 100 * errors / len(items), signature


def _per(texts: Texts) -> tuple[float, str]:
    items = _items(texts)
    distances = 0
    lengths = 0
    for item in items:
        distance, length = max(_closest(output, item.references) for output in item.outputs)
        distances += distance
        lengths += length
    signature = (
        f"items:{len(items)}|distance:closest listed reference|sources:grouped|unit:token|{_suffix(texts)}"
    )
    return 100 * distances / max(lengths, 1), signature


def _items(texts: Texts) -> list[_Item]:
    """Group the lines by source, in the order of first occurrence."""
    items: dict[str, _Item] = {}
    outputs = _normalised(texts.hypotheses, texts)
    references = [_normalised(lines, texts) for lines in texts.references]
    sources = [" ".join(source.split()) for source in texts.sources]
    for source, output, *line in zip(sources, outputs, *references, strict=True):
        item = items.setdefault(source, _Item(set(), set()))
        item.outputs.add(output)
        item.references.update(line)
    return list(items.values())


def _normalised(lines: Sequence[str], texts: Texts) -> list[str]:
    return [" ".join((line.lower() if texts.lowercase else line).split()) for line in lines]


def _suffix(texts: Texts) -> str:
    return f"case:{'lc' if texts.lowercase else 'mixed'}|heedful:{version('heedful')}"


def _closest(output: str, references: set[str]) -> tuple[int, int]:
    """Return the distance to the closest reference and its length; of equally close ones, the shortest."""
    tokens = output.split()
    lengths = {reference: len(reference.split()) for reference in references}
    if output in references:
        return 0, lengths[output]
    return min((edit_distance(tokens, reference.split()), length) for reference, length in lengths.items())


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the Levenshtein distance of two sequences.

    >>> edit_distance("K AE T".split(), "K AA T S".split())
    2
    """
    previous = list(range(len(right) + 1))
    for i, token in enumerate(left, start=1):
        current = [i]
        for j, other in enumerate(right, start=1):
            current.append(min(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (token != other)))
        previous = current
    return previous[-1]


METRICS: dict[str, Callable[[Texts], tuple[float, str]]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "ter": _ter,
    "wer": _wer,
    "item_error_rate": _item_error_rate,
    "per": _per,
    "exact": _exact,
}
