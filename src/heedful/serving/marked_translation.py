"""Translate sentences with markers: what a model is shown of them, and what becomes of its outputs."""

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from heedful.errors import InputError
from heedful.serving.marked_text import (
    MarkedText,
    Span,
    is_faithful,
    may_be_shown,
    without_doubles,
    without_placeholders,
)
from heedful.serving.projection import Links, project, words

if TYPE_CHECKING:
    from heedful.decoding.alignment import Alignment
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation

Escape = Callable[[str], str]


@dataclass(frozen=True)
class Output:
    """A translation of a sentence.

    Attributes:
        text: the translation.
        links: between the `words` of the sentence and of the translation; None where they are not known.
    """

    text: str
    links: Links | None = None


Outputs = tuple[Output, ...]  # the translations of a sentence, best first


class PairTranslator(Protocol):
    """Translates sentences of one pair: a `Translator` is one."""

    def translations(
        self, texts: Sequence[str], *, options: "SearchOptions | None" = None
    ) -> list["Translation"]:
        """Return the translation of each text."""
        ...

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: Callable[[str], list[Span]]
    ) -> list["Alignment"]:
        """Return the alignment of each pair of texts, whose words `split` returns."""
        ...


def aligned_outputs(
    translator: PairTranslator, texts: Sequence[str], outputs: Sequence[Sequence[str]]
) -> list[Outputs]:
    """Return the translations of texts with the links of their words, where they can be had."""
    sources = [text for text, of_text in zip(texts, outputs, strict=True) for _ in of_text]
    targets = [target for of_text in outputs for target in of_text]
    links: Iterator[Links | None]
    try:
        links = (each.links for each in translator.align(sources, targets, split=words))
    except InputError:  # a text that is too long for learned positions, or an engine without attention
        if len(texts) > 1:
            return [
                of_text
                for text, each in zip(texts, outputs, strict=True)
                for of_text in aligned_outputs(translator, [text], [each])
            ]
        links = itertools.repeat(None)
    return [tuple(Output(target, next(links)) for target in of_text) for of_text in outputs]


def translated(
    sentences: Sequence[tuple[MarkedText, Escape]],
) -> Generator[list[MarkedText], list[Outputs], list[tuple[str, ...]]]:
    """Return the translations of sentences, with their markers, and no placeholder lost or changed.

    Where the model does not keep the placeholders, the sentence is translated without them.

    Args:
        sentences: each with what writes text so that its format takes it for text.

    Yields:
        Sentences whose texts are to be translated; the outputs of each are sent.
    """
    written: list[tuple[str, ...]] = [()] * len(sentences)
    shown = [index for index, (sentence, _) in enumerate(sentences) if may_be_shown(sentence)]
    through = yield [sentences[index][0] for index in shown]
    for index, outputs in zip(shown, through, strict=True):
        sentence, escape = sentences[index]
        if is_faithful(sentence, outputs[0].text):
            faithful = [each for each in outputs if is_faithful(sentence, each.text)]
            written[index] = tuple(project(sentence, each.text, escape, each.links) for each in faithful)
    lossy = [index for index, texts in enumerate(written) if not texts]
    bare = [without_placeholders(sentences[index][0]) for index in lossy]
    through = yield bare
    for index, sentence, outputs in zip(lossy, bare, through, strict=True):
        whole, escape = sentences[index]
        written[index] = tuple(
            project(sentence, text, escape, each.links if text == each.text else None)
            for each in outputs
            for text in [without_doubles(whole, each.text)]
        )
    return written
