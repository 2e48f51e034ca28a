"""A model as the service sees it: the pairs that it translates, and something that translates each."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from heedful.serving.catalogue import Pair

if TYPE_CHECKING:
    from heedful.bundle import Bundle
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation

_MAX_HYPOTHESES = 8  # of an n-best list that is shown


class PairTranslator(Protocol):
    """Translates sentences of one pair: a `Translator` is one."""

    def translations(
        self, texts: Sequence[str], *, options: "SearchOptions | None" = None
    ) -> list["Translation"]:
        """Return the translation of each text."""
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
        self, name: str, pairs: frozenset[Pair], open_pair: Callable[[Pair], ServedPair], *, max_open: int = 4
    ) -> None:
        """Take a model; `open_pair` makes the translator of a pair."""
        self.name = name
        self.pairs = pairs
        self._open_pair = open_pair
        self._max_open = max_open
        self._open: OrderedDict[Pair, ServedPair] = OrderedDict()
        self._lock = threading.Lock()  # a translator works for one thread at a time

    def translate(self, pair: Pair, texts: Sequence[str], *, alternatives: int) -> list[tuple[str, ...]]:
        """Return the best translation of each text, then up to so many others, all different."""
        with self._lock:
            served = self._served(pair)
            best = [each.text for each in served.translator.translations(texts, options=served.options(1))]
            # A second search: the beam is wider there, and alternatives must not change the answer.
            if not alternatives:
                return [(text,) for text in best]
            others = served.translator.translations(texts, options=served.options(alternatives + 1))
        return [
            tuple(dict.fromkeys([first, *(each.text for each in more.hypotheses)]))[: alternatives + 1]
            for first, more in zip(best, others, strict=True)
        ]

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
