"""What a user wants to keep: rules beside the forms that are recognised, for the work of one task or request.

`keeping` sets the rules of the work that is done inside, as `WATCH` of reading.py sets its watch; `find` of
placeholders.py adds what they match.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath

import regex

from heedful.errors import InputError
from heedful.spans.marks import PRESETS
from heedful.text.scripts import UNSPACED

_SECONDS = 2.0  # for one pattern in one text
_LETTER = rf"[^\W{UNSPACED}]"


@dataclass(frozen=True)
class KeepRule:
    """A rule that says what to keep.

    Attributes:
        name: what the user wrote: the name of a preset, a pattern, or "literal strings".
        pattern: what is kept, in the syntax of the library regex.
        flags: of the pattern.
    """

    name: str
    pattern: str
    flags: int = 0

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the matches in a text begin and end, without empty ones.

        Raises:
            InputError: the pattern takes too long.
        """
        compiled = _compiled(self.pattern, self.flags)
        try:
            yield from (match.span() for match in compiled.finditer(text, timeout=_SECONDS) if match[0])
        except TimeoutError:
            raise InputError(
                f"keep {self.name}: takes more than {_SECONDS:g} seconds for {len(text):,} characters; "
                "write a simpler pattern"
            ) from None


@lru_cache(maxsize=256)
def _compiled(pattern: str, flags: int) -> regex.Pattern[str]:
    return regex.compile(pattern, flags)


def keep_rule(rule: str) -> KeepRule:
    """Return a rule of a user: a preset by its name, else a regular expression.

    Raises:
        InputError: no regular expression, or one that matches nothing at all.
    """
    if rule in PRESETS:
        return KeepRule(rule, PRESETS[rule].pattern, regex.VERBOSE)
    try:
        if _compiled(rule, 0).search("") is not None:
            raise InputError(f"keep {rule!r}: matches the empty text; write what must be there")
    except regex.error as error:
        raise InputError(
            f"keep {rule!r}: {error}; write a regular expression, or one of {', '.join(PRESETS)}"
        ) from None
    return KeepRule(rule, rule)


def literal_rules(texts: Iterable[str]) -> tuple[KeepRule, ...]:
    """Return the rules of a client: presets by their names; any other text is kept where it is a word."""
    names = [text for text in dict.fromkeys(texts) if text]
    rules = [keep_rule(name) for name in names if name in PRESETS]
    words = sorted((name for name in names if name not in PRESETS), key=len, reverse=True)
    if words:
        rules.append(KeepRule("literal strings", "|".join(map(_as_word, words))))
    return tuple(rules)


def _as_word(text: str) -> str:
    """Return the pattern of a text that does not begin or end inside a word."""
    before, after = rf"(?<!{_LETTER})(?={_LETTER})", rf"(?<={_LETTER})(?!{_LETTER})"
    starts, ends = (regex.match(_LETTER, char) is not None for char in (text[0], text[-1]))
    return f"{before * starts}{regex.escape(text)}{after * ends}"


@dataclass(frozen=True)
class KeepRules:
    """The rules of a task.

    Attributes:
        everywhere: for texts of all formats.
        by_ending: more rules for files by their ending, without the dot.
    """

    everywhere: tuple[KeepRule, ...] = ()
    by_ending: Mapping[str, tuple[KeepRule, ...]] = field(default_factory=dict)

    def of(self, file: str) -> tuple[KeepRule, ...]:
        """Return the rules of a file, by its name."""
        return self.everywhere + self.by_ending.get(PurePath(file).suffix[1:].lower(), ())


_RULES: ContextVar[Sequence[KeepRule]] = ContextVar("_RULES", default=())


@contextmanager
def keeping(rules: Sequence[KeepRule]) -> Iterator[None]:
    """Keep what the rules say in all texts that are read and translated inside, in this thread or task."""
    token = _RULES.set(rules)
    try:
        yield
    finally:
        _RULES.reset(token)


def kept(text: str) -> list[tuple[int, int]]:
    """Return where what the current rules keep begins and ends in a text; ranges can overlap."""
    return [place for rule in _RULES.get() for place in rule.find(text)]
