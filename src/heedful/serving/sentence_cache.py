"""Translations of sentences, remembered up to a number of characters; the least recently used go first."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple

from heedful.serving.catalogue import Pair
from heedful.serving.served_model import Outputs

_OVERHEAD = 200  # characters that stand for an entry's objects
_LINK = 64  # for a link between two words


class SentenceKey(NamedTuple):
    """Everything that a translation depends on."""

    model: str
    pair: Pair
    alternatives: int
    aligned: bool
    text: str


class SentenceCache:
    """A bounded mapping from sentences to their translations, for any number of threads."""

    def __init__(self, max_characters: int) -> None:
        """Remember nothing yet, and later no more than `max_characters`."""
        self._max_characters = max_characters
        self._size = 0
        self._lock = Lock()
        self._entries: OrderedDict[SentenceKey, Outputs] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: SentenceKey) -> Outputs | None:
        """Return the translations of a sentence; None where they are not remembered."""
        with self._lock:
            outputs = self._entries.get(key)
            if outputs is not None:
                self._entries.move_to_end(key)
            return outputs

    def put(self, key: SentenceKey, outputs: Outputs) -> None:
        """Remember the translations of a sentence."""
        size = _size(key, outputs)
        if size > self._max_characters:
            return
        with self._lock:
            if (old := self._entries.pop(key, None)) is not None:
                self._size -= _size(key, old)
            self._entries[key] = outputs
            self._size += size
            while self._size > self._max_characters:
                self._size -= _size(*self._entries.popitem(last=False))


def _size(key: SentenceKey, outputs: Outputs) -> int:
    links = sum(len(each.links or ()) for each in outputs)
    return len(key.text) + sum(len(each.text) for each in outputs) + _LINK * links + _OVERHEAD
