"""Glossaries: terms of a source language, and their required translations."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Self

import numpy as np

from heedful.decoding.glossary_files import is_language, read_table
from heedful.decoding.steps import Bools
from heedful.decoding.terms import Form, Term
from heedful.errors import InputError
from heedful.settings.arguments import checked
from heedful.text.scripts import UNSPACED
from heedful.text.tokenizer import Tokenizer

_IS_UNSPACED = re.compile(f"[{UNSPACED}]")
_MARKS = re.compile(r"(\\[\\|*]|[|*])")
_LITERALS = {"\\\\": "\\", "\\|": "|", "\\*": "*"}
_MATCH_CASE = "case"
_LONGEST = 300  # characters of a term
_LONGEST_STEM_WORD = 64  # characters
_MOST_ENDINGS = 64  # tokens that begin with a stem
IMPROBABLE = 0.001  # a term that the model finds less probable than this often harms its sentence


@dataclass(frozen=True, slots=True)
class TermText:
    """A term as it is written, in one of its two languages.

    Attributes:
        text: one or more words.
        any_ending: whether the last word may have any ending, or none.
    """

    text: str
    any_ending: bool = False

    def __str__(self) -> str:
        return self.text + "*" * self.any_ending


@dataclass(frozen=True, slots=True)
class Entry:
    """A term of a glossary.

    Attributes:
        source: the term.
        targets: the alternative forms; a translation must contain one.
        match_case: whether the source must match in case. Otherwise case is ignored, except in a term of
            capitals only, such as "US".
        line: the number of its line in a file; 0: it comes from no file.
    """

    source: TermText
    targets: tuple[TermText, ...]
    match_case: bool = False
    line: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class PlacedTerm:
    """A term that applies to a line.

    Attributes:
        source: the term, as the glossary has it.
        target: the first form that is in the translation; None: there is none.
        spans: the characters of each form in the translation, from the first one to the one after the last.
        probability: the probability that the model gives the form after the text before it, the product over
            its tokens; of several forms, the highest. None: there is no form, or no model has written it.
        replaces: the words of the translation without terms that the form stands in place of (see
            `placement.py`); "": the search wrote the form.
    """

    source: str
    target: str | None
    spans: tuple[tuple[int, int], ...] = ()
    probability: float | None = None
    replaces: str = ""

    @property
    def status(self) -> str:
        """Whether the term is met: "met", "met, replacing", "met, improbable" or "missed"."""
        if self.target is None:
            return "missed"
        if self.replaces:
            return "met, replacing"
        return "met, improbable" if self.is_improbable else "met"

    @property
    def is_improbable(self) -> bool:
        """Whether the model finds the form improbable where it is: see `IMPROBABLE`."""
        return self.probability is not None and self.probability < IMPROBABLE


@dataclass(frozen=True, repr=False)
class Glossary:
    """Terms and their translations; a search writes the terms that apply to a sentence.

    >>> glossary = Glossary.of({"fire": "Feuer", "fire truck": ["Feuerwehrauto", "Löschfahrzeug"]})
    >>> [str(entry.source) for entry in glossary.applicable("Fire in a fire truck and no firefly.")]
    ['fire', 'fire truck']

    Attributes:
        entries: the terms, without repetitions.
    """

    entries: tuple[Entry, ...]

    @classmethod
    @checked
    def of(cls, terms: Mapping[str, str | Sequence[str]]) -> Self:
        """Return a glossary of source terms and their target forms; no sign has a special meaning.

        Raises:
            InputError: a term without a text.
        """
        entries = []
        for source, targets in terms.items():
            forms = [targets] if isinstance(targets, str) else targets
            entries.append(_entry([TermText(source)], [*map(TermText, forms)]))
        return cls(tuple(entries))

    @classmethod
    @checked
    def load(cls, path: str | Path) -> Self:
        """Read a table of source, target and perhaps `case`: with tabs, `.csv`, or `.xlsx` (its first sheet).

        A header row is left out: source and target, or the codes or English names of two languages, with a
        warning. The text is UTF-8, or UTF-16 with a byte order mark. As in DeepL's CSV, a third and a fourth
        column may have the languages. Target forms are separated by `|`, and `*` at the end of a term means
        any ending. A backslash before these signs takes their meaning away.

        Raises:
            CorpusError: a file that cannot be read.
            InputError: a bad line; the message names the file and the first one.
        """
        entries: dict[TermText, Entry] = {}
        for number, cells in read_table(Path(path)):
            try:
                entry = replace(_parse_row(cells), line=number)
                before = entries.setdefault(entry.source, entry).line
                if before != number:
                    raise InputError(
                        f"{str(entry.source)!r} is in line {before:,} already; give | between them"
                    )
            except InputError as error:
                raise InputError(f"{path}: line {number:,}: {error}") from None
        return cls(tuple(entries.values()))

    def check_writable(
        self, tokenizer: Tokenizer, path: str = "glossary", *, texts: Sequence[str] | None = None
    ) -> None:
        """Check that a vocabulary has at least one target form of each term, or of those in some texts.

        Raises:
            InputError: naming the file and the line, or the term, and what the vocabulary lacks.
        """
        for entry, lacking in _unwritable(self, tokenizer):
            if texts is not None and not any(entry in self.applicable(text) for text in texts):
                continue
            where = f"line {entry.line:,}" if entry.line else repr(str(entry.source))
            raise InputError(
                f"{path}: {where}: {str(entry.targets[0])!r} has {lacking!r}, which the vocabulary lacks; "
                "give another form, or take the term out"
            )

    def __repr__(self) -> str:
        return f"Glossary({len(self.entries):,} terms, sha256 {self._digest})"

    def __hash__(self) -> int:
        return hash(self._digest)

    def prepared(self) -> Self:
        """Return the glossary, indexed: otherwise the first lookup in a large one takes seconds."""
        _ = self._digest, self._index
        return self

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(repr(self.entries).encode("utf-8", "surrogatepass")).hexdigest()

    def applicable(self, text: str) -> list[Entry]:
        """Return the entries with terms in a text, in the order of the text, without repetitions.

        Terms are whole words. If several begin at a word, the longest one applies, and its words belong to no
        other term.
        """
        return list(dict.fromkeys(entry for entry, _ in self.places(text)))

    def places(self, text: str) -> list[tuple[Entry, range]]:
        """Return each entry with a term in a text, and the numbers of its words (see `word_spans`)."""
        words, at = words_of(text), 0
        folded = [word.casefold() for word in words]
        found: list[tuple[Entry, range]] = []
        while at < len(words):
            longest = self._index.longest(words, folded, at)
            behind = at + (1 if longest is None else len(longest.words))
            if longest is not None:
                found.append((longest.entry, range(at, behind)))
            at = behind
        return found

    @cached_property
    def _index(self) -> "_TermIndex":
        return _TermIndex(self.entries)


@lru_cache(maxsize=64)
def _unwritable(glossary: Glossary, tokenizer: Tokenizer) -> tuple[tuple[Entry, str], ...]:
    """Return the terms that a vocabulary has no form of, and what it lacks of the first form."""
    entries = glossary.entries
    first_forms = tokenizer.encode_batch([entry.targets[0].text for entry in entries])
    doubtful = [entry for entry, ids in zip(entries, first_forms, strict=True) if tokenizer.unk_id in ids]
    lacking = {entry: [tokenizer.unknown_text(form.text) for form in entry.targets] for entry in doubtful}
    return tuple((entry, texts[0]) for entry, texts in lacking.items() if all(texts))


class _SourceTerm:
    """The source of an entry, prepared for the search in texts."""

    __slots__ = ("entry", "is_exact", "rank", "words")  # there may be 100,000

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        is_acronym = entry.source.text.isupper() and sum(map(str.isalpha, entry.source.text)) > 1
        self.is_exact = entry.match_case or is_acronym
        own = words_of(entry.source.text)
        self.words = tuple(own if self.is_exact else map(str.casefold, own))
        self.rank = len(entry.source.text), self.is_exact


class _TermIndex:
    """The source terms by all of their words: a lookup costs the same however many terms there are.

    There are four kinds: the case of a term counts or not, and its last word may have any ending or not.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._terms: dict[tuple[bool, bool], dict[tuple[str, ...], _SourceTerm]] = {}
        lengths: dict[str, set[int]] = {}  # of terms of several words, in words, by their first word
        for entry in entries:
            term = _SourceTerm(entry)
            of_kind = self._terms.setdefault((term.is_exact, entry.source.any_ending), {})
            if term.rank > of_kind.setdefault(term.words, term).rank:
                of_kind[term.words] = term
            if len(term.words) > 1:
                lengths.setdefault(term.words[0].casefold(), set()).add(len(term.words))
        self._lengths = {word: sorted(of_word, reverse=True) for word, of_word in lengths.items()}

    def longest(self, words: Sequence[str], folded: Sequence[str], at: int) -> _SourceTerm | None:
        """Return the term with most words that begins at a word of a text; None: no term does."""
        for length in (*self._lengths.get(folded[at], ()), 1):
            if at + length > len(words):
                continue
            found: list[_SourceTerm] = []
            for (is_exact, any_ending), terms in self._terms.items():
                written = tuple((words if is_exact else folded)[at : at + length])
                forms = _stems(written) if any_ending else [written]
                found += [terms[form] for form in forms if form in terms]
            if found:
                return max(found, key=lambda term: (term.rank, not term.entry.source.any_ending))
        return None


def _stems(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the words with each beginning of the last."""
    *before, last = words
    return [(*before, last[:end]) for end in range(1, min(len(last), _LONGEST_STEM_WORD) + 1)]


def placed_terms(entries: Sequence[Entry], translation: str) -> tuple[PlacedTerm, ...]:
    """Return, for entries that apply to a text, the forms in its translation and their places.

    Forms are whole words and match in case. At the beginning, the first letter may be a capital.
    """
    if not entries:
        return ()
    words, spans = words_of(translation), word_spans(translation)
    places: dict[str, list[int]] = {}
    for at, word in enumerate(words):
        places.setdefault(word, []).append(at)
    return tuple(_placed(each, words, spans, places) for each in entries)


def _placed(
    entry: Entry, words: Sequence[str], spans: Sequence[tuple[int, int]], places: Mapping[str, Sequence[int]]
) -> PlacedTerm:
    target, matches = None, set[tuple[int, int]]()
    for form in entry.targets:
        first, *rest = of_form = words_of(form.text)
        is_stem = form.any_ending and not rest
        possible = range(len(words)) if is_stem else places.get(first, ())
        found = [at for at in possible if _stands_at(words, at, of_form, form)]
        if _stands_at(words, 0, [with_capital(first), *rest], form):
            found.append(0)
        if found:
            target = target or str(form)
            matches.update((spans[at][0], spans[at + len(rest)][1]) for at in found)
    return PlacedTerm(str(entry.source), target, tuple(sorted(matches)))


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return where each of the words of a text begins and ends: see `words_of`."""
    return [match.span() for match in _word().finditer(text)]


def words_of(text: str) -> list[str]:
    """Return the words and other signs of a text."""
    words: list[str] = _word().findall(text.replace("’", "'"))
    is_composed = unicodedata.is_normalized("NFC", text)
    return words if is_composed else [unicodedata.normalize("NFC", each) for each in words]


@cache
def _word() -> re.Pattern[str]:
    """Return the pattern of words with their marks; a character of a script without spaces is a word."""
    # Combining marks, such as the vowel signs of Hindi; voicing marks of kana; joiners inside words.
    marks = "".join(char for char in map(chr, range(0x300, 0x1F000)) if unicodedata.category(char)[0] == "M")
    letter = rf"[^\W{UNSPACED}]"
    return re.compile(
        rf"[{UNSPACED}][\u3099\u309a]?|{letter}+(?:[{marks}\u200c\u200d]+{letter}*)*|\S[{marks}]*"
    )


def _stands_at(words: Sequence[str], at: int, own: Sequence[str], term: TermText) -> bool:
    there = words[at : at + len(own)]
    if len(there) < len(own) or there[:-1] != own[:-1]:
        return False
    return there[-1].startswith(own[-1]) if term.any_ending else there[-1] == own[-1]


def _parse_row(cells: Sequence[str]) -> Entry:
    source, *others = cells
    if not others:
        raise InputError(
            "has no second column; write the source term, a tab (in .csv a comma), and its target form"
        )
    target, *options = [others[0], *map(str.strip, others[1:])]
    if len(options) == 2 and all(map(is_language, options)):
        options = []
    while options and not options[-1]:
        options.pop()
    if options not in ([], [_MATCH_CASE]):
        raise InputError(
            f"the third column may only be {_MATCH_CASE!r}, and there is no fourth, unless they are languages"
        )
    return _entry(_parse_forms(source), _parse_forms(target), match_case=options == [_MATCH_CASE])


def _parse_forms(cell: str) -> list[TermText]:
    """Return the forms of a cell, in which | and * have a meaning."""
    forms, text, any_ending = list[TermText](), "", False
    for part in [*_MARKS.split(cell), "|"]:
        if part == "|":
            forms.append(TermText(text.strip(), any_ending))
            text, any_ending = "", False
        elif any_ending and part.strip():
            raise InputError("a * stands for the ending of a form, and so at its end; write \\* for the sign")
        elif part == "*":
            any_ending = True
        else:
            text += _LITERALS.get(part, part)
    return forms


def _entry(sources: Sequence[TermText], targets: Sequence[TermText], *, match_case: bool = False) -> Entry:
    if len(sources) > 1:
        raise InputError("has several source terms; give each its own line")
    [source] = sources
    for name, terms in (("source term", sources), ("target form", targets)):
        if not terms or not all(words_of(each.text) for each in terms):
            raise InputError(f"has no {name}")
        if any(len(each.text) > _LONGEST for each in terms):
            raise InputError(f"has a {name} of more than {_LONGEST} characters")
    return Entry(source, tuple(dict.fromkeys(targets)), match_case)


def with_capital(word: str) -> str:
    """Return a word with a capital."""
    return word[:1].upper() + word[1:]


@lru_cache(maxsize=1024)  # an entry may have many long forms
def term_of(entry: Entry, tokenizer: Tokenizer) -> Term | None:
    """Return a term as ids; None if the tokenizer has no tokens for it.

    Its forms are tokenised for the middle of a sentence and for its beginning, where the first letter may be
    a capital.
    """
    continues = continuing_tokens(tokenizer)
    forms: dict[Form, None] = {}
    for target in entry.targets:
        last = target.text[-1]
        may_continue = target.any_ending or not last.isalnum() or _IS_UNSPACED.match(last) is not None
        alone = tuple(tokenizer.encode(target.text))
        within = {alone, _ids_after_a_token(target.text, tokenizer)}
        capital = tuple(tokenizer.encode(with_capital(target.text)))
        spellings = [(ids, False) for ids in sorted(within)]
        if capital != alone:
            spellings.append((capital, True))
        for ids, is_first in spellings:
            if ids and tokenizer.unk_id not in ids:
                endings = _tokens_from(tokenizer, ids[-1]) if target.any_ending else [ids[-1]]
                forms |= dict.fromkeys(
                    Form((*ids[:-1], ending), may_continue, is_first) for ending in endings
                )
    if all(form.is_first for form in forms):
        return None
    return Term(tuple(forms), continues)


def _ids_after_a_token(text: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids of a text after a comma; none if both share a token."""
    is_unspaced = _IS_UNSPACED.match(text) is not None
    before = "、" if is_unspaced else ","
    first, ids = tokenizer.encode(before), tokenizer.encode(before + " " * (not is_unspaced) + text)
    return tuple(ids[len(first) :]) if ids[: len(first)] == first else ()


@lru_cache(maxsize=8)
def continuing_tokens(tokenizer: Tokenizer) -> Bools:
    """Return for each token, (V,), whether it continues the word before it."""
    before = tokenizer.encode("a")
    text = tokenizer.decode(before)
    after = (tokenizer.decode([*before, i])[len(text) :] for i in range(tokenizer.vocab_size))
    return np.fromiter(map(_goes_on, after), dtype=bool, count=tokenizer.vocab_size)


def _goes_on(text: str) -> bool:
    first = text[:1]
    is_part = first.isalnum() or first in ("_", "\ufffd") or unicodedata.category(first or " ")[0] == "M"
    return bool(first) and is_part and _IS_UNSPACED.match(first) is None


@lru_cache(maxsize=8)
def _token_texts(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.tokens(range(tokenizer.vocab_size))


def _tokens_from(tokenizer: Tokenizer, token: int) -> list[int]:
    """Return a token and all tokens that begin with its text; for example "▁Hunde" for "▁Hund"."""
    texts = _token_texts(tokenizer)
    longer = (i for i, text in enumerate(texts) if i != token and text.startswith(texts[token]))
    return [token, *longer][:_MOST_ENDINGS]
