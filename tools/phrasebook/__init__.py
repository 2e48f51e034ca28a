"""A phrase book that writes itself: an English-German corpus from a grammar and a lexicon, free of licences.

    >>> from phrasebook import generate
    >>> book = generate(seed=1, num_train=1000, num_valid=10, num_test=10, num_unseen=10)

The package holds one book that was written so, as a compressed file; `tools/freeze_phrasebook.py` writes that
file again. What is promised of the text is said where it is read: `heedful.data.phrasebook`.

Inside, from the bottom up: `words` (records); `german`, `german_verbs`, `numbers`, `english` (inflection);
`phrases` and `clauses` (syntax); `lexicon` (the words); `scene` (drawing them); `predicates` and the files of
constructions; `generation` (splits).
"""

from phrasebook.constructions import construction_names
from phrasebook.generation import generate
from phrasebook.lexicon import lemmas

__all__ = ["construction_names", "generate", "lemmas"]
