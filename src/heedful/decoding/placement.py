"""Terms put in place of words of a translation that was made without them.

A search that must write a term finds the most probable sentence with the term. If the model finds the term
improbable everywhere, it often stands there in place of another word, which is lost. Then it is better to
translate without the term, and to write it in place of the words that are aligned with its source, as was
done before searches had constraints (docs/glossaries.md has the numbers). The words around the term stay as
they are: an article may not agree with it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from heedful.decoding.glossary import (
    Entry,
    Glossary,
    PlacedTerm,
    placed_terms,
    with_capital,
    word_spans,
)
from heedful.decoding.translation import Translation


class TextWithTerms(NamedTuple):
    """A translation with terms in place of some of its words, and all terms that apply to it."""

    text: str
    terms: tuple[PlacedTerm, ...]


class _Edit(NamedTuple):
    """Characters from `start` to before `end`, and what stands in place of them."""

    start: int
    end: int
    entry: Entry


def needs_placement(translation: Translation) -> bool:
    """Return whether the model finds a term of a translation improbable where the search wrote it."""
    return any(term.is_improbable for term in translation.terms)


def put_in_place(free: Translation, glossary: Glossary) -> TextWithTerms | None:
    """Return a translation with the terms that it lacks; None if a term has no place.

    Its place are the words aligned with its source: side by side, and aligned with no other word.

    Args:
        free: the translation without terms; its words (`word_spans`) are aligned with its source.
        glossary: the terms.
    """
    entries = glossary.applicable(free.source)
    is_there = {
        entry: term.target is not None
        for entry, term in zip(entries, placed_terms(entries, free.text), strict=True)
    }
    spans = word_spans(free.text)
    edits: list[_Edit] = []
    for entry, source in glossary.places(free.source):
        if is_there[entry]:
            continue
        place = _place(free, source, spans)
        if place is None:
            return None
        edits.append(_Edit(spans[place[0]][0], spans[place[-1]][1], entry))
    text = _edited(free.text, edits)
    before = {edit.entry: free.text[edit.start : edit.end] for edit in edits}
    terms = placed_terms(entries, text)
    return TextWithTerms(
        text,
        tuple(
            replace(term, replaces=before.get(entry, "")) for entry, term in zip(entries, terms, strict=True)
        ),
    )


def _place(free: Translation, source: range, spans: Sequence[tuple[int, int]]) -> range | None:
    """Return the words of a translation that are aligned with words of its source, and with no others."""
    links = () if free.alignment is None else free.alignment.links
    words = {tgt for src, tgt in links if src in source and free.text[spans[tgt][0]].isalnum()}
    shared = {tgt for src, tgt in links if src not in source}
    if not words or words & shared:
        return None
    place = range(min(words), max(words) + 1)
    return place if len(place) == len(words) else None


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    """Return a text with the first form of each term in its place, with a capital where the text begins."""
    for start, end, entry in sorted(edits, key=lambda edit: -edit.start):
        form = entry.targets[0].text
        is_first = start == 0 and text[:1].isupper()
        text = text[:start] + (with_capital(form) if is_first else form) + text[end:]
    return text
