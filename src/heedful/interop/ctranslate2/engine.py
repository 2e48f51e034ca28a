"""CTranslate2 as the engine of a translator; the model is exported to it once, and kept."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import platformdirs
from numpy.typing import NDArray

from heedful.decoding.backends.choice import Backends
from heedful.decoding.backends.native import weight_of
from heedful.decoding.generator import StepwiseGenerator, plan_batches
from heedful.decoding.hypotheses import Hypothesis, hypothesis_of
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import ScoredOutput
from heedful.errors import InputError, InteropError, MissingExtraError, install_hint
from heedful.interop.ctranslate2.export import (
    lacking,
    position_limit,
    sampled_by,
    search_settings,
    sum_of_log_probs,
    token_names,
)
from heedful.runtime.durable import why_not_written
from heedful.runtime.threads import num_threads
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle
from heedful.storage.stored_model import weight_shapes
from heedful.text.special_tokens import SpecialTokens, suppressed_ids

if TYPE_CHECKING:
    from ctranslate2 import Translator

_NUM_KEPT = 4  # exported models in the user's cache: those that were in use last
_PREFIX = "ctranslate2-"
_FORMAT = "heedful-ctranslate2-1"  # a part of the name: another way to export never meets an old directory
COMPUTE_TYPES: dict[Precision, str] = {
    "float32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
}


def cached_export(bundle: Bundle, precision: Precision) -> Path:
    """Return the directory of the exported model; it is exported where it is not there, or not any more.

    It is in the user's cache, where the four that were in use last are kept.

    Raises:
        InteropError: it cannot be written.
    """
    cache = platformdirs.user_cache_path("heedful")
    path = cache / f"{_PREFIX}{_fingerprint(bundle, precision)}"
    if not path.is_dir():
        try:
            _export(bundle, precision, path)
        except OSError as error:
            raise InteropError(f"{cache}: the model cannot be written: {why_not_written(error)}") from error
        _remove_unused(cache)
    with suppress(OSError):
        os.utime(path)
    return path


def _export(bundle: Bundle, precision: Precision, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as temporary:
        from heedful.interop.ctranslate2.export import export_ctranslate2  # which needs torch

        complete = Path(temporary) / "model"
        quantization = None if precision == "float32" else COMPUTE_TYPES[precision]
        export_ctranslate2(bundle, complete, quantization=quantization)
        try:
            complete.rename(path)
        except OSError:
            if not path.is_dir():  # otherwise somebody else was faster, with the same
                raise


def _remove_unused(cache: Path) -> None:
    """Remove all exported models but those that were in use last, and what killed processes left of theirs.

    One that another process has loaded is in its memory, and one that it is about to load is among the last.
    Each vanishes as a whole, before its files are removed.
    """
    by_use = sorted(cache.glob(f"{_PREFIX}*"), key=_last_use, reverse=True)
    for path in by_use[_NUM_KEPT:]:
        with (
            suppress(OSError),  # another process is removing it, or has it open where that matters
            tempfile.TemporaryDirectory(
                dir=cache, prefix=f"{_PREFIX}removed.", ignore_cleanup_errors=True
            ) as removed,
        ):
            path.rename(Path(removed) / path.name)


def _last_use(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it is gone
        return 0


def _fingerprint(bundle: Bundle, precision: Precision) -> str:
    """Return a hash of all that the export depends on."""
    framing = SpecialTokens.of(bundle.config, bundle.tokenizers)
    settings = [
        *(_FORMAT, precision, bundle.config.model.model_dump(), bundle.tokenizers.fingerprint()),
        *(framing.start_id, framing.src_suffix),
    ]
    digest = hashlib.sha256(json.dumps(settings).encode())
    weight = weight_of(bundle.network)
    for name in weight_shapes(bundle.config.model):
        digest.update(name.encode() + weight(name).tobytes())
    return digest.hexdigest()[:40]


Loader = Callable[[int, int], "Translator"]  # of batches at a time, and threads for each


class CTranslate2Generator:
    """Searches with an exported model; the log-probabilities of what it finds are those of heedful's search.

    Where it chooses otherwise than heedful's: what is suppressed or would repeat an n-gram leaves its
    probability to the other tokens, whatever `renormalize` says; the repetition penalty divides and
    multiplies logits; with prefixes, no output ends right after its own; samples differ each time.
    Scores and attention are heedful's own.
    """

    name = "ctranslate2"

    def __init__(
        self, bundle: Bundle, own: StepwiseGenerator, load: Loader, *, precision: Precision, threads: int
    ) -> None:
        """Prepare; nothing is loaded before the first search.

        Args:
            bundle: what was exported.
            own: heedful's generator for it, which gives batch sizes, scores and attention.
            load: loads the exported model.
            precision: of the exported model.
            threads: of the CPU: one for each batch, or all of them for a sentence that comes alone.
        """
        framing, tgt = SpecialTokens.of(bundle.config, bundle.tokenizers), bundle.tokenizers.tgt
        self.precision: Precision = precision
        self._start_id, self._eos_id, self._pad_id = framing.start_id, tgt.eos_id, tgt.pad_id
        self._own = own
        self._names = token_names(bundle)
        self._ids = {name: i for i, name in enumerate(self._names.tgt)}
        self._adds_end = framing.src_suffix == (bundle.tokenizers.src.eos_id,)
        self._limit = position_limit(bundle.config.model)
        self._load = load
        self._threads = threads

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be: there, most kinds of positions have an end."""
        return self._limit

    def max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """See `Generator`."""
        longest = self._own.max_length(source, options)
        return longest if self._limit is None else min(longest, self._limit)

    def score(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """See `Generator`; heedful's own."""
        return self._own.score(sources, outputs, options=options, prefixes=prefixes)

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """See `Generator`; heedful's own."""
        return self._own.attention(sources, outputs, layer=layer)

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
        max_lengths: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search; see `Generator`.

        Raises:
            InputError: options that CTranslate2 does not have, each by its name.
        """
        if names := ", ".join(lacking(options, self._eos_id)):
            raise InputError(f"engine='ctranslate2' cannot search with {names}; engine='auto' can")
        limits = [self.max_length(ids, options) for ids in sources]
        if max_lengths is not None:
            limits = list(map(min, limits, max_lengths))
        first = () if options.forced_first_id is None else (options.forced_first_id,)
        beginnings = [(*first, *ids) for ids in prefixes or [()] * len(sources)]
        at_once = 1 if sum(map(bool, sources)) == 1 else self._threads
        engine = self._load(at_once, self._threads // at_once)

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search_batch(
                engine, [sources[i] for i in batch], [beginnings[i] for i in batch], limits[batch[0]], options
            )

        n_best_lists: list[list[Hypothesis]] = [[] for _ in sources]
        batches = self._batches(sources, limits, at_once)
        with ThreadPoolExecutor(at_once) as pool:
            for batch, results in zip(batches, pool.map(search_batch, batches), strict=True):
                for i, hypotheses in zip(batch, results, strict=True):
                    n_best_lists[i] = hypotheses
        return n_best_lists

    def _batches(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], at_once: int
    ) -> list[list[int]]:
        """Plan batches such that all of one have the same length limit: CTranslate2 takes one for all."""
        share = math.ceil(len(sources) / at_once)
        groups: dict[int, list[int]] = {}
        for i, limit in enumerate(limits):
            groups.setdefault(limit, []).append(i)
        return [
            [group[i] for i in batch]
            for _, group in sorted(groups.items(), reverse=True)
            for batch in plan_batches(
                [len(sources[i]) for i in group],
                tokens=self._own.batch_tokens,
                size=min(self._own.batch_size or share, share),
            )
        ]

    def _search_batch(
        self,
        engine: "Translator",
        sources: Sequence[Sequence[int]],
        beginnings: Sequence[Sequence[int]],
        limit: int,
        options: SearchOptions,
    ) -> list[list[Hypothesis]]:
        """Search, then let the model say what it thinks of each token: the search says one score only."""
        read = [self._named_source(ids) for ids in sources]
        most = max(1, limit - (options.forced_last_id is not None))
        # Its scores leave out what is forced: with that, another hypothesis may be the best.
        whole_beam = any(beginnings) or options.forced_last_id is not None
        settings = search_settings(options, whole_beam=whole_beam)
        # What CTranslate2 refuses, and what changes no output.
        settings["min_decoding_length"] = min(options.min_length, most)
        if "sampling_topk" in settings:
            settings["sampling_topk"] = min(settings["sampling_topk"], len(self._names.tgt))
        results = engine.translate_batch(
            read,
            [self._named(ids) for ids in beginnings],
            max_decoding_length=most,
            suppress_sequences=self._suppressed(options),
            **settings,
        )
        eos = self._names.tgt[self._eos_id]
        outputs = [(row, tokens) for row, each in enumerate(results) for tokens in each.hypotheses]
        own = engine.score_batch(
            [read[row] for row, _ in outputs],
            [tokens[:-1] if tokens[-1:] == [eos] else tokens for _, tokens in outputs],
            max_input_length=0,
        )
        scores = (score for each in results for score in each.scores)
        n_best_lists: list[list[Hypothesis]] = [[] for _ in sources]
        for (row, tokens), score, scored in zip(outputs, scores, own, strict=True):
            ids = [self._ids[token] for token in tokens]
            n_best_lists[row].append(
                self._hypothesis(ids, scored.log_probs, score, len(beginnings[row]), options)
            )
        if sampled_by(options) is None:
            n_best_lists = [
                sorted(each, key=lambda one: -one.score)[: options.n_best] for each in n_best_lists
            ]
        return n_best_lists

    def _hypothesis(
        self, ids: list[int], own: Sequence[float], score: float, num_in_prefix: int, options: SearchOptions
    ) -> Hypothesis:
        """An output of these ids, from the model's log-probabilities `own` and the score of the search."""
        own = list(own[: len(ids)])  # an output that was truncated has no end token
        if options.forced_first_id is not None:
            own[0] = 0.0
        log_prob = sum(own[:num_in_prefix]) + sum_of_log_probs(score, len(ids), options)
        if options.forced_last_id is not None and ids[-1:] != [self._eos_id]:
            ids, own = [*ids, self._eos_id], [*own, 0.0]
        penalty = options.penalty(len(ids))
        hypothesis = hypothesis_of(ids, own, eos_id=self._eos_id, penalty=penalty)
        if options.renormalize:
            hypothesis = replace(hypothesis, log_prob=log_prob, score=log_prob / penalty)
        return hypothesis

    def _named(self, ids: Iterable[int]) -> list[str]:
        return [self._names.tgt[i] for i in ids]

    def _named_source(self, ids: Sequence[int]) -> list[str]:
        """As the encoder reads it, but for the end that CTranslate2 adds itself."""
        return [self._names.src[i] for i in (ids[:-1] if self._adds_end else ids)]

    def _suppressed(self, options: SearchOptions) -> list[list[str]]:
        ids = suppressed_ids(
            options.suppressed_ids, start_id=self._start_id, pad_id=self._pad_id, eos_id=self._eos_id
        )
        return [self._named([i]) for i in ids]


class CTranslate2Engine:
    """Gives a `Translator` CTranslate2's search, on the CPU; see `CTranslate2Generator`.

    >>> translator = Translator(load_bundle("runs/demo"), engine=CTranslate2Engine())  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."])  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __call__(self, bundle: Bundle, own: StepwiseGenerator) -> CTranslate2Generator:
        """Return a generator, whose first search exports the model; see `ForeignEngine`.

        Raises:
            InputError: a precision that CTranslate2 does not have here, or "auto"; a model that is not on the
                CPU, an ensemble or a shortlist.
            MissingExtraError: ctranslate2 is not installed.
        """
        backends = own.backends
        assert isinstance(backends, Backends)  # a translator's own
        precision = backends.precision_choice
        if precision == "auto":
            raise InputError("engine='ctranslate2' tries no precisions out; give float32, bf16 or int8")
        for name, is_there in (
            ("an ensemble", len(backends.models) > 1),
            ("a shortlist", own.shortlist is not None),
        ):
            if is_there:
                raise InputError(f"engine='ctranslate2' cannot search with {name}; engine='auto' can")
        if backends.device != "cpu":
            raise InputError(f"engine='ctranslate2': computes on the CPU, not on {backends.device!r}")
        _check_precision(precision)
        load = _Loader(bundle, precision)
        return CTranslate2Generator(bundle, own, load, precision=precision, threads=num_threads())


class _Loader:
    """Loads the exported model once for each division of the threads."""

    def __init__(self, bundle: Bundle, precision: Precision) -> None:
        self._bundle = bundle
        self._precision: Precision = precision
        self._loaded: dict[int, Translator] = {}

    def __call__(self, parallel_batches: int, threads: int) -> "Translator":
        """Return the engine, with so many threads for each batch.

        Raises:
            InteropError: the model cannot be exported, or CTranslate2 cannot load it.
        """
        import ctranslate2

        if parallel_batches not in self._loaded:
            directory = cached_export(self._bundle, self._precision)
            try:
                self._loaded[parallel_batches] = ctranslate2.Translator(
                    str(directory),
                    compute_type=COMPUTE_TYPES[self._precision],
                    inter_threads=parallel_batches,
                    intra_threads=threads,
                )
            except RuntimeError as error:
                raise InteropError(
                    f"{directory}: CTranslate2 cannot load it ({error}); delete it and it is made anew"
                ) from error
        return self._loaded[parallel_batches]


def _check_precision(precision: Precision) -> None:
    try:
        from ctranslate2 import get_supported_compute_types
    except ImportError:
        raise MissingExtraError(
            f"engine='ctranslate2' needs ctranslate2: {install_hint('interop')}"
        ) from None
    known = get_supported_compute_types("cpu")
    if COMPUTE_TYPES[precision] not in known:
        here = ", ".join(name for name, type_ in COMPUTE_TYPES.items() if type_ in known)
        raise InputError(f"precision={precision!r}: CTranslate2 supports {here} on this CPU")
