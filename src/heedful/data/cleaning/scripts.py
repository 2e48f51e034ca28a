"""Scripts of letters, by their Unicode names."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache

_PART = 0.05  # the smallest share of a main script: Japanese has three
# Letters that belong to no script, or to any: signs, and letters in other forms.
_NO_SCRIPTS = {
    "MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "FEMININE", "MASCULINE", "MICRO",
    "OHM", "KELVIN", "ANGSTROM", "FULLWIDTH", "HALFWIDTH", "ALEF", "PLANCK", "TURNED", "SQUARED",
    "IDEOGRAPHIC", "KATAKANA-HIRAGANA",
}  # fmt: skip


@cache
def script_of(character: str) -> str | None:
    """Return the script of a letter, such as "LATIN"; None for other characters."""
    if not character.isalpha():
        return None
    script = unicodedata.name(character, "").split(" ", 1)[0]
    return script if script and script not in _NO_SCRIPTS else None


def main_scripts(characters: Mapping[str, int]) -> frozenset[str]:
    """Return the scripts of at least 5 % of the letters, given the count of each character."""
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        if (script := script_of(character)) is not None:
            counts[script] += count
    return frozenset(script for script, count in counts.items() if count >= _PART * counts.total())


def foreign_letters(characters: Iterable[str], scripts: frozenset[str]) -> frozenset[str]:
    """Return those of the characters that are letters of other scripts."""
    return frozenset(c for c in characters if (script := script_of(c)) is not None and script not in scripts)
