"""A model as the service sees it: the pairs that it translates, and something that translates each."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from heedful.errors import InputError
from heedful.serving.catalogue import Pair
from heedful.serving.markup.marked_text import Span
from heedful.serving.markup.projection import Links, words
from heedful.serving.segments import Sentence

if TYPE_CHECKING:
    from heedful.decoding.alignment import Alignment
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.storage.bundle import Bundle

_MAX_HYPOTHESES = 8  # of an n-best list that is shown


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


@dataclass(frozen=True)
class ServedPair:
    """A translator of one pair, and how it searches.

    Attributes:
        translator: of the pair.
        options: how it searches for the n best; the argument is n.
        beam_size: how many hypotheses it keeps alive.
        bundle: the model itself, for explanations; None: there are none.
    """

    translator: PairTranslator
    options: "Callable[[int], SearchOptions]"
    beam_size: int = 1
    bundle: "Bundle | None" = None


class ServedModel:
    """The pairs of one model, each with a translator that is made when it is first asked for.

    The translators of a few pairs are kept: a model of a hundred languages has ten thousand pairs.
    """

    def __init__(
        self,
        name: str,
        pairs: frozenset[Pair],
        open_pair: Callable[[Pair], ServedPair],
        *,
        num_tokens: Callable[[str], int] = len,
        max_open: int = 4,
    ) -> None:
        """Take a model.

        Args:
            name: for messages.
            pairs: that it translates.
            open_pair: makes the translator of a pair.
            num_tokens: returns the number of source tokens of a text; for any thread.
            max_open: how many translators are kept.
        """
        self.name = name
        self.pairs = pairs
        self.num_tokens = num_tokens
        self._open_pair = open_pair
        self._max_open = max_open
        self._open: OrderedDict[Pair, ServedPair] = OrderedDict()
        self._lock = threading.Lock()  # a translator works for one thread at a time

    def translate(
        self,
        pair: Pair,
        texts: Sequence[str],
        *,
        alternatives: int,
        aligned: bool = False,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[Outputs]:
        """Return the best translation of each text, then up to so many others, all different.

        Args:
            pair: of languages.
            texts: one sentence each.
            alternatives: how many others.
            aligned: whether they have the links of their words, where the translator can say them.
            cancelled: whether nobody waits for them any more; asked before each step.

        Raises:
            SearchCancelledError: nobody does.
        """
        with self._lock:
            served = self._served(pair)

            def search(n_best: int) -> "list[Translation]":
                options = replace(served.options(n_best), cancelled=cancelled)
                return served.translator.translations(texts, options=options)

            outputs = [[each.text] for each in search(1)]
            if alternatives:
                # A second search: the beam is wider there, and alternatives must not change the answer.
                others = search(alternatives + 1)
                outputs = [
                    list(dict.fromkeys([*best, *(each.text for each in more.hypotheses)]))[: alternatives + 1]
                    for best, more in zip(outputs, others, strict=True)
                ]
            if aligned:
                return _aligned(served.translator, texts, outputs)
            return [tuple(map(Output, each)) for each in outputs]

    def hypotheses(self, pair: Pair, texts: Sequence[str]) -> "list[Translation]":
        """Return the n-best list of each text, as long as the beam is wide."""
        with self._lock:
            served = self._served(pair)
            n_best = min(served.beam_size, _MAX_HYPOTHESES)
            return served.translator.translations(texts, options=served.options(n_best))

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Wait until no translator of this model works, and let none begin until the end of the block."""
        with self._lock:
            yield

    def bundle(self, pair: Pair) -> "Bundle | None":
        """Return the model of a pair; None where it cannot be had."""
        with self._lock:
            return self._served(pair).bundle

    def _served(self, pair: Pair) -> ServedPair:
        if pair not in self._open:
            self._open[pair] = self._open_pair(pair)
            if len(self._open) > self._max_open:
                self._open.popitem(last=False)
        self._open.move_to_end(pair)
        return self._open[pair]


def joined_outputs(parts: Sequence[Sentence], outputs: Sequence[Outputs]) -> Outputs:
    """Return the translations of a sentence, the n-th made of the n-th ones of its parts.

    They have links where those of all parts are known, and no word is in two parts.
    """
    if len(parts) == 1 and not parts[0].space:
        return outputs[0]
    text = "".join(each.space + each.text for each in parts)
    return tuple(
        _joined(text, parts, [each[min(n, len(each) - 1)] for each in outputs])
        for n in range(max(map(len, outputs), default=1))
    )


def _joined(source: str, parts: Sequence[Sentence], outputs: Sequence[Output]) -> Output:
    target = "".join(part.space + output.text for part, output in zip(parts, outputs, strict=True))
    links: list[tuple[int, int]] = []
    num_src = num_tgt = 0
    for part, output in zip(parts, outputs, strict=True):
        if output.links is None:
            return Output(target)
        links += [(num_src + src, num_tgt + tgt) for src, tgt in output.links]
        num_src, num_tgt = num_src + len(words(part.text)), num_tgt + len(words(output.text))
    whole = (num_src, num_tgt) == (len(words(source)), len(words(target)))
    return Output(target, links if whole else None)


def _aligned(
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
                for of_text in _aligned(translator, [text], [each])
            ]
        links = repeat(None)
    return [tuple(Output(target, next(links)) for target in of_text) for of_text in outputs]
