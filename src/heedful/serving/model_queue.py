"""The queue in front of a model: sentences of all requests, in batches of similar length.

Sentences are taken in the order of their deadlines. A deadline is when a sentence came, and a time for each
character of its request on top: so short requests go before long ones, and a long one waits for no request
that comes more than that time after it.
"""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from heedful.errors import HeedfulError
from heedful.serving.catalogue import Pair
from heedful.serving.limits import Limits
from heedful.serving.refusals import InvalidError, UnavailableError
from heedful.serving.sentence_cache import SentenceCache, SentenceKey
from heedful.serving.served_model import Outputs, ServedModel

_SECONDS_A_CHARACTER = 0.001  # by which a request's length puts its deadline off
_SCANNED = 8  # times the size of a batch: so many sentences are looked through for ones of similar length
# Sentences of a batch are up to so many times as long as the first, or up to so many characters longer.
_LONGER = 1.5
_MORE = 20

_log = logging.getLogger("heedful.serving")


@dataclass(frozen=True, order=True)
class _Waiting:
    """A sentence in the queue."""

    deadline: float
    number: int
    key: SentenceKey = field(compare=False)
    future: "Future[Outputs]" = field(compare=False)


class ModelQueue:
    """One thread, which translates what is waiting for a model."""

    def __init__(
        self,
        model: ServedModel,
        limits: Limits,
        cache: SentenceCache,
        *,
        observe_batch: Callable[[int], None] = lambda sentences: None,
    ) -> None:
        """Start the thread; `observe_batch` is called with the size of each batch."""
        self.model = model
        self._limits = limits
        self._cache = cache
        self._observe_batch = observe_batch
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closing = False
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._run, name=f"heedful {model.name}", daemon=True)
        self._thread.start()

    def submit(
        self,
        pair: Pair,
        texts: Sequence[str],
        *,
        alternatives: int,
        request_characters: int,
        aligned: Container[str] = (),
    ) -> "list[Future[Outputs]]":
        """Put sentences into the queue; those that are remembered are done at once.

        Args:
            pair: of languages.
            texts: sentences.
            alternatives: how many other translations of each.
            request_characters: of the whole request, which decide how urgent it is.
            aligned: those of the texts whose words are aligned with their translations.

        Raises:
            UnavailableError: the queue is closed.
        """
        deadline = time.monotonic() + _SECONDS_A_CHARACTER * request_characters
        futures: list[Future[Outputs]] = []
        waiting: list[_Waiting] = []
        for text in texts:
            future: Future[Outputs] = Future()
            futures.append(future)
            key = SentenceKey(self.model.name, pair, alternatives, text in aligned, text)
            cached = self._cache.get(key)
            if cached is not None:
                future.set_result(cached)
            else:
                waiting.append(_Waiting(deadline, next(self._numbers), key, future))
        if waiting:
            with self._changed:
                if self._closing:
                    raise UnavailableError("the server is shutting down")
                for each in waiting:
                    heapq.heappush(self._waiting, each)
                self._changed.notify()
        return futures

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Translate all that is waiting, then end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            running = [each for each in batch if each.future.set_running_or_notify_cancel()]
            if running:
                self._observe_batch(len(running))
                self._translate(running)

    def _next_batch(self) -> list[_Waiting] | None:
        with self._changed:
            if not self._waiting:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                # The model was idle: others may come at nearly the same time.
                self._changed.wait_for(
                    lambda: len(self._waiting) >= self._limits.batch_sentences or self._closing,
                    timeout=self._limits.batch_wait,
                )
            return self._similar() if self._waiting else None

    def _similar(self) -> list[_Waiting]:
        """Take the most urgent sentence, and urgent ones of similar length, out of the queue."""
        first = heapq.heappop(self._waiting)
        batch: list[_Waiting] = [first]
        others: list[_Waiting] = []
        size = self._limits.batch_sentences
        while self._waiting and len(batch) < size and len(others) < _SCANNED * size:
            each = heapq.heappop(self._waiting)
            if not each.future.cancelled():
                (batch if _fit_a_batch(first, each) else others).append(each)
        for each in others:
            heapq.heappush(self._waiting, each)
        return batch

    def _translate(self, batch: Sequence[_Waiting]) -> None:
        first = batch[0].key
        texts = list(dict.fromkeys(each.key.text for each in batch))
        try:
            outputs = self.model.translate(
                first.pair, texts, alternatives=first.alternatives, aligned=first.aligned
            )
        except HeedfulError as error:
            if len(batch) == 1:
                batch[0].future.set_exception(InvalidError(str(error)))
                return
            for each in batch:  # one of them cannot be translated, and the others can
                self._translate([each])
            return
        except BaseException as error:
            _log.exception("a batch could not be translated")
            for each in batch:
                each.future.set_exception(error)
            return
        results = dict(zip(texts, outputs, strict=True))
        for text, output in results.items():
            self._cache.put(first._replace(text=text), output)
        for each in batch:
            each.future.set_result(results[each.key.text])


def _fit_a_batch(first: _Waiting, other: _Waiting) -> bool:
    if first.key._replace(text="") != other.key._replace(text=""):
        return False
    short, long = sorted((len(first.key.text), len(other.key.text)))
    return long <= max(_LONGER * short, short + _MORE)
