"""Tokens added to a vocabulary, which a text is split at before it is tokenised.

They have the flags of `AddedToken` in the libraries transformers and tokenizers, which split differently:
transformers, for tokenizers written in Python, takes a token as it stands, and a single word lies between
spaces. The tokenizers library compares a normalised token with the normalised text, and a single word lies
between characters that are no part of words.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, StrictBool, TypeAdapter, ValidationError

from heedful.settings.parsing import Json, shown
from heedful.text.tokenizer import Id

# Returns a normalised text, and where each of its characters, and the end, stands in the text.
Normalizer = Callable[[str], tuple[str, Sequence[int]]]
SingleWord = Literal["spaces", "words"]
_WORD = re.compile(r"\w")
_NOTHING = "(?!)"  # a pattern that no text matches


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """A token that a text is split at.

    Attributes:
        content: the text of the token.
        id: its id in the vocabulary.
        special: whether decoding omits it.
        lstrip: whether it takes the white space before it along.
        rstrip: whether it takes the white space after it along.
        single_word: None: it is a token anywhere; "spaces": only between spaces; "words": only where no
            letter, digit or underscore is next to it.
        normalized: whether it is compared with the normalised text.
    """

    content: Annotated[str, Strict(), Field(min_length=1)]
    id: Id
    special: StrictBool = False
    lstrip: StrictBool = False
    rstrip: StrictBool = False
    single_word: SingleWord | None = None
    normalized: StrictBool = False

    @classmethod
    def read(cls, saved: Json) -> Self:
        """Read a token from JSON; unknown keys are ignored. ValueError if it is something else."""
        try:
            return TypeAdapter(cls).validate_python(saved)
        except ValidationError:
            problem = f"{shown(saved)} is not an added token with its content, id and flags"
        raise ValueError(problem)


def write_added(tokens: Iterable[AddedToken]) -> dict[str, Json]:
    """Return the tokens under the key "added"; nothing if there are none."""
    written: list[Json] = [*map(asdict, tokens)]
    return {"added": written} if written else {}


def with_flags(special: Mapping[str, int], added: Iterable[AddedToken]) -> dict[str, AddedToken]:
    """Return special tokens and added ones by their texts; the flags of an added one count."""
    plain = {text: AddedToken(content=text, id=i, special=True) for text, i in special.items()}
    return plain | {token.content: token for token in added}


Part = tuple[AddedToken | None, int, int]  # a token or the text between tokens: its start and end


class AddedTokens:
    """Splits texts at added tokens.

    Args:
        tokens: if several begin at one place, the longest is taken.
        normalize: normalises a text, to compare it with normalised tokens; None: there are no such tokens.
    """

    def __init__(self, tokens: Iterable[AddedToken], *, normalize: Normalizer | None = None) -> None:
        self._normalize = normalize
        self._plain: dict[str, AddedToken] = {}
        self._normalized: dict[str, AddedToken] = {}
        for token in tokens:
            if normalize is not None and token.normalized:
                self._normalized[normalize(token.content)[0]] = token
            else:
                self._plain[token.content] = token
        self._patterns = _pattern(self._plain), _pattern(self._normalized)

    def split(self, text: str) -> list[Part]:
        """Return the tokens in a text and the texts between them, in their order; none is empty."""
        parts = _split(text, self._patterns[0], self._plain)
        if self._normalize is None:
            return parts
        result: list[Part] = []
        for token, first, last in parts:
            if token is not None:
                result.append((token, first, last))
                continue
            normalized, offsets = self._normalize(text[first:last])
            for inner, start, end in _split(normalized, self._patterns[1], self._normalized):
                result.append((inner, first + offsets[start], first + offsets[end]))
        return result


def _split(text: str, pattern: re.Pattern[str], tokens: Mapping[str, AddedToken]) -> list[Part]:
    parts: list[Part] = []
    last = 0
    for match in pattern.finditer(text):
        token, (start, end) = tokens[match[0]], match.span()
        if not _is_word(token, text, start, end):
            last = _cut_at_rejected(token, text, parts, last, (start, end))
            continue
        if token.lstrip:
            start = max(last, len(text[:start].rstrip()))
        if token.rstrip:
            end = len(text) - len(text[end:].lstrip())
        if last < start:
            parts.append((None, last, start))
        parts.append((token, start, end))
        last = end
    if last < len(text):
        parts.append((None, last, len(text)))
    return parts


def _is_word(token: AddedToken, text: str, start: int, end: int) -> bool:
    around = text[:start][-1:], text[end:][:1]
    if token.single_word == "spaces":
        return {*around} <= {"", " "}
    return token.single_word is None or not any(map(_WORD.match, around))


def _cut_at_rejected(
    token: AddedToken, text: str, parts: list[Part], last: int, span: tuple[int, int]
) -> int:
    """Return where the text after a part of a word begins; transformers joins it with one neighbour."""
    start, end = span
    if token.single_word == "words":
        return last
    if text[:start][-1:] in ("", " "):  # so it belongs to what follows
        end = start
    elif parts and last == start:
        _, last, _ = parts.pop()
    if last < end:
        parts.append((None, last, end))
    return end


def _pattern(tokens: Mapping[str, AddedToken]) -> re.Pattern[str]:
    ordered = sorted(tokens, key=lambda token: (-len(token), token))
    return re.compile("|".join(map(re.escape, ordered)) or _NOTHING)
