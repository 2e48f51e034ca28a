"""The report of an evaluation: scores and their signatures."""

from dataclasses import dataclass

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
