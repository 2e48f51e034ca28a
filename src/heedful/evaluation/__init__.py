"""Scores that can be published, and reports of them."""

from heedful.evaluation.metrics import METRICS, evaluate_texts
from heedful.evaluation.report import EvaluationReport

__all__ = ["METRICS", "EvaluationReport", "evaluate_texts"]
