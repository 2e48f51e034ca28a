"""Notices before the first step of a training: what is being done, and what its text is like."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from heedful.data.batches import Mixture
from heedful.data.corpora import joined
from heedful.data.files import ParallelText, Report
from heedful.data.store import ParallelStore
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts, in_words
from heedful.settings.run import Config, DataConfig
from heedful.storage.torch_weights import unique_weights
from heedful.text import TokenizerPair
from heedful.text.round_trip import RoundTrip
from heedful.training.events import Event, NoticeEvent, WarningEvent

Listener = Callable[[Event], None]

_SILENCE = 8.0  # seconds
_MUCH_UNKNOWN = 0.01  # of a text's tokens; more probably means another script than the bundle's


class Notices:
    """Notices before the first step; they are logged once the run directory exists."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.events: list[Event] = []
        self.listeners = listeners
        self._said_at = time.monotonic()

    def add(self, message: str, *, warning: bool = False) -> None:
        """Pass a notice to the listeners, and save it for the log."""
        event = (WarningEvent if warning else NoticeEvent)(0, 0.0, message)
        self.events.append(event)
        self._show(event)

    def add_set_aside(self, old: Path | None) -> None:
        """Tell where an old run is now, if there was one."""
        if old is not None:
            self.add(f"the old run is in {old} now; remove it when you do not need it any more")

    @contextmanager
    def during(self, activity: str, *, silence: float = _SILENCE) -> Iterator[Report]:
        """Inside the block, show what is being done whenever nothing was shown for `silence` seconds.

        Yields a function that takes the fraction that is done, from which the time left is estimated.
        """
        is_over = threading.Event()
        done: list[tuple[float, float]] = []  # when, and the fraction: the first and the last one

        def remind() -> None:
            start = time.monotonic()
            while not is_over.wait(max(0.01, self._said_at + silence - time.monotonic())):
                now = time.monotonic()
                if now - self._said_at >= silence:
                    message = f"{activity}: {now - start:.0f} s so far{_time_left(done)}"
                    self._show(NoticeEvent(0, 0.0, message))

        def report(fraction: float) -> None:
            done[1:] = [(time.monotonic(), fraction)]

        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield report
        finally:
            is_over.set()
            reminder.join()

    def _show(self, event: Event) -> None:
        self._said_at = time.monotonic()
        for listener in self.listeners:
            listener(event)


def _time_left(done: Sequence[tuple[float, float]]) -> str:
    """Return the progress, and the time left if it goes on as between the first and the last moment."""
    if not done or done[-1][1] <= done[0][1]:
        return ""
    (start, first), (now, last) = done[0], done[-1]
    return f", {last:.0%} done, {(now - start) / (last - first) * (1 - last):.0f} s left"


def note_changes(model: Transformer, notices: Notices) -> None:
    """Warn of a model with parts that are not heedful's own, which only torch computes as they are."""
    if changes := changed_parts(model):
        unique_weights(model)
        notices.add(
            f"{in_words(changes)}: not heedful's own; torch computes the model as it is", warning=True
        )


def note_store(store: ParallelStore, notices: Notices) -> None:
    """Report how much of the training text is used."""
    report = store.report
    if store.num_continued:
        notices.add(f"{store.num_continued:,} pairs were turned into ids before, by an interrupted start")
    notices.add(
        f"{report.num_kept:,} pairs kept, {report.num_tgt_tokens:,} target tokens; "
        f"longest source {report.longest_src:,}, longest target {report.longest_tgt:,} tokens"
    )
    if report.num_too_long:
        notices.add(
            f"{report.num_too_long:,} pairs left out: longer than {report.max_length} tokens", warning=True
        )


def note_held_out(store: ParallelStore, config: Config, notices: Notices) -> None:
    """Warn of validation pairs that are not scored, and of sources that are not translated as a whole."""
    report, longest = store.report, config.decode.max_source_tokens or config.data.max_length
    if report.num_too_long:
        notices.add(
            f"{report.num_too_long:,} of {report.num_read:,} validation pairs are left out of nll and "
            f"perplexity: longer than {report.max_length:,} tokens",
            warning=True,
        )
    if num_long := int((store.src_lengths > longest).sum()):
        notices.add(
            f"{num_long:,} validation sources have more than {longest:,} tokens (max_source_tokens), and "
            "are translated in segments"
        )


def note_small_shares(mixture: Mixture | None, data: DataConfig, notices: Notices) -> None:
    """Warn of corpora that an epoch has no pair of."""
    counts = mixture.counts() if mixture else []
    for corpus, num_pairs in zip(data.corpora, counts, strict=False):
        if not num_pairs:
            name = corpus.pairs or corpus.src
            notices.add(f"{name}: its weight gives it less than one pair in an epoch; raise it", warning=True)


def note_rewritten(
    texts: Sequence[ParallelText],
    tokenizers: TokenizerPair,
    config: Config,
    notices: Notices,
) -> None:
    """Warn of target lines that the model cannot write as they are."""
    changed = RoundTrip.of(joined(texts).tgt, tokenizers.tgt)
    if message := changed.warning(config.tokenizer.normalization):
        notices.add(message, warning=True)


def with_length_ratio(config: Config, store: ParallelStore, notices: Notices) -> Config:
    """Return the configuration with the limit of outputs that the training text asks for.

    The ratio is at least 1, the paper's, and at least the base model's.
    """
    ratio = max(1.0, config.decode.max_length_ratio or 1.0, math.ceil(100 * store.length_ratio) / 100)
    decode = config.decode.replace(max_length_ratio=ratio)
    if ratio > 1.0:
        notices.add(
            f"an output may have {ratio:g} tokens for each of its source, and {decode.max_length_offset} "
            "more: decode.max_length_ratio is that of the text"
        )
    return config.replace(decode=decode.model_dump())


def note_unknown(store: ParallelStore, tokenizers: TokenizerPair, notices: Notices) -> None:
    """Report the fraction of the text that is unknown to the base model's tokenizers."""
    src, tgt = store.count(tokenizers.src.unk_id, tokenizers.tgt.unk_id)
    src_share, tgt_share = src / store.report.num_src_tokens, tgt / store.report.num_tgt_tokens
    notices.add(
        f"unknown to its tokenizers: {src_share:.2%} of the source tokens, {tgt_share:.2%} of the target's",
        warning=max(src_share, tgt_share) > _MUCH_UNKNOWN,
    )
