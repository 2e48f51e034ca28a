"""Which marks of a text stay as they are, and which pieces look like marks but are translated."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from heedful.spans.keep import KeepRule
from heedful.spans.marks import MARKS
from heedful.spans.placeholders import Range

# Kinds of what is kept, in the order in which they are tried.
_KEPT = (
    ("addresses", r"(?: https?:// | www\. ) .* | [^\s@]+ @ [^\s@]+"),
    *((mark.programs, mark.pattern) for mark in MARKS),
    ("%: printf, Qt, strftime", r"% .*"),
    ("braces: ICU, Jinja, .NET and others", r"(?: [$\#%] | @ [.\w:]* )? \{ .*"),
    ("$: variables", r"\$ .*"),
    ("names behind : @ #", r"[:@\#] .+"),
    ("tags", r"< .* >"),
    ("brackets", r"\[ .* \]"),
    ("entities", r"& .* ;"),
    ("symbols and emoji", r".*"),
)
_KINDS = [(kind, re.compile(pattern, re.VERBOSE | re.DOTALL)) for kind, pattern in _KEPT]
# Kinds of what is translated although it may be a mark.
_MARK_LIKE = regex.compile(
    r"""
    (?P<in_brackets> \[{1,2}+ (?! [\d\s,;\u2013-]++ \] ) [^\[\]\n]{1,80}+ \]{1,2}+ | \{ [^{}\n]{1,80}+ \}
        | < [^<>\n]{1,80}+ > )
    | (?P<between_equal_signs> (?<! \w ) (?P<sign> [_~^|!\#$%@*:=+\u00a7]{1,3}+ ) (?= \w ) [\w\ .-]{1,60}?
        (?<= \w ) (?P=sign) (?! \w ) )
    | (?P<behind_a_backslash> \\ (?: \w{1,40}+ | [^\w\s] ) )
    | (?P<behind_a_sign> (?<! [\w&] ) [&!~^%$@\#\u00a7] [A-Za-z] \w{0,40}+ )
    | (?P<joined_names> \b \w{1,40}+ (?<= [^\W_] _ \w{1,39} ) | (?<! \S ) -- [a-z] [\w-]{0,40}+
        | \b [a-z]{2,40}+ [A-Z] \w{0,40}+ )
    """,
    regex.VERBOSE,
)


@dataclass(frozen=True)
class MarkKind:
    """Marks of one kind in texts.

    Attributes:
        kind: the programs that write them, their form, or the rule of the user that keeps them.
        kept: whether they stay as they are; otherwise they are translated.
        count: how many there are.
        first: where the first is.
        example: the first.
    """

    kind: str
    kept: bool
    count: int
    first: str
    example: str


class MarkCounter:
    """Counts the marks of texts by kind."""

    def __init__(self) -> None:
        """Begin with no texts."""
        self._first: dict[tuple[bool, str], tuple[str, str]] = {}
        self._counts: dict[tuple[bool, str], int] = {}

    @property
    def kinds(self) -> list[MarkKind]:
        """All kinds: first what is kept, and of both the most frequent first."""
        ordered = sorted(self._counts, key=lambda key: (not key[0], -self._counts[key]))
        return [
            MarkKind(kind, kept, self._counts[kept, kind], *self._first[kept, kind]) for kept, kind in ordered
        ]

    def add(
        self, text: str, placeholders: Sequence[Range], place: str, rules: Sequence[KeepRule] = ()
    ) -> None:
        """Count the marks of a text.

        Args:
            text: the text.
            placeholders: what is kept in it.
            place: where it is, for readers.
            rules: those of the user.
        """
        own = {start: rule.name for rule in reversed(rules) for start, _ in rule.find(text)}
        for start, end in placeholders:
            names = [own[at] for at in range(start, end) if at in own]
            kind = f"keep {names[0]}" if names else _kind_of(text[start:end])
            self._count(kept=True, kind=kind, place=place, mark=text[start:end])
        for kind, mark in _unknown(text, placeholders):
            self._count(kept=False, kind=kind, place=place, mark=mark)

    def _count(self, *, kept: bool, kind: str, place: str, mark: str) -> None:
        key = kept, kind
        self._first.setdefault(key, (place, mark))
        self._counts[key] = self._counts.get(key, 0) + 1


def _kind_of(mark: str) -> str:
    return next(kind for kind, pattern in _KINDS if pattern.fullmatch(mark))


def _unknown(text: str, placeholders: Sequence[Range]) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of what looks like a mark outside the placeholders."""
    left = list(text)
    for start, end in placeholders:
        left[start:end] = "\0" * (end - start)
    for match in _MARK_LIKE.finditer("".join(left)):
        assert match.lastgroup is not None
        yield match.lastgroup.replace("_", " "), match[0]
