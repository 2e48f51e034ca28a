"""Sentences that are too long for a model: their parts are translated one by one, and joined."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from heedful.decoding.translation import Translation
from heedful.spans.pipeline import Request
from heedful.spans.spanned_text import has_letters
from heedful.spans.words import words
from heedful.text.sentences import Sentence, split_text
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Parted:
    """Sentences in parts; most have one.

    Attributes:
        sentences: each sentence with its parts.
        requests: the parts to translate; the others have no letters and are not changed.
    """

    sentences: tuple[tuple[str, list[Sentence]], ...]
    requests: tuple[Request, ...]

    @classmethod
    def of(cls, requests: Sequence[Request], tokenizer: Tokenizer | None, limit: int) -> Self:
        """Split sentences of more than `limit` tokens; without a tokenizer, each character is one."""
        parts = [split_text(request.text, tokenizer, limit) for request in requests]
        lettered = [
            replace(request, text=part.text)
            for request, parts_of_text in zip(requests, parts, strict=True)
            for part in parts_of_text
            if has_letters(part.text)
        ]
        texts = [request.text for request in requests]
        return cls(tuple(zip(texts, parts, strict=True)), tuple(lettered))

    def joined(self, translations: Iterable[Translation]) -> list[Translation]:
        """Return the translation of each sentence, joined from the translations of `requests`."""
        left = iter(translations)
        whole: list[Translation] = []
        for text, parts in self.sentences:
            outputs = [
                next(left) if has_letters(part.text) else Translation.given(part.text, part.text)
                for part in parts
            ]
            if len(outputs) == 1 and not parts[0].space:
                whole += outputs
            else:
                gaps = [part.space for part in parts]
                whole.append(Translation.joined(text, outputs, gaps, split=words))
        return whole
