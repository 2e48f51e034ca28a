"""Clauses: one proposition, put into the word orders of both languages.

German clauses are built from fields, in this order::

    [front] finite  subject pronouns time known-objects NOT manner place new-objects complement  closing

A statement has its subject in front, a question or a fronted adverbial puts it after the finite verb, and a
subordinate clause moves the finite verb to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from phrasebook.english import VerbForms, verb_forms
from phrasebook.german_verbs import bracket, zu_infinitive
from phrasebook.phrases import Nominal
from phrasebook.words import Adverbial, Agreement, Case, Tense, Verb

_LIKE_NOMINATIVES = ("sie", "Sie")  # before the subject they would be taken for it
_REFLEXIVES = ("mich", "sich", "uns", "sich")


@dataclass(frozen=True, slots=True)
class Predicate:
    """A verb with everything that belongs to it but its subject.

    `english` holds the objects and complements; `pronouns`, `known`, `new` and `complement` are the
    same material sorted into the German fields.
    """

    verb: Verb
    english: str = ""
    pronouns: str = ""
    known: str = ""
    new: str = ""
    complement: str = ""
    manner: Adverbial | None = None
    place: Adverbial | None = None
    time: Adverbial | None = None
    frequency: Adverbial | None = None  # before the English verb: often, always, already
    has_kein: bool = False  # the object carries the negation


@dataclass(frozen=True, slots=True)
class Clause:
    """A proposition: who, what, when in time, and whether not."""

    subject: Nominal
    predicate: Predicate
    tense: Tense = Tense.PRESENT
    negated: bool = False

    def __post_init__(self) -> None:
        verb = self.predicate.verb
        assert self.tense in verb.tenses, f"{verb.english} is not used in the tense of '{self.tense.value}'"

    @property
    def has_nicht(self) -> bool:
        """Whether the German clause is negated by `nicht`, not by its object's `kein`."""
        return self.negated and not self.predicate.has_kein

    def at(self, time: Adverbial) -> Clause:
        """The same clause with a time."""
        return replace(self, predicate=replace(self.predicate, time=time))


def join(*parts: str) -> str:
    """The parts that are there, with spaces between them."""
    return " ".join([part for part in parts if part])


def english_tail(predicate: Predicate) -> str:
    """Objects, manner, place and time, in the English order."""
    return join(
        predicate.english,
        predicate.manner.english if predicate.manner else "",
        predicate.place.english if predicate.place else "",
        predicate.time.english if predicate.time else "",
    )


def _forms(clause: Clause, agreement: Agreement) -> VerbForms:
    return verb_forms(clause.predicate.verb.english, clause.tense, agreement)


def english_statement(clause: Clause) -> str:
    """Subject first: `the man does not read the book`."""
    forms = _forms(clause, clause.subject.agreement)
    frequency = clause.predicate.frequency
    adverb = frequency.english if frequency else ""
    subject, tail = clause.subject.english(), english_tail(clause.predicate)
    if clause.negated:
        negation = "cannot" if forms.auxiliary == "can" else f"{forms.auxiliary} not"
        return join(subject, negation, adverb, forms.rest, tail)
    if forms.is_split:
        return join(subject, forms.auxiliary, adverb, forms.rest, tail)
    return join(subject, adverb, forms.plain, tail)


def english_inverted(clause: Clause) -> str:
    """Auxiliary first: `does the man read the book`."""
    forms = _forms(clause, clause.subject.agreement)
    frequency = clause.predicate.frequency
    adverb = frequency.english if frequency else ""
    return join(
        forms.auxiliary,
        clause.subject.english(),
        "not" if clause.negated else "",
        adverb,
        forms.rest,
        english_tail(clause.predicate),
    )


def english_infinitive(predicate: Predicate) -> str:
    """Without a subject: `call his mother`."""
    return join(predicate.verb.english, english_tail(predicate))


def _pronouns(predicate: Predicate, agreement: Agreement) -> str:
    reflexive = _REFLEXIVES[agreement] if predicate.verb.is_reflexive else ""
    return join(reflexive, predicate.pronouns)


def _middle(predicate: Predicate, tense: Tense | None = None, *, negated: bool = False) -> str:
    frequency, time = predicate.frequency, predicate.time
    manner, place = predicate.manner, predicate.place
    return join(
        time.german if time else "",
        frequency.german if frequency else "",
        "gerade" if tense is Tense.PROGRESSIVE else "",
        predicate.known,
        "nicht" if negated else "",
        manner.german if manner else "",
        place.german if place else "",
        predicate.new,
        predicate.complement,
    )


def german_statement(clause: Clause) -> str:
    """Subject first, finite verb second: `der Mann ruft heute seine Mutter an`."""
    subject, predicate = clause.subject, clause.predicate
    verb = bracket(predicate.verb, clause.tense, subject.agreement)
    return join(
        subject.german(Case.NOMINATIVE),
        verb.finite,
        _pronouns(predicate, subject.agreement),
        _middle(predicate, clause.tense, negated=clause.has_nicht),
        verb.closing,
    )


def german_inverted(clause: Clause) -> str:
    """Finite verb first, for questions and after a fronted adverbial: `ruft der Mann seine Mutter an`."""
    subject, predicate = clause.subject, clause.predicate
    verb = bracket(predicate.verb, clause.tense, subject.agreement)
    nominative, pronouns = subject.german(Case.NOMINATIVE), _pronouns(predicate, subject.agreement)
    subject_leads = subject.is_pronoun or pronouns in _LIKE_NOMINATIVES
    return join(
        verb.finite,
        nominative if subject_leads else pronouns,
        pronouns if subject_leads else nominative,
        _middle(predicate, clause.tense, negated=clause.has_nicht),
        verb.closing,
    )


def german_final(clause: Clause) -> str:
    """Finite verb last, for subordinate clauses: `der Mann seine Mutter anruft`."""
    subject, predicate = clause.subject, clause.predicate
    return join(
        subject.german(Case.NOMINATIVE),
        _pronouns(predicate, subject.agreement),
        _middle(predicate, clause.tense, negated=clause.has_nicht),
        bracket(predicate.verb, clause.tense, subject.agreement).final,
    )


def german_zu(predicate: Predicate, agreement: Agreement) -> str:
    """With zu, for the subject of the clause before: `seine Mutter anzurufen`, `mich auszuruhen`."""
    return join(_pronouns(predicate, agreement), _middle(predicate), zu_infinitive(predicate.verb))


def german_imperative(predicate: Predicate, *, negated: bool = False) -> str:
    """The formal imperative after `bitte`: `rufen Sie meine Mutter an`."""
    verb = predicate.verb
    finite = "seien" if verb.german == "sein" else verb.german
    return join(
        finite,
        "Sie",
        _pronouns(predicate, Agreement.PLURAL),
        _middle(predicate, negated=negated),
        verb.prefix,
    )


def sentence(english: str, german: str, mark: str = ".") -> tuple[str, str]:
    """The finished pair: a capital in front, a mark at the end."""
    return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark
