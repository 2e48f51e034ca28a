"""How fast a model translates on this machine: many sentences together, and one at a time."""

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
from heedful.native import native
from heedful.requests import Runtime, SearchRequest
from heedful.training.memory.peak import peak_memory
from heedful.workflows.loading import load_translator, search_options

ProgressListener = Callable[[str, float], None]  # what is being done, and how much of all is: 0 to 1

_ROUNDS = 3  # over all sentences, after one that prepares; the median counts
_SINGLE = 100  # sentences that are translated alone, at most
_WARM_UP = 5  # of them before any is timed


@dataclass(frozen=True, kw_only=True)
class DecodingBenchmark:
    """Measured speed and memory of translation.

    Attributes:
        sentences: that were translated.
        beam_size: of the search.
        precision: of matrix multiplications; where "auto" was asked for, what was chosen.
        engine: "compiled" or "torch".
        native: what there is of the native library here, and why not more.
        shortlist: the file; None: there was none.
        threads: of the CPU.
        batch_size: sentences of a batch at most; None where `batch_tokens` alone limits it.
        batch_tokens: source tokens of a batch at most, padding included.
        output_tokens_per_second: tokens of the best outputs, end tokens included, of all sentences together.
        sentences_per_second: likewise; text goes in and comes out, loading is not counted.
        median_latency_ms: of sentences that are translated one at a time.
        p99_latency_ms: what 99 % of them stay below.
        peak_memory_mib: in MiB, while all sentences are translated.
        peak_memory_of: what is counted in it.
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
    listener: ProgressListener = lambda what, done: None,
) -> DecodingBenchmark:
    """Translate lines as `translate` does, and measure it; the translations are not kept.

    Raises:
        BundleError: no usable bundle.
        InputError: settings that cannot be, a line too long for learned positions, or no text at all.
    """
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("bench decode: there is no text in the source; give a file of sentences")
    listener("loading", 0.0)
    translator = load_translator(run, request, runtime)
    options = search_options(request, translator.bundle.config.decode)
    single = texts[:: max(1, len(texts) // _SINGLE)][:_SINGLE]
    to_do = _ROUNDS + 3
    outputs = translator.translations(texts, options=options)  # kernels are prepared
    seconds = []
    for done in range(1, _ROUNDS + 1):
        listener("all sentences", done / to_do)
        seconds.append(_seconds(translator, texts, options))
    listener("memory", (_ROUNDS + 1) / to_do)
    with peak_memory(torch.device(translator.device)) as memory:
        translator.translations(texts, options=options)
    listener("one sentence at a time", (_ROUNDS + 2) / to_do)
    for text in single[:_WARM_UP]:
        translator.translations([text], options=options)
    latencies = [1e3 * _seconds(translator, [text], options) for text in single]
    return DecodingBenchmark(
        sentences=len(texts),
        beam_size=options.beam_size,
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
    begun = time.perf_counter()
    translator.translations(texts, options=options)
    return time.perf_counter() - begun


def _length(translation: Translation) -> int:
    return len(translation.hypotheses[0].token_log_probs) if translation.hypotheses else 0
