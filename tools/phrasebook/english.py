"""English by rule: plurals, verb forms, comparison, the indefinite article, and auxiliaries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from phrasebook.words import Agreement, Tense

# Simple past and participle.
_IRREGULAR_VERBS = {
    "be": ("was", "been"),
    "begin": ("began", "begun"),
    "bring": ("brought", "brought"),
    "build": ("built", "built"),
    "buy": ("bought", "bought"),
    "catch": ("caught", "caught"),
    "come": ("came", "come"),
    "cost": ("cost", "cost"),
    "cut": ("cut", "cut"),
    "draw": ("drew", "drawn"),
    "dream": ("dreamt", "dreamt"),
    "drink": ("drank", "drunk"),
    "drive": ("drove", "driven"),
    "eat": ("ate", "eaten"),
    "fall": ("fell", "fallen"),
    "feed": ("fed", "fed"),
    "feel": ("felt", "felt"),
    "find": ("found", "found"),
    "fly": ("flew", "flown"),
    "forget": ("forgot", "forgotten"),
    "get": ("got", "gotten"),
    "give": ("gave", "given"),
    "go": ("went", "gone"),
    "hang": ("hung", "hung"),
    "have": ("had", "had"),
    "hear": ("heard", "heard"),
    "know": ("knew", "known"),
    "lend": ("lent", "lent"),
    "lose": ("lost", "lost"),
    "meet": ("met", "met"),
    "pay": ("paid", "paid"),
    "put": ("put", "put"),
    "read": ("read", "read"),
    "ring": ("rang", "rung"),
    "run": ("ran", "run"),
    "say": ("said", "said"),
    "see": ("saw", "seen"),
    "sell": ("sold", "sold"),
    "send": ("sent", "sent"),
    "shine": ("shone", "shone"),
    "sing": ("sang", "sung"),
    "sit": ("sat", "sat"),
    "sleep": ("slept", "slept"),
    "speak": ("spoke", "spoken"),
    "stand": ("stood", "stood"),
    "swim": ("swam", "swum"),
    "take": ("took", "taken"),
    "tell": ("told", "told"),
    "think": ("thought", "thought"),
    "throw": ("threw", "thrown"),
    "understand": ("understood", "understood"),
    "wake": ("woke", "woken"),
    "wear": ("wore", "worn"),
    "write": ("wrote", "written"),
}
_DOUBLING = frozenset({"begin", "cut", "forget", "get", "plan", "put", "run", "sit", "stop", "swim"})
_BE = ("am", "is", "are", "are")
_WAS = ("was", "was", "were", "were")
_HAVE = ("have", "has", "have", "have")
_DO = ("do", "does", "do", "do")
_ALLOWED = "allowed to"
_INVARIANT = {
    Tense.FUTURE: "will",
    Tense.CAN: "can",
    Tense.MUST: "must",
    Tense.SHOULD: "should",
    Tense.COULD: "could",
}
_PASSIVE_AUXILIARIES = {
    Tense.PASSIVE_FUTURE: "will",
    Tense.PASSIVE_MUST: "must",
    Tense.PASSIVE_CAN: "can",
}
_PERIPHRASTIC = {Tense.WANT: "want to", Tense.WANTED: "want to", Tense.HAD_TO: "have to"}
_AN_EXCEPTIONS = {"university": "a", "uniform": "a", "hour": "an", "honest": "an", "useful": "a"}
_SHORT_ADJECTIVE_DOUBLING = ("big", "hot", "thin", "sad", "fat", "wet")


@dataclass(frozen=True, slots=True)
class VerbForms:
    """An English verb in a tense.

    `plain` is the affirmative; `auxiliary` and `rest` are what `not` and questions take apart; `is_split`
    says whether the affirmative, too, is auxiliary and rest.
    """

    plain: str
    auxiliary: str
    rest: str
    is_split: bool


def plural_form(noun: str) -> str:
    """A regular plural; the last word of a compound inflects."""
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("fe"):
        return noun[:-2] + "ves"
    if noun.endswith(("tato", "mato")):
        return noun + "es"
    return noun + "s"


def third_person(verb: str) -> str:
    """The present form with he: `goes`, `carries`, `turns on` (the first word inflects)."""
    head, space, rest = verb.partition(" ")
    if head in ("be", "have"):
        form = {"be": "is", "have": "has"}[head]
    elif head.endswith("y") and head[-2] not in "aeiou":
        form = head[:-1] + "ies"
    elif head.endswith(("s", "x", "z", "ch", "sh", "o")):
        form = head + "es"
    else:
        form = head + "s"
    return form + space + rest


def past_form(verb: str) -> str:
    """The simple past: `bought`, `turned on`."""
    return _inflect(verb, 0)


def participle_form(verb: str) -> str:
    """The past participle: `bought`, `written`."""
    return _inflect(verb, 1)


def _inflect(verb: str, index: int) -> str:
    head, space, rest = verb.partition(" ")
    irregular = _IRREGULAR_VERBS.get(head)
    if irregular is not None:
        form = irregular[index]
    elif head.endswith("e"):
        form = head + "d"
    elif head.endswith("y") and head[-2] not in "aeiou":
        form = head[:-1] + "ied"
    elif head in _DOUBLING:
        form = head + head[-1] + "ed"
    else:
        form = head + "ed"
    return form + space + rest


def ing_form(verb: str) -> str:
    """The present participle: `writing`, `running`, `turning on`."""
    head, space, rest = verb.partition(" ")
    if head in _DOUBLING:
        form = head + head[-1] + "ing"
    elif head.endswith("ie"):
        form = head[:-2] + "ying"
    elif head.endswith("e") and not head.endswith(("ee", "be")):
        form = head[:-1] + "ing"
    else:
        form = head + "ing"
    return form + space + rest


def has_distinct_past(verb: str) -> bool:
    """Whether the simple past looks different from the present (it does not for read, put and cut)."""
    return past_form(verb) != verb


def indefinite_article(following: str) -> str:
    """`a` or `an` before a word."""
    first = following.split(" ", 1)[0].split("-", 1)[0]
    if first in _AN_EXCEPTIONS:
        return _AN_EXCEPTIONS[first]
    return "an" if following[0] in "aeiou" else "a"


def compare(adjective: str) -> tuple[str, str]:
    """Comparative and superlative: `older, oldest`, `more expensive, most expensive`."""
    if adjective == "good":
        return "better", "best"
    if adjective == "bad":
        return "worse", "worst"
    if adjective in _SHORT_ADJECTIVE_DOUBLING:
        stem = adjective + adjective[-1]
        return stem + "er", stem + "est"
    if adjective.endswith("y"):
        return adjective[:-1] + "ier", adjective[:-1] + "iest"
    if adjective in ("quiet", "narrow", "simple") or _is_monosyllabic(adjective):
        stem = adjective.removesuffix("e")
        return stem + "er", stem + "est"
    return f"more {adjective}", f"most {adjective}"


def _is_monosyllabic(word: str) -> bool:
    groups, inside = 0, False
    for letter in word.removesuffix("e"):
        vowel = letter in "aeiouy"
        groups += vowel and not inside
        inside = vowel
    return groups == 1


@cache
def verb_forms(verb: str, tense: Tense, agreement: Agreement) -> VerbForms:
    """An English verb in a tense, agreeing with its subject."""
    third = agreement is Agreement.SINGULAR
    if verb.split(" ", 1)[0] == "be" and tense in (Tense.PRESENT, Tense.PAST):
        auxiliary = (_BE if tense is Tense.PRESENT else _WAS)[agreement]
        return _split(auxiliary, verb[3:])
    if tense is Tense.PRESENT:
        return VerbForms(third_person(verb) if third else verb, _DO[agreement], verb, is_split=False)
    if tense in (Tense.PAST, Tense.NARRATIVE):
        return VerbForms(past_form(verb), "did", verb, is_split=False)
    if tense in _PERIPHRASTIC:
        return _periphrastic(verb, tense, agreement)
    if tense in _INVARIANT:
        return _split(_INVARIANT[tense], verb)
    if tense in _PASSIVE_AUXILIARIES:
        return _split(_PASSIVE_AUXILIARIES[tense], f"be {participle_form(verb)}")
    return _split(*_composite(verb, tense, agreement))


def _split(auxiliary: str, rest: str) -> VerbForms:
    return VerbForms(f"{auxiliary} {rest}".rstrip(), auxiliary, rest, is_split=True)


def _periphrastic(verb: str, tense: Tense, agreement: Agreement) -> VerbForms:
    phrase = f"{_PERIPHRASTIC[tense]} {verb}"
    if tense is Tense.WANT:
        plain = third_person(phrase) if agreement is Agreement.SINGULAR else phrase
        return VerbForms(plain, _DO[agreement], phrase, is_split=False)
    return VerbForms(past_form(phrase), "did", phrase, is_split=False)


def _composite(verb: str, tense: Tense, agreement: Agreement) -> tuple[str, str]:
    if tense is Tense.PROGRESSIVE:
        return _BE[agreement], ing_form(verb)
    if tense is Tense.PAST_PROGRESSIVE:
        return _WAS[agreement], ing_form(verb)
    if tense is Tense.PERFECT:
        return _HAVE[agreement], participle_form(verb)
    if tense is Tense.PASSIVE:
        return _BE[agreement], participle_form(verb)
    if tense is Tense.PASSIVE_PAST:
        return _WAS[agreement], participle_form(verb)
    if tense is Tense.WOULD_LIKE:
        return "would", f"like to {verb}"
    return _BE[agreement], f"{_ALLOWED} {verb}"
