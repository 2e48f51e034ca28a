"""Numbers, ordinals, clock times and prices as words, in English and German."""

from __future__ import annotations

from phrasebook.words import Adverbial, listed

_ENGLISH_SMALL = listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_ENGLISH_TENS = listed("- - twenty thirty forty fifty sixty seventy eighty ninety")
_GERMAN_SMALL = listed(
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn "
    "siebzehn achtzehn neunzehn"
)
_GERMAN_TENS = listed("- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_ENGLISH_ORDINALS = {1: "first", 2: "second", 3: "third", 5: "fifth", 8: "eighth", 9: "ninth", 12: "twelfth"}
_GERMAN_ORDINALS = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}


def english_number(number: int) -> str:
    """A number from 0 to 999 in English words: `one hundred and twenty-seven`."""
    if number < 20:
        return _ENGLISH_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _ENGLISH_TENS[tens] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")
    hundreds, rest = divmod(number, 100)
    return f"{_ENGLISH_SMALL[hundreds]} hundred" + (f" and {english_number(rest)}" if rest else "")


def german_number(number: int) -> str:
    """A number from 0 to 999 in German words, ones before tens: `hundertsiebenundzwanzig`."""
    if number < 20:
        return _GERMAN_SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        if not ones:
            return _GERMAN_TENS[tens]
        return f"{_bound(ones)}und{_GERMAN_TENS[tens]}"
    hundreds, rest = divmod(number, 100)
    prefix = "" if hundreds == 1 else _bound(hundreds)
    return f"{prefix}hundert" + (german_number(rest) if rest else "")


def _bound(digit: int) -> str:
    return "ein" if digit == 1 else _GERMAN_SMALL[digit]


def english_ordinal(number: int) -> str:
    """An ordinal from 1 to 31 in English: `twenty-first`."""
    if number > 20 and number % 10:
        return f"{_ENGLISH_TENS[number // 10]}-{english_ordinal(number % 10)}"
    if number in _ENGLISH_ORDINALS:
        return _ENGLISH_ORDINALS[number]
    word = english_number(number)
    return f"{word[:-1]}ieth" if word.endswith("y") else f"{word}th"


def german_ordinal_stem(number: int) -> str:
    """The stem of a German ordinal from 1 to 31, to which an adjective ending goes: `einundzwanzigst`."""
    if number in _GERMAN_ORDINALS:
        return _GERMAN_ORDINALS[number]
    return german_number(number) + ("t" if number < 20 else "st")


def clock_time(hour: int, minute: int) -> Adverbial:
    """A time of day, spoken, without its preposition: `half past seven` is `halb acht`.

    Args:
        hour: 1 to 12.
        minute: 0, 5, 10, 15, 20, 30, 40, 45, 50 or 55.
    """
    following = hour % 12 + 1
    if minute == 0:
        german_hour = "ein" if hour == 1 else german_number(hour)
        return Adverbial(f"{english_number(hour)} o'clock", f"{german_hour} Uhr")
    if minute == 30:
        return Adverbial(f"half past {english_number(hour)}", f"halb {german_number(following)}")
    if minute < 30:
        english, german = _minutes(minute)
        return Adverbial(f"{english} past {english_number(hour)}", f"{german} nach {german_number(hour)}")
    english, german = _minutes(60 - minute)
    return Adverbial(f"{english} to {english_number(following)}", f"{german} vor {german_number(following)}")


def _minutes(minute: int) -> tuple[str, str]:
    if minute == 15:
        return "a quarter", "Viertel"
    return english_number(minute), german_number(minute)


def price(euros: int, cents: int) -> Adverbial:
    """A price in words: `three euros fifty` is `drei Euro fünfzig`."""
    english = f"{english_number(euros)} {'euro' if euros == 1 else 'euros'}"
    german = f"{'einen' if euros == 1 else german_number(euros)} Euro"
    if not cents:
        return Adverbial(english, german)
    return Adverbial(f"{english} {english_number(cents)}", f"{german} {german_number(cents)}")
