"""Filters that find faulty pairs in parallel text: survey the corpus once, then check each pair."""

from heedful.data.cleaning.pair import Pair, language_identifier
from heedful.data.cleaning.registry import FILTERS, Filter, PairChecker, of_pair
from heedful.data.cleaning.survey import Survey, TextCounts, draw, survey

__all__ = [
    "FILTERS",
    "Filter",
    "Pair",
    "PairChecker",
    "Survey",
    "TextCounts",
    "draw",
    "language_identifier",
    "of_pair",
    "survey",
]
