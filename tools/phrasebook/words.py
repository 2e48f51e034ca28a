"""The grammar's parts: cases, genders, agreement, and one record for each kind of lexicon entry."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class Case(IntEnum):
    """A German case; the value is a row of the declension tables."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class Gender(IntEnum):
    """A German gender; the value is a column of the declension tables, whose fourth is the plural."""

    MASCULINE = 0
    FEMININE = 1
    NEUTER = 2


class Agreement(IntEnum):
    """What a finite verb agrees with. Formal `Sie` and English `you` both go with the plural forms."""

    I = 0  # noqa: E741 - the pronoun itself
    SINGULAR = 1
    WE = 2
    PLURAL = 3


class Tense(Enum):
    """A tense, mood or voice, named after the English form; each has exactly one German form."""

    PRESENT = "reads"
    PROGRESSIVE = "is reading"  # German: present with `gerade`
    PAST = "read"  # German: perfect, but preterite for sein and haben
    PERFECT = "has read"
    PAST_PROGRESSIVE = "was reading"  # German: preterite
    NARRATIVE = "read (when ...)"  # German: preterite
    FUTURE = "will read"
    CAN = "can read"
    MUST = "must read"
    SHOULD = "should read"
    WANT = "wants to read"
    ALLOWED = "is allowed to read"
    WOULD_LIKE = "would like to read"
    COULD = "could read"
    HAD_TO = "had to read"
    WANTED = "wanted to read"
    PASSIVE = "is read"
    PASSIVE_PAST = "was read"
    PASSIVE_FUTURE = "will be read"
    PASSIVE_MUST = "must be read"
    PASSIVE_CAN = "can be read"


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun of both languages. `kinds` are its semantic classes; mass nouns have no plurals."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: Gender
    genitive: str
    is_weak: bool
    kinds: frozenset[str]

    @property
    def is_mass(self) -> bool:
        """Whether the noun has no plural."""
        return not self.german_plural


@dataclass(frozen=True, slots=True)
class Preposition:
    """A preposition pair; `case` is the one that the German preposition governs here."""

    english: str
    german: str
    case: Case


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A noun that one can be at (`location`) and, mostly, go to (`direction`)."""

    noun: Noun
    location: Preposition
    direction: Preposition | None


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb of both languages.

    `prefix` is the separable prefix; `third`, `preterite` and `participle` leave it out. `kinds` are the
    semantic classes of nouns that the verb takes as its object; a verb with a `preposition` takes that
    object after it, any other in `case`. With `is_single` the object is no bare plural; `tenses` are
    those in which the English verb makes sense and looks like that tense.
    """

    english: str
    german: str
    prefix: str
    third: str
    preterite: str
    participle: str
    uses_sein: bool = False
    is_reflexive: bool = False
    is_simple_past: bool = False
    is_single: bool = False
    tenses: frozenset[Tense] = frozenset(Tense)
    kinds: tuple[str, ...] = ()
    case: Case = Case.ACCUSATIVE
    preposition: Preposition | None = None

    @property
    def lemma(self) -> str:
        """The infinitive as a dictionary gives it."""
        return self.prefix + self.german


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective of both languages; `stem` takes the endings; `kinds` are the nouns it may describe."""

    english: str
    german: str
    stem: str
    comparative: str
    superlative: str
    english_comparative: str
    english_superlative: str
    kinds: tuple[str, ...]

    @property
    def is_gradable(self) -> bool:
        """Whether the adjective can be compared."""
        return bool(self.comparative)


@dataclass(frozen=True, slots=True)
class Adverbial:
    """A phrase that does not inflect: a time, a manner, a place."""

    english: str
    german: str


def listed(text: str) -> tuple[str, ...]:
    """The words of a text, for lists that read better without quotation marks."""
    return tuple(text.split())
