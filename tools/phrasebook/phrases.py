"""What can be a subject or an object: noun phrases, names and pronouns, each in both languages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from phrasebook.english import indefinite_article
from phrasebook.german import PLURAL, contract, decline, relative_pronoun
from phrasebook.numbers import english_number, german_number
from phrasebook.words import Agreement, Case, Gender, Noun, Preposition


@dataclass(frozen=True, slots=True)
class Determiner:
    """A determiner: its English forms and its German stem (see `german.article`)."""

    english: str
    english_plural: str
    stem: str
    is_definite: bool

    @property
    def plural_stem(self) -> str:
        """The stem before a plural: `ein` has none."""
        return "" if self.stem == "ein" else self.stem


THE = Determiner("the", "the", "d", is_definite=True)
THIS = Determiner("this", "these", "dies", is_definite=True)
EVERY = Determiner("every", "all", "jed", is_definite=True)
WHICH = Determiner("which", "which", "welch", is_definite=True)
A = Determiner("a", "", "ein", is_definite=False)
NOT_ANY = Determiner("a", "any", "kein", is_definite=False)
NOT_ANY_MASS = Determiner("any", "any", "kein", is_definite=False)
BARE = Determiner("", "", "", is_definite=False)
MY = Determiner("my", "my", "mein", is_definite=True)
YOUR = Determiner("your", "your", "Ihr", is_definite=True)
HIS = Determiner("his", "his", "sein", is_definite=True)
HER = Determiner("her", "her", "ihr", is_definite=True)
OUR = Determiner("our", "our", "unser", is_definite=True)
THEIR = Determiner("their", "their", "ihr", is_definite=True)
POSSESSIVES = (MY, YOUR, HIS, HER, OUR, THEIR)


@cache
def numeral(number: int) -> Determiner:
    """A number from two up as a determiner."""
    return Determiner("", f"{english_number(number)}", f"#{german_number(number)}", is_definite=False)


@dataclass(frozen=True, slots=True)
class Modifier:
    """An attributive adjective in one degree: English words and the German stem that takes the ending."""

    english: str
    stem: str


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """Determiner, adjectives, noun, and perhaps a genitive or another phrase after it."""

    noun: Noun
    determiner: Determiner
    modifiers: tuple[Modifier, ...] = ()
    plural: bool = False
    english_after: str = ""
    german_after: str = ""

    is_pronoun = False

    @property
    def agreement(self) -> Agreement:
        """Third person, singular or plural."""
        return Agreement.PLURAL if self.plural else Agreement.SINGULAR

    @property
    def is_definite(self) -> bool:
        """Whether the phrase stands with the known information, before a place and before `nicht`."""
        return self.determiner.is_definite

    @property
    def column(self) -> int:
        """The column of the declension tables: the gender, or the plural."""
        return PLURAL if self.plural else self.noun.gender

    def english(self, *, is_object: bool = False) -> str:
        """The English phrase; nouns look the same as subject and object."""
        del is_object
        noun = self.noun.english_plural if self.plural else self.noun.english
        words = " ".join([*(modifier.english for modifier in self.modifiers), noun])
        determiner = self.determiner.english_plural if self.plural else self.determiner.english
        if determiner == "a":
            determiner = indefinite_article(words)
        return f"{determiner} {words}{self.english_after}" if determiner else words + self.english_after

    def german(self, case: Case) -> str:
        """The German phrase, declined."""
        stem = self.determiner.plural_stem if self.plural else self.determiner.stem
        stems = tuple([modifier.stem for modifier in self.modifiers])
        if stem.startswith("#"):
            number = stem[1:]
            return f"{number} {decline('', stems, self.noun, case, plural=True)}{self.german_after}"
        return decline(stem, stems, self.noun, case, plural=self.plural) + self.german_after


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A personal pronoun."""

    subject: str
    object: str
    nominative: str
    accusative: str
    dative: str
    agreement: Agreement

    is_pronoun = True
    is_definite = True

    def english(self, *, is_object: bool = False) -> str:
        """The English form."""
        return self.object if is_object else self.subject

    def german(self, case: Case) -> str:
        """The German form."""
        return (self.nominative, self.accusative, self.dative)[case]


I = Pronoun("I", "me", "ich", "mich", "mir", Agreement.I)  # noqa: E741 - the pronoun itself
HE = Pronoun("he", "him", "er", "ihn", "ihm", Agreement.SINGULAR)
SHE = Pronoun("she", "her", "sie", "sie", "ihr", Agreement.SINGULAR)
WE = Pronoun("we", "us", "wir", "uns", "uns", Agreement.WE)
THEY = Pronoun("they", "them", "sie", "sie", "ihnen", Agreement.PLURAL)
YOU = Pronoun("you", "you", "Sie", "Sie", "Ihnen", Agreement.PLURAL)
IT = Pronoun("it", "it", "es", "es", "ihm", Agreement.SINGULAR)
PERSONAL = (I, HE, SHE, WE, THEY, YOU)
OWN = {I: MY, HE: HIS, SHE: HER, WE: OUR, THEY: THEIR, YOU: YOUR}


@dataclass(frozen=True, slots=True)
class Name:
    """A person's name, the same in both languages; `pronoun` is he or she."""

    name: str
    pronoun: Pronoun

    is_pronoun = False
    is_definite = True
    agreement = Agreement.SINGULAR

    def english(self, *, is_object: bool = False) -> str:
        """The name."""
        del is_object
        return self.name

    def german(self, case: Case) -> str:
        """The name."""
        del case
        return self.name


@dataclass(frozen=True, slots=True)
class Relative:
    """A relative or interrogative pronoun in the subject's place, with its German nominative."""

    word: str
    nominative: str
    agreement: Agreement

    is_pronoun = True
    is_definite = True

    def english(self, *, is_object: bool = False) -> str:
        """The English word: who, that, what."""
        del is_object
        return self.word

    def german(self, case: Case) -> str:
        """The German nominative; a relative in another case stands before the clause instead."""
        del case
        return self.nominative


Nominal = NounPhrase | Pronoun | Name | Relative


def relative_subject(antecedent: NounPhrase) -> Relative:
    """The relative pronoun that takes up `antecedent` as a subject: who for people, that for the rest."""
    return Relative(
        relative_english(antecedent),
        relative_pronoun(Case.NOMINATIVE, antecedent.column),
        antecedent.agreement,
    )


def relative_english(antecedent: NounPhrase) -> str:
    """`who` for people, `that` for the rest."""
    return "who" if "person" in antecedent.noun.kinds else "that"


def pronoun_for(nominal: Nominal) -> Pronoun | None:
    """The pronoun that takes up `nominal`, or None where the two languages would differ (the child: es)."""
    if isinstance(nominal, Pronoun):
        return None if nominal is IT else nominal
    if isinstance(nominal, Name):
        return nominal.pronoun
    if isinstance(nominal, Relative):
        return None
    if nominal.plural:
        return THEY
    if nominal.noun.gender is Gender.NEUTER or "person" not in nominal.noun.kinds:
        return None
    return SHE if nominal.noun.gender is Gender.FEMININE else HE


def german_prepositional(preposition: Preposition, nominal: Nominal) -> str:
    """The German preposition and its phrase in the case that it governs: `im Haus`, `zum Arzt`."""
    return contract(preposition.german, nominal.german(preposition.case))
