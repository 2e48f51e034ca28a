"""Measure the speed of translation on this machine: in batches, and one sentence at a time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import torch

from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.runtime.native import native
from heedful.settings.options import Runtime, SearchRequest
from heedful.training.memory import peak_memory
from heedful.workflows.loading import load_translator, search_options

ProgressCallback = Callable[[str, float], None]  # the current phase, and the progress: 0 to 1

_ROUNDS = 3  # over all sentences, after a warm-up; the median counts
_SINGLE = 100  # maximum number of sentences translated one at a time
_WARM_UP = 5  # of them before timing


@dataclass(frozen=True, kw_only=True)
class DecodingBenchmark:
    """Measured speed and memory of translation.

    Attributes:
        sentences: the number of translated sentences.
        beam_size: of the search.
        precision: of matrix multiplications; for "auto", the chosen one.
        engine: "native" or "torch".
        native: the level of the native library, and why it is not a higher one.
        shortlist: the file, or None.
        threads: of the CPU.
        batch_size: the maximum number of sentences in a batch; None: only `batch_tokens` limits it.
        batch_tokens: the maximum number of source tokens in a batch, padding included.
        output_tokens_per_second: tokens of the best outputs, end tokens included, in batches.
        sentences_per_second: in batches, tokenisation included, loading excluded.
        median_latency_ms: of sentences translated one at a time.
        p99_latency_ms: the 99th percentile of these.
        peak_memory_mib: in MiB, while all sentences are translated.
        peak_memory_of: what this memory includes.
    """

    sentences: int
    beam_size: int
    precision: str
    engine: str
    native: str
    shortlist: str | None
    threads: int
    batch_size: int | None
    batch_tokens: int
    output_tokens_per_second: float
    sentences_per_second: float
    median_latency_ms: float
    p99_latency_ms: float
    peak_memory_mib: float | None
    peak_memory_of: str


def bench_decoding(
    run: Path,
    lines: Sequence[str],
    *,
    request: SearchRequest,
    runtime: Runtime,
    on_progress: ProgressCallback = lambda what, done: None,
) -> DecodingBenchmark:
    """Measure the translation of lines, as by `translate`.

    Raises:
        BundleError: there is no usable bundle.
        InputError: the settings are invalid, a line is too long for learned positions, or there is no text.
    """
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("bench decode: there is no text in the source; give a file of sentences")
    on_progress("loading", 0.0)
    translator = load_translator(run, request, runtime)
    options = search_options(request, translator.bundle.config.decode)
    single = texts[:: max(1, len(texts) // _SINGLE)][:_SINGLE]
    to_do = _ROUNDS + 3
    outputs = translator.translations(texts, options=options)  # warm-up
    seconds = []
    for done in range(1, _ROUNDS + 1):
        on_progress("all sentences", done / to_do)
        seconds.append(_seconds(translator, texts, options))
    on_progress("memory", (_ROUNDS + 1) / to_do)
    with peak_memory(torch.device(translator.device)) as memory:
        translator.translations(texts, options=options)
    on_progress("one sentence at a time", (_ROUNDS + 2) / to_do)
    for text in single[:_WARM_UP]:
        translator.translations([text], options=options)
    latencies = [1e3 * _seconds(translator, [text], options) for text in single]
    return DecodingBenchmark(
        sentences=len(texts),
        beam_size=options.strategy.width,
        precision=translator.precision_in_use,
        engine=translator.engine_in_use,
        native=native().describe(),
        shortlist=None if request.shortlist is None else str(request.shortlist),
        threads=torch.get_num_threads(),
        batch_size=runtime.batch_size,
        batch_tokens=translator.batch_tokens,
        output_tokens_per_second=sum(map(_length, outputs)) / median(seconds),
        sentences_per_second=len(texts) / median(seconds),
        median_latency_ms=median(latencies),
        p99_latency_ms=quantiles(latencies, n=100)[-1] if len(latencies) > 1 else latencies[0],
        peak_memory_mib=memory.mib,
        peak_memory_of=memory.counted,
    )


def _seconds(translator: Translator, texts: Sequence[str], options: SearchOptions) -> float:
    start = time.perf_counter()
    translator.translations(texts, options=options)
    return time.perf_counter() - start


def _length(translation: Translation) -> int:
    return len(translation.hypotheses[0].token_log_probs) if translation.hypotheses else 0
