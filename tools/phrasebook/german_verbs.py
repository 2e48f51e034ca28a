"""German verbs by rule: finite forms, participles, and the two halves of the sentence bracket."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from phrasebook.words import Agreement, Tense, Verb

_AUXILIARIES = {
    "haben": ("habe", "hat", "haben", "haben"),
    "sein": ("bin", "ist", "sind", "sind"),
    "werden": ("werde", "wird", "werden", "werden"),
    "wurden": ("wurde", "wurde", "wurden", "wurden"),
    "können": ("kann", "kann", "können", "können"),
    "müssen": ("muss", "muss", "müssen", "müssen"),
    "sollten": ("sollte", "sollte", "sollten", "sollten"),
    "wollen": ("will", "will", "wollen", "wollen"),
    "dürfen": ("darf", "darf", "dürfen", "dürfen"),
    "möchten": ("möchte", "möchte", "möchten", "möchten"),
    "konnten": ("konnte", "konnte", "konnten", "konnten"),
    "mussten": ("musste", "musste", "mussten", "mussten"),
    "wollten": ("wollte", "wollte", "wollten", "wollten"),
}
_IRREGULAR_PRESENT = {
    "sein": ("bin", "ist", "sind", "sind"),
    "wissen": ("weiß", "weiß", "wissen", "wissen"),
}
_WITH_INFINITIVE = {
    Tense.FUTURE: "werden",
    Tense.CAN: "können",
    Tense.MUST: "müssen",
    Tense.SHOULD: "sollten",
    Tense.WANT: "wollen",
    Tense.ALLOWED: "dürfen",
    Tense.WOULD_LIKE: "möchten",
    Tense.COULD: "konnten",
    Tense.HAD_TO: "mussten",
    Tense.WANTED: "wollten",
}
_PASSIVES = {
    Tense.PASSIVE: ("werden", ""),
    Tense.PASSIVE_PAST: ("wurden", ""),
    Tense.PASSIVE_FUTURE: ("werden", " werden"),
    Tense.PASSIVE_MUST: ("müssen", " werden"),
    Tense.PASSIVE_CAN: ("können", " werden"),
}


@dataclass(frozen=True, slots=True)
class Bracket:
    """A verb's place in a German clause.

    A main clause has `finite` second and `closing` last; a subordinate clause ends in `final`.
    """

    finite: str
    closing: str
    final: str


def weak_forms(infinitive: str, *, inseparable: bool) -> tuple[str, str, str]:
    """Third person, preterite and participle of a regular verb: `(kauft, kaufte, gekauft)`.

    Args:
        infinitive: Without its separable prefix.
        inseparable: Whether it has an unstressed prefix (besuchen), and the participle no ge-.
    """
    stem = verb_stem(infinitive)
    link = "e" if stem.endswith(("t", "d", "chn", "ffn", "gn")) else ""
    ge = "" if inseparable or infinitive.endswith("ieren") else "ge"
    return stem + link + "t", stem + link + "te", ge + stem + link + "t"


def verb_stem(infinitive: str) -> str:
    """An infinitive without its ending: kauf-, änder-, klingel-."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def present(verb: Verb, agreement: Agreement) -> str:
    """A present form, without the separable prefix."""
    irregular = _IRREGULAR_PRESENT.get(verb.german)
    if irregular is not None:
        return irregular[agreement]
    if agreement is Agreement.SINGULAR:
        return verb.third
    if agreement is Agreement.I:
        stem = verb_stem(verb.german)
        return stem[:-2] + "le" if verb.german.endswith("eln") else stem + "e"
    return verb.german


def preterite(verb: Verb, agreement: Agreement) -> str:
    """A preterite form, without the separable prefix."""
    if agreement in (Agreement.I, Agreement.SINGULAR):
        return verb.preterite
    return verb.preterite + ("n" if verb.preterite.endswith("e") else "en")


def zu_infinitive(verb: Verb) -> str:
    """The infinitive with zu, which goes between a separable prefix and its verb: anzurufen, zu lesen."""
    return f"{verb.prefix}zu{verb.german}" if verb.prefix else f"zu {verb.german}"


@cache
def bracket(verb: Verb, tense: Tense, agreement: Agreement) -> Bracket:
    """The finite verb and what closes the clause, for main and for subordinate word order."""
    simple = tense in (Tense.PRESENT, Tense.PROGRESSIVE)
    past = tense in (Tense.PAST_PROGRESSIVE, Tense.NARRATIVE) or (tense is Tense.PAST and verb.is_simple_past)
    if simple or past:
        finite = present(verb, agreement) if simple else preterite(verb, agreement)
        return Bracket(finite, verb.prefix, verb.prefix + finite)
    if tense in (Tense.PAST, Tense.PERFECT):
        auxiliary, closing = ("sein" if verb.uses_sein else "haben"), verb.prefix + verb.participle
    elif tense in _PASSIVES:
        auxiliary, ending = _PASSIVES[tense]
        closing = verb.prefix + verb.participle + ending
    else:
        auxiliary, closing = _WITH_INFINITIVE[tense], verb.lemma
    finite = _AUXILIARIES[auxiliary][agreement]
    return Bracket(finite, closing, f"{closing} {finite}")
