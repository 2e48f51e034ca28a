"""Measure how much of a text a tokenizer changes: a model writes what decoding its training ids gives."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

import sentencepiece

from heedful.text.tokenizer import Tokenizer

SAMPLE = 10_000  # lines of a longer text that are compared, about
_BLOCK = 1000
_SHOWN = 5  # characters in a message
_SPACES = re.compile(" +")


@dataclass(frozen=True)
class RoundTrip:
    """The lines that a tokenizer changes, apart from runs of spaces and spaces at both ends.

    Attributes:
        num_lines: lines that were compared.
        num_changed: lines that differ.
        characters: what these lines lose, the most frequent character first.
    """

    num_lines: int
    num_changed: int
    characters: tuple[str, ...]

    @classmethod
    def of(cls, lines: Sequence[str], tokenizer: Tokenizer) -> Self:
        """Compare lines with decode(encode(line)); of a long text, some that are spread over it."""
        sample = range(0, len(lines), max(1, len(lines) // SAMPLE))

        def pairs() -> Iterator[tuple[str, str]]:
            for start in range(0, len(sample), _BLOCK):
                block = [lines[i] for i in sample[start : start + _BLOCK]]
                yield from zip(block, map(tokenizer.decode, tokenizer.encode_batch(block)), strict=True)

        return cls.between(pairs())

    @classmethod
    def between(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Compare each line of a text with the line that it becomes."""
        num_lines, num_changed, lost = 0, 0, Counter[str]()
        for pair in pairs:
            num_lines += 1
            before, after = (_SPACES.sub(" ", text).strip(" ") for text in pair)
            if before != after:
                num_changed += 1
                lost += Counter(before) - Counter(after)
        return cls(num_lines, num_changed, tuple(character for character, _ in lost.most_common()))

    def __str__(self) -> str:
        shown = [*map(_shown, self.characters[:_SHOWN]), *["..."] * (len(self.characters) > _SHOWN)]
        which = f" ({' '.join(shown)})" if shown else ""
        return f"{self.num_changed / max(1, self.num_lines):.2%} of the target lines{which}"

    def warning(self, normalization: str) -> str:
        """Return a warning of the lines that such a tokenizer rewrites, or nothing."""
        if not self.num_changed:
            return ""
        remedy = "; tokenizer.normalization=identity keeps them" if normalization != "identity" else ""
        return f"the tokenizer rewrites {self}, which the model cannot write as they are{remedy}"


def nmt_nfkc(line: str) -> str:
    """Return a line after SentencePiece's usual normalisation, which `tokenizer.normalization` may be."""
    text: str = _nmt_nfkc().normalize(line)
    return text.replace("▁", " ")


@cache
def _nmt_nfkc() -> sentencepiece.SentencePieceNormalizer:
    return sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")


def _shown(character: str) -> str:
    """Return a character, or its number if it cannot be seen."""
    is_visible = character.isprintable() and not (character.isspace() or unicodedata.combining(character))
    return character if is_visible else f"U+{ord(character):04X}"
