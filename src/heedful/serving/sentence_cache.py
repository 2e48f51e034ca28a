"""Translations of sentences, remembered up to a number of characters; the least recently used go first."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from heedful.serving.catalogue import Pair

_OVERHEAD = 200  # characters that stand for an entry's objects


class SentenceKey(NamedTuple):
    """Everything that a translation depends on."""

    model: str
    pair: Pair
    alternatives: int
    text: str


class SentenceCache:
    """A bounded mapping from sentences to their translations, for any number of threads."""

    def __init__(self, max_characters: int) -> None:
        """Remember nothing yet, and later no more than `max_characters`."""
        self._max_characters = max_characters
        self._size = 0
        self._lock = Lock()
        self._entries: OrderedDict[SentenceKey, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: SentenceKey) -> tuple[str, ...] | None:
        """Return the translations of a sentence; None where they are not remembered."""
        with self._lock:
            outputs = self._entries.get(key)
            if outputs is not None:
                self._entries.move_to_end(key)
            return outputs

    def put(self, key: SentenceKey, texts: tuple[str, ...]) -> None:
        """Remember the translations of a sentence."""
        size = _size(key, texts)
        if size > self._max_characters:
            return
        with self._lock:
            if (old := self._entries.pop(key, None)) is not None:
                self._size -= _size(key, old)
            self._entries[key] = texts
            self._size += size
            while self._size > self._max_characters:
                self._size -= _size(*self._entries.popitem(last=False))


def _size(key: SentenceKey, texts: tuple[str, ...]) -> int:
    return len(key.text) + sum(map(len, texts)) + _OVERHEAD
