"""A phrase book that writes itself: an English-German corpus from a grammar and a lexicon, free of licences.

    >>> from heedful.data.phrasebook import generate
    >>> book = generate(seed=1, num_train=1000, num_valid=10, num_test=10, num_unseen=10)

Every English sentence has exactly one German translation, so that a model can learn the mapping outright;
`you` is always the formal `Sie`. The German needs gender, case, agreement, verb-final clauses and split
verbs, so that attention has something to do.

Inside, from the bottom up: `words` (records); `german`, `german_verbs`, `numbers`, `english` (inflection);
`phrases` and `clauses` (syntax); `lexicon` (the words); `scene` (drawing them); `predicates` and the files of
constructions; `generation` (splits).
"""

from heedful.data.phrasebook.constructions import construction_names
from heedful.data.phrasebook.generation import PhraseBook, generate
from heedful.data.phrasebook.lexicon import lemmas

__all__ = ["PhraseBook", "construction_names", "generate", "lemmas"]
