"""A filter of parallel text: `PairChecker(survey, filters=(*FILTERS, SHOUTING))`."""

from heedful.data.cleaning import registry
from heedful.data.cleaning.pair import Pair


def shouting(pair: Pair) -> bool:
    """Source or target has only capital letters."""
    return any(sentence.text.isupper() for sentence in pair.sentences)


SHOUTING = registry.of_pair("shouting", shouting, removes=False)
