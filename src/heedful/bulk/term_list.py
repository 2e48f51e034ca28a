"""Terms that recur in sentence pairs and are translated alike, for a person to edit and a glossary to take.

A term is a phrase whose words are linked with a phrase of the translation, and with nothing outside of it
(Och and Ney, 2004, "The Alignment Template Approach to Statistical Machine Translation"). It is listed if it
occurs often enough, and nearly all targets have one of its few usual translations.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from heedful.bulk.alignments import align_pairs
from heedful.decoding.alignment import Alignment
from heedful.decoding.glossary import Glossary, placed_terms, word_spans
from heedful.decoding.translator import Translator

_LONGEST = 3  # words
_LEAST = 4  # occurrences
_AGREEING = 0.8  # the share of occurrences that are linked with one of the forms
_KEPT = 0.95  # the share of sentences with a form in the target: with less, forcing it does harm
_FORMS, _FORM = 3, 0.15  # the most forms, and the share that each needs
_COMMON = 0.05  # the share of sentences with a word: one in more of them begins and ends no term
_SHORTEST = 4  # characters of a word that begins or ends a term, unless it has capitals
_MOST_PAIRS = 4000
_SIGNS = re.compile(r"[\\|*]")


TextPair = tuple[str, str]  # source and target


@dataclass(frozen=True)
class Term:
    """A term, its usual translations, how often it occurs, and how often with one of these."""

    source: str
    forms: Sequence[str]
    count: int
    agreeing: int

    def line(self) -> str:
        """Return the line of a glossary file, in which some signs have a meaning."""
        source, *forms = (_SIGNS.sub(r"\\\g<0>", text) for text in (self.source, *self.forms))
        return f"{source}\t{'|'.join(forms)}\n"


def recurring_terms(
    translator: Translator, pairs: Sequence[TextPair], on_progress: Callable[[float], object]
) -> list[Term]:
    """Return the terms of pairs, the most frequent first.

    Args:
        translator: a model that aligns their words.
        pairs: sources and targets; of more than 4,000, some that are spread over the text are aligned.
        on_progress: called with the share that is done, 0 to 1.
    """
    some = pairs[:: -(-len(pairs) // _MOST_PAIRS)]
    sentences = Counter(chain.from_iterable({*_words(source)} for source, _ in some))
    common = {word for word, count in sentences.items() if count > _COMMON * len(some)}
    written: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by the phrase in lower case
    forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    alignments = align_pairs(translator, some, split=word_spans)
    for number, ((source, target), alignment) in enumerate(zip(some, alignments, strict=True)):
        on_progress(number / len(some))
        words = _words(source)
        inner = [_is_telling(word) and word not in common for word in words]
        for start, end in _phrases(inner):
            phrase = " ".join(words[start:end])
            written[phrase.casefold()][phrase] += 1
            forms[phrase.casefold()][_form(range(start, end), target, alignment)] += 1
    usual = {written[phrase].most_common(1)[0][0]: _usual(counts) for phrase, counts in forms.items()}
    return _kept(Glossary.of({phrase: texts for phrase, texts in usual.items() if texts}), pairs)


def _kept(glossary: Glossary, pairs: Sequence[TextPair]) -> list[Term]:
    """Return the terms that a glossary may force on these pairs, because the targets have them anyway."""
    counts: Counter[str] = Counter()
    agreeing: Counter[str] = Counter()
    for source, target in pairs:
        for placed in placed_terms(glossary.applicable(source), target):
            counts[placed.source] += 1
            agreeing[placed.source] += placed.target is not None
    terms = [
        Term(source, [str(form) for form in entry.targets], counts[source], agreeing[source])
        for source, entry in ((str(entry.source), entry) for entry in glossary.entries)
        if counts[source] >= _LEAST and agreeing[source] >= _KEPT * counts[source]
    ]
    return sorted(terms, key=lambda term: (-term.count, term.source))


def terms_met(terms: Sequence[Term], sources: Sequence[str], *outputs: Sequence[str]) -> list[int]:
    """Return how often each system has a term, where it applies to a source and the first system has it.

    Args:
        terms: the terms.
        sources: N lines.
        outputs: N lines of each system; the first are references.
    """
    glossary = Glossary.of({term.source: term.forms for term in terms})
    met = [0] * len(outputs)
    for source, *texts in zip(sources, *outputs, strict=True):
        expected = [
            entry
            for entry in glossary.applicable(source)
            if placed_terms([entry], texts[0])[0].target is not None
        ]
        for system, text in enumerate(texts):
            met[system] += sum(placed.target is not None for placed in placed_terms(expected, text))
    return met


def _words(text: str) -> list[str]:
    return [text[start:end] for start, end in word_spans(text)]


def _is_telling(word: str) -> bool:
    """Return whether a word may begin or end a term."""
    return word[0].isalpha() and (len(word) >= _SHORTEST or word.isupper())


def _phrases(is_end: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the first word of each phrase, and the one after its last; such words begin and end it."""
    ends = [number for number, may_end in enumerate(is_end) if may_end]
    for start in ends:
        yield from ((start, last + 1) for last in ends if 0 <= last - start < _LONGEST)


def _form(phrase: range, target: str, alignment: Alignment) -> str:
    """Return the words of a target that are linked with a phrase; "": none, or with other words, too."""
    linked = [tgt for src, tgt in alignment.links if src in phrase]
    if not linked:
        return ""
    first, last = min(linked), max(linked)
    others = [src for src, tgt in alignment.links if first <= tgt <= last and src not in phrase]
    spans = word_spans(target)
    is_long = last - first > len(phrase) + 1
    return "" if others or is_long else target[spans[first][0] : spans[last][1]]


def _usual(forms: Counter[str]) -> list[str]:
    """Return the usual translations of a phrase; none if it is too rare, or often translated otherwise."""
    count = forms.total()
    usual = [form for form, number in forms.most_common(_FORMS) if form and number >= _FORM * count]
    agreeing = sum(forms[form] for form in usual)
    return usual if count >= _LEAST and agreeing >= _AGREEING * count else []
