"""Filters that find faulty pairs in parallel text: the corpus is surveyed once, then each pair is judged."""

from heedful.data.cleaning.languages import language_identifier
from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.registry import FILTERS, Filter, Judge
from heedful.data.cleaning.survey import SideCounts, Survey, survey

__all__ = ["FILTERS", "Filter", "Judge", "Pair", "SideCounts", "Survey", "language_identifier", "survey"]
