"""The speed of translation on this machine: in batches, one sentence at a time, in other precisions."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from heedful.decoding.backends.engine import engine_precisions
from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.runtime.memory import peak_memory
from heedful.runtime.native import native
from heedful.runtime.threads import num_threads
from heedful.settings.options import Languages, PrecisionChoice, Runtime
from heedful.tasks.loading import load_translator

_ROUNDS = 3  # over all sentences, after a warm-up; the median counts
_SINGLE = 100  # maximum number of sentences translated one at a time
_WARM_UP = 5  # of them before timing
_COMPARED = 200  # maximum number of sentences translated in each precision
_FASTER = 1.1  # times as fast, below which an option is not worth naming


@dataclass(frozen=True, kw_only=True)
class DecodingBenchmark:
    """Measured speed and memory of translation.

    Attributes:
        sentences: the number of translated sentences.
        beam_size: the beam size of the search.
        precision: the precision of matrix multiplications; for "auto", the chosen one.
        engine: "native" or "torch".
        native: the level of the native library, and why it is not a higher one.
        shortlist: the file, or None.
        threads: the number of CPU threads.
        batch_size: the maximum number of sentences in a batch; None: only `batch_tokens` limits it.
        batch_tokens: the maximum number of source tokens in a batch, padding included.
        output_tokens_per_second: the tokens of the best outputs per second, end tokens included, in batches.
        sentences_per_second: the sentences per second, in batches, with tokenisation and without loading.
        median_latency_ms: the median time of a sentence, translated alone.
        p99_latency_ms: the 99th percentile of this time.
        peak_memory_mib: the peak memory in MiB while all sentences are translated.
        peak_memory_of: what this memory includes.
        faster: options that are faster here, such as `--precision int8`, and their speed-up.
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
    faster: dict[str, float]


def bench_decoding(
    run: Path,
    lines: Sequence[str],
    *,
    languages: Languages | None = None,
    search: Mapping[str, Any] | None = None,
    shortlist: Path | None = None,
    runtime: Runtime | None = None,
    on_progress: Callable[[str, float], None] = lambda *_: None,
) -> DecodingBenchmark:
    """Measure the translation of lines, as by `translate`.

    Args:
        run: a run, a bundle, or a name on the hub.
        lines: the lines to translate.
        languages: the languages of a multilingual model.
        search: options of the search by name; all others are the bundle's.
        shortlist: the file of a shortlist.
        runtime: precision, engine, device, threads and batch sizes.
        on_progress: called with the current phase and the progress, 0 to 1.

    Raises:
        BundleError: no usable bundle.
        InputError: settings are invalid, a line is too long for learned positions, or there is no text.
    """
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("bench decode: there is no text in the source; give a file of sentences")
    on_progress("loading", 0.0)
    chosen = runtime or Runtime()

    def load(precision: PrecisionChoice) -> Translator:
        wanted = replace(chosen, precision=precision)
        return load_translator(run, languages or Languages(), wanted, shortlist=shortlist)

    translator = load(chosen.precision)
    options = search_options(search or {}, translator.bundle.config.decode)
    single = texts[:: max(1, len(texts) // _SINGLE)][:_SINGLE]
    to_do = _ROUNDS + 4
    outputs = translator.translations(texts, options=options)  # warm-up
    seconds = []
    for done in range(1, _ROUNDS + 1):
        on_progress("all sentences", done / to_do)
        seconds.append(_seconds(translator, texts, options))
    on_progress("memory", (_ROUNDS + 1) / to_do)
    with peak_memory(translator.device) as memory:
        translator.translations(texts, options=options)
    on_progress("one sentence at a time", (_ROUNDS + 2) / to_do)
    for text in single[:_WARM_UP]:
        translator.translations([text], options=options)
    latencies = [1e3 * _seconds(translator, [text], options) for text in single]
    on_progress("other precisions", (_ROUNDS + 3) / to_do)
    return DecodingBenchmark(
        sentences=len(texts),
        beam_size=options.beam_size,
        precision=translator.precision_in_use,
        engine=translator.engine_in_use,
        native=native().describe(),
        shortlist=None if shortlist is None else str(shortlist),
        threads=num_threads(),
        batch_size=chosen.batch_size,
        batch_tokens=translator.batch_tokens,
        output_tokens_per_second=sum(map(_length, outputs)) / median(seconds),
        sentences_per_second=len(texts) / median(seconds),
        median_latency_ms=median(latencies),
        p99_latency_ms=quantiles(latencies, n=100)[-1] if len(latencies) > 1 else latencies[0],
        peak_memory_mib=memory.mib,
        peak_memory_of=memory.counted,
        faster=_faster(translator, load, texts[:_COMPARED], options),
    )


def _faster(
    translator: Translator,
    load: Callable[[PrecisionChoice], Translator],
    texts: Sequence[str],
    options: SearchOptions,
) -> dict[str, float]:
    """Return the speed-up of other precisions of the native engine, the fastest first."""
    if translator.engine_in_use != "native":
        return {}
    now = min(_seconds(translator, texts, options) for _ in range(2))
    ratios = {}
    for precision in engine_precisions():
        if precision != translator.precision_in_use:
            other = load(precision)
            other.translations(texts, options=options)  # warm-up
            ratios[f"--precision {precision}"] = now / min(_seconds(other, texts, options) for _ in range(2))
    faster = {option: round(times, 2) for option, times in ratios.items() if times > _FASTER}
    return dict(sorted(faster.items(), key=lambda each: -each[1]))


def _seconds(translator: Translator, texts: Sequence[str], options: SearchOptions) -> float:
    start = time.perf_counter()
    translator.translations(texts, options=options)
    return time.perf_counter() - start


def _length(translation: Translation) -> int:
    return len(translation.hypotheses[0].token_log_probs) if translation.hypotheses else 0
