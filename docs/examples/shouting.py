"""A filter of parallel text: a function that finds a fault in a pair.

heedful train ... --plugin shouting.py --set data.filters=shouting:shouting
heedful inspect train.en train.de --plugin shouting.py --remove shouting:shouting --fix cleaned
"""

from heedful.data.cleaning import Pair


def shouting(pair: Pair) -> bool:
    """Source or target has only capital letters."""
    return any(sentence.text.isupper() for sentence in pair.sentences)
