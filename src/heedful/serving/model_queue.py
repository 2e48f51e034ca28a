"""A model and its queue: sentences of all requests, in batches of similar length.

Requests share the model equally (weighted fair queueing: Demers et al., 1989). A clock counts the tokens
that each waiting request would have had translated by an equal share of the model. A sentence is due its
number of tokens after the sentence before it, or, if it is the first, after its request came. The sentence
that is due first is translated first. So a short request waits for no more than about one batch of a long
one, and a long one gets its share.
"""

import heapq
import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from cachetools import LRUCache

from heedful import HeedfulError, Pair, Translation, Translator
from heedful.errors import SearchCancelledError
from heedful.serving.limits import Limits
from heedful.serving.refusals import InvalidError, UnavailableError
from heedful.spans import Request, SentenceTranslator, alignments_of, translated

if TYPE_CHECKING:
    from heedful import Bundle, Glossary, SearchOptions
    from heedful.decoding import Alignment, Entry
    from heedful.documents import TranslationMemory
    from heedful.serving.adapters import AdaptersOfModel
    from heedful.storage.adapter import Adapter

_NO_TEXT = "."  # a source that says nothing of its translation
_MOST_NAMED = 3  # pairs, in a line
_MAX_HYPOTHESES = 8  # of an n-best list that is shown


@dataclass(frozen=True)
class ServedPair:
    """A translator of one pair, and how it searches.

    Attributes:
        translator: the translator of the pair, here or in another process.
        options: how it searches for the n best; the argument is n.
        memory: the translation memory, with translations that need no search; None: there is none.
    """

    translator: SentenceTranslator
    options: "Callable[[int], SearchOptions]"
    memory: "TranslationMemory | None" = None

    @cached_property
    def translator_here(self) -> Translator | None:
        """A translator in this process, for attention maps; None if the model is only remote.

        Raises:
            MissingExtraError: torch would be needed, and is not installed.
        """
        if isinstance(self.translator, Translator):
            return self.translator
        bundle = getattr(self.translator, "bundle", None)
        return None if bundle is None else Translator(bundle)


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
        bundle: "Bundle | None" = None,
        max_tokens: int | None = None,
        threads: int = 1,
        max_open: int = 4,
        description: str = "",
    ) -> None:
        """Take a model.

        Args:
            name: the name in messages.
            pairs: that it translates.
            open_pair: makes the translator of a pair.
            bundle: has the tokenizers, safe in any thread; None: each character of a source is a token.
            max_tokens: the most tokens of a text that the translators do not split; None: no limit.
            threads: that may compute; each can translate sentences of its own.
            max_open: how many translators are kept.
            description: engine and precision, for the log.
        """
        self.name = name
        self.pairs = pairs
        self.tokenizer = None if bundle is None else bundle.tokenizers.src
        self.tgt_tokenizer = None if bundle is None else bundle.tokenizers.tgt
        self.max_tokens = max_tokens
        self.threads = threads
        self.adapters: AdaptersOfModel | None = None  # those that requests may name
        self._description = description
        self._open_pair = open_pair
        self._open: LRUCache[Pair, ServedPair] = LRUCache(max_open)
        self._lock = Lock()  # of the pairs
        self._free = _Shares(threads)

    def __str__(self) -> str:
        named, num_more = sorted(map(str, self.pairs))[:_MOST_NAMED], len(self.pairs) - _MOST_NAMED
        pairs = ", ".join(named) + (f" and {num_more:,} more pairs" if num_more > 0 else "")
        described = f"{self._description}, " if self._description else ""
        return f"{pairs}: {self.name} ({described}{self.threads} thread{'s' * (self.threads > 1)})"

    def translate(
        self,
        pair: Pair,
        requests: Sequence[Request],
        *,
        alternatives: int,
        threads: int | None = None,
        cancelled: Callable[[], bool] | None = None,
        glossary: "Glossary | None" = None,
        prefix: str = "",
    ) -> "list[Translation]":
        """Return the translation of each request: the best one, then its alternatives, all different.

        Args:
            pair: the languages.
            requests: one sentence each.
            alternatives: how many others.
            threads: how many compute, once they are free; None: all.
            cancelled: returns whether all clients have left; called before each step.
            glossary: the terms that translations use.
            prefix: what each translation begins with; no memory is asked then.

        Raises:
            SearchCancelledError: all clients have left.
        """
        with self._free.taken(threads or self.threads):
            served = self.served(pair)
            find = None if served.memory is None or prefix else served.memory.exact
            found: list[list[Translation]] = []
            # A second search: the beam is wider there, and alternatives must not change the answer.
            for n_best in dict.fromkeys((1, alternatives + 1)):
                options = replace(
                    served.options(n_best), threads=threads, cancelled=cancelled, glossary=glossary
                )
                found.append(
                    translated(served.translator, requests, options=options, find=find, prefix=prefix)
                )
        return [
            best.with_alternatives(more.hypotheses, alternatives).without_tokens()
            for best, more in zip(found[0], found[-1], strict=True)
        ]

    def alignments(
        self, pair: Pair, sources: Sequence[str], targets: Sequence[str]
    ) -> "Sequence[Alignment | None]":
        """Return the links between the words of each source and a given translation; None: not known."""
        with self._free.taken(1):
            return alignments_of(self.served(pair).translator, sources, targets)

    def information(self, pair: Pair, source: str, target: str) -> float:
        """Return by how many nats a token a source makes its translation more probable than no text does.

        Infinity: that is not known, as of a text that is too long.
        """
        with self._free.taken(1):
            translator = self.served(pair).translator
            if not isinstance(translator, Translator):  # it is in another process
                return math.inf
            given, alone = translator.score([source, _NO_TEXT], [target, target])
        information = (given.model_log_prob - alone.model_log_prob) / max(1, len(given.model_log_probs))
        return math.inf if math.isnan(information) else information

    def hypotheses(self, pair: Pair, texts: Sequence[str]) -> "list[Translation]":
        """Return the n-best list of each text, as long as the beam is wide."""
        with self._free.taken(self.threads):
            served = self.served(pair)
            n_best = min(served.options(1).beam_size, _MAX_HYPOTHESES)
            return served.translator.translations(texts, options=served.options(n_best))

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Wait until no translator of this model works, and let none begin until the end of the block."""
        with self._free.taken(self.threads):
            yield

    def served(self, pair: Pair) -> ServedPair:
        """Return the translator of a pair."""
        with self._lock:
            if (served := self._open.get(pair)) is None:
                served = self._open[pair] = self._open_pair(pair)
            return served


class _Shares:
    """The free threads of a model: whoever asks first gets them first, however many others need fewer."""

    def __init__(self, threads: int) -> None:
        self._num_free = threads
        self._asking: deque[object] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, threads: int) -> Iterator[None]:
        """Wait for this number of free threads, and take them until the end of the block."""
        who = object()
        with self._changed:
            self._asking.append(who)
            self._changed.wait_for(lambda: self._asking[0] is who and self._num_free >= threads)
            self._asking.popleft()
            self._num_free -= threads
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._num_free += threads
                self._changed.notify_all()


_OVERHEAD = 200  # characters that stand for an entry's objects
_LINK = 64  # for a link between two words
_NUMBER = 32  # for a probability


class SentenceKey(NamedTuple):
    """Everything that a translation depends on; of a glossary, the terms that apply to the sentence."""

    model: str
    pair: Pair
    alternatives: int
    aligned: bool
    text: str
    terms: "tuple[Entry, ...]" = ()
    adapter: str = ""  # its checksum
    prefix: str = ""


class SentenceCache:
    """A bounded mapping from sentences to their translations, for any number of threads."""

    def __init__(self, max_characters: int) -> None:
        """Remember nothing yet, and later no more than `max_characters`."""
        self._lock = Lock()
        self._entries: LRUCache[SentenceKey, tuple[int, Translation]] = LRUCache(
            max_characters, getsizeof=lambda entry: entry[0]
        )

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: SentenceKey) -> Translation | None:
        """Return the translations of a sentence; None if they are not remembered."""
        with self._lock:
            _, translation = self._entries.get(key, (0, None))
            return translation

    def put(self, key: SentenceKey, translation: Translation) -> None:
        """Remember the translation of a sentence."""
        size = len(key.text) + _OVERHEAD
        for output in translation.hypotheses:
            size += len(output.text)
            if output.alignment is not None:
                size += _LINK * len(output.alignment.links)
            if output.confidence is not None:
                size += _NUMBER * (len(output.confidence.words) + len(output.confidence.tokens))
        for entry in key.terms:
            size += sum(_OVERHEAD + len(form.text) for form in (entry.source, *entry.targets))
        with self._lock, suppress(ValueError):  # larger than the whole cache
            self._entries[key] = size, translation


_STEP = 8  # tokens: what a sentence costs the model besides its own
_SCANNED = 8  # times the size of a batch: number of sentences to search for ones of similar length
# A sentence of a batch is at most this many times as long as the first, or this many tokens longer.
_LONGER = 1.5
_MORE = 5
# If there are several threads, a batch has at least this many sentences and source tokens, if they wait.
_FEWEST, _FEWEST_TOKENS = 8, 128

_log = logging.getLogger("heedful.serving")


@dataclass(eq=False)
class Turn:
    """When the latest sentence of a request is due, in each queue.

    Attributes:
        due: the time for each queue, by its clock.
        is_over: nobody waits for its sentences any more.
    """

    due: "dict[ModelQueue, float]" = field(default_factory=dict)
    is_over: bool = False


@dataclass(frozen=True, order=True)
class _Waiting:
    """A sentence in the queue."""

    due: float
    number: int
    key: SentenceKey = field(compare=False)
    glossary: "Glossary | None" = field(compare=False)
    adapter: "Adapter | None" = field(compare=False)
    tokens: int = field(compare=False)
    turn: Turn = field(compare=False)
    future: "Future[Translation]" = field(compare=False)

    @property
    def is_needed(self) -> bool:
        """Whether a client waits for it."""
        return not (self.turn.is_over or self.future.cancelled())


class ModelQueue:
    """Threads, which translate what is waiting for a model.

    Each thread takes sentences of its own, and the next ones when it is done with them. A thread that finds
    the model idle, and after which nothing waits, lets all threads of the model compute its sentences.
    """

    def __init__(
        self,
        model: ServedModel,
        limits: Limits,
        cache: SentenceCache,
        *,
        observe_batch: Callable[[int], None] = lambda sentences: None,
    ) -> None:
        """Start the threads; `observe_batch` is called with the size of each batch."""
        self.model = model
        self._limits = limits
        self._cache = cache
        self._observe_batch = observe_batch
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closing = False
        self._clock = 0.0
        self._numbers = itertools.count()
        self._num_free = model.threads
        self._threads = [
            threading.Thread(target=self._run, name=f"heedful {model.name}", daemon=True)
            for _ in range(model.threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        pair: Pair,
        texts: Sequence[str],
        *,
        alternatives: int,
        turn: Turn,
        aligned: Container[str] = (),
        glossary: "Glossary | None" = None,
        adapter: "Adapter | None" = None,
        prefix: str = "",
    ) -> "list[Future[Translation]]":
        """Put sentences into the queue; those that are remembered are done at once.

        Args:
            pair: the languages.
            texts: sentences.
            alternatives: how many other translations of each.
            turn: when sentences of the request are due.
            aligned: the texts to align with their translations, word by word.
            glossary: the terms to use.
            adapter: what changes the model; sentences with different adapters share batches.
            prefix: what the translation of the first text begins with.

        Raises:
            UnavailableError: the queue is closed.
        """
        futures: list[Future[Translation]] = []
        waiting: list[tuple[SentenceKey, int, Future[Translation]]] = []
        for text in texts:
            future: Future[Translation] = Future()
            futures.append(future)
            terms = () if glossary is None else tuple(glossary.applicable(text))
            changed = "" if adapter is None else adapter.sha256
            key = SentenceKey(
                self.model.name, pair, alternatives, text in aligned, text, terms, changed, prefix
            )
            prefix = ""
            cached = self._cache.get(key)
            if cached is not None:
                future.set_result(cached)
            else:
                tokenizer = self.model.tokenizer
                waiting.append((key, len(text if tokenizer is None else tokenizer.encode(text)), future))
        if waiting:
            with self._changed:
                if self._closing:
                    raise UnavailableError("the server is shutting down")
                for key, tokens, future in waiting:
                    due = max(self._clock, turn.due.get(self, 0.0)) + tokens + _STEP
                    turn.due[self] = due
                    used = glossary if key.terms else None
                    each = _Waiting(due, next(self._numbers), key, used, adapter, tokens, turn, future)
                    heapq.heappush(self._waiting, each)
                self._changed.notify_all()
        return futures

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Translate all that is waiting, then end the threads."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (taken := self._next_batch()) is not None:
            batch, threads = taken
            needed = [each for each in batch if each.is_needed]
            if needed:
                self._observe_batch(len(needed))
                self._translate(needed, threads)
            with self._changed:
                self._num_free += threads
                self._changed.notify_all()

    def _next_batch(self) -> tuple[list[_Waiting], int] | None:
        """Wait for sentences, and return them with how many threads compute them; None: no more will come."""
        with self._changed:
            self._changed.wait_for(
                lambda: (self._waiting and self._num_free) or (self._closing and not self._waiting)
            )
            if not self._waiting:
                return None
            is_alone = len(self._waiting) == 1 and self._num_free == self.model.threads
            threads = self._num_free if is_alone else 1
            batch = self._similar(-(-len(self._waiting) // self._num_free))
            self._num_free -= threads
            return batch, threads

    def _similar(self, share: int) -> list[_Waiting]:
        """Take the sentence that is due first, and early ones of similar length, out of the queue.

        They are at most `share`, and a thread's part of the limits of a batch.
        """
        first = heapq.heappop(self._waiting)
        batch: list[_Waiting] = [first]
        others: list[_Waiting] = []
        limits, threads = self._limits, self.model.threads
        size = min(share, limits.batch_sentences, max(_FEWEST, limits.batch_sentences // threads))
        most_tokens = min(limits.batch_tokens, max(_FEWEST_TOKENS, limits.batch_tokens // threads))
        longest = first.tokens
        max_shared = limits.sentence_tokens // 2  # few sentences are longer, and much of what is no text
        while self._waiting and len(batch) < size and len(others) < _SCANNED * size:
            each = heapq.heappop(self._waiting)
            tokens = max(longest, each.tokens)
            has_space = (len(batch) + 1) * tokens <= most_tokens and tokens <= max_shared
            if each.is_needed and has_space and _fit_a_batch(first, each):
                batch.append(each)
                longest = tokens
            elif each.is_needed:
                others.append(each)
        for each in others:
            heapq.heappush(self._waiting, each)
        num_requests = len({each.turn for each in (*batch, *others)})
        self._clock += sum(each.tokens + _STEP for each in batch) / num_requests
        return batch

    def _translate(self, batch: Sequence[_Waiting], threads: int) -> None:
        first = batch[0].key
        requests = {each.key: Request(each.key.text, first.aligned, each.adapter) for each in batch}
        try:
            translations = self.model.translate(
                first.pair,
                list(requests.values()),
                alternatives=first.alternatives,
                threads=threads,
                cancelled=lambda: not any(each.is_needed for each in batch),
                glossary=batch[0].glossary,
                prefix=first.prefix,
            )
        except SearchCancelledError:
            return
        except HeedfulError as error:
            if len(batch) > 1:
                for each in batch:  # one of them cannot be translated, and the others can
                    self._translate([each], threads)
            elif batch[0].future.set_running_or_notify_cancel():
                batch[0].future.set_exception(InvalidError(str(error)))
            return
        except BaseException as error:
            _log.exception("a batch could not be translated")
            for each in batch:
                if each.future.set_running_or_notify_cancel():
                    each.future.set_exception(error)
            return
        results = dict(zip(requests, translations, strict=True))
        for each in batch:
            self._cache.put(each.key, results[each.key])
            if each.future.set_running_or_notify_cancel():
                each.future.set_result(results[each.key])


def _fit_a_batch(first: _Waiting, other: _Waiting) -> bool:
    short, long = sorted((first.tokens, other.tokens))
    asked, also = (each.key._replace(text="", terms=(), adapter="") for each in (first, other))
    return first.glossary is other.glossary and asked == also and long <= max(_LONGER * short, short + _MORE)
