"""The phrase book of the demonstration: an English-German corpus, licence-free, inside the package.

    >>> from heedful.data.phrasebook import phrase_book
    >>> phrase_book().train[0]
    ('Our uncle laughs about the story.', 'Unser Onkel lacht über die Geschichte.')

Every English sentence has exactly one German translation, so a model can learn the mapping perfectly; `you`
is always the formal `Sie`. The German has gender, case, agreement, verb-final clauses and separable verbs,
which make attention worth looking at. It was generated from a grammar and a lexicon, and is its own source
(docs/decisions/0012-a-frozen-phrase-book.md).
"""

import bz2
from dataclasses import dataclass
from importlib import resources

Pair = tuple[str, str]

FILE_NAME = "phrasebook.txt.bz2"


@dataclass(frozen=True)
class PhraseBook:
    """A parallel corpus: pairs of an English sentence and its one German translation.

    `valid` and `test` have new sentences of combinations that may occur in `train`; each sentence of `unseen`
    combines an adjective or a verb with a noun as none of the others does.
    """

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]
    unseen: tuple[Pair, ...]


def phrase_book() -> PhraseBook:
    """Return the book: 40,000 pairs to train on, 500 to validate with, 1,000 to test and 500 unseen."""
    compressed = resources.files(__package__).joinpath(FILE_NAME).read_bytes()
    splits = bz2.decompress(compressed).decode("utf-8").split("\n\n")  # of lines: English, tab, German
    train, valid, test, unseen = (tuple(map(_pair, split.splitlines())) for split in splits)
    return PhraseBook(train, valid, test, unseen)


def _pair(line: str) -> Pair:
    english, german = line.split("\t")
    return english, german
