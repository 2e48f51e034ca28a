"""The phrase book of the demonstration: an English-German corpus, licence-free, inside the package.

    >>> from heedful.data.phrasebook import phrase_book
    >>> phrase_book().train[0]
    ('Our uncle laughs about the story.', 'Unser Onkel lacht über die Geschichte.')

Every English sentence has exactly one German translation, so a model can learn the mapping perfectly; `you`
is always the formal `Sie`. The German has gender, case, agreement, verb-final clauses and separable verbs,
which make attention worth looking at. `tools/phrasebook` of the source repository generated it from a grammar
and a lexicon.
"""

import bz2
from dataclasses import astuple, dataclass
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
    return from_bytes(resources.files(__package__).joinpath(FILE_NAME).read_bytes())


def from_bytes(compressed: bytes) -> PhraseBook:
    """Read what `to_bytes` wrote."""
    splits = bz2.decompress(compressed).decode("utf-8").split("\n\n")
    train, valid, test, unseen = (tuple(map(_pair, split.splitlines())) for split in splits)
    return PhraseBook(train, valid, test, unseen)


def to_bytes(book: PhraseBook) -> bytes:
    """Return the book as compressed lines of English, tab, German; an empty line between two splits."""
    splits = ("\n".join("\t".join(pair) for pair in split) for split in astuple(book))
    return bz2.compress("\n\n".join(splits).encode("utf-8"))


def _pair(line: str) -> Pair:
    english, german = line.split("\t")
    return english, german
