"""Text in, text out: what turns a bundle into a translator."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Self

import torch

from heedful.bundle import Bundle, load_bundle, resolve_bundle
from heedful.decoding.computation import Computation, EngineChoice, Precision
from heedful.decoding.ensemble import check_ensemble
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.search import search
from heedful.errors import InputError
from heedful.text import Framing
from heedful.text.languages import choose_languages


@dataclass(frozen=True)
class TextHypothesis:
    """One output of a search, as text. The numbers are those of `Hypothesis`."""

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    finished: bool


@dataclass(frozen=True)
class Translation:
    """What came of one line.

    Attributes:
        source: the line.
        text: the best output.
        score: its score (log-probability over length penalty).
        hypotheses: the n-best list, best first, or the samples as they were drawn; empty for an empty line,
            whose text is empty and score 0.
    """

    source: str
    text: str
    score: float
    hypotheses: tuple[TextHypothesis, ...]


class Translator:
    """A trained model, ready to translate lines.

    >>> translator = Translator.load("runs/demo")  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."])  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        ensemble: Sequence[Bundle] = (),
        engine: EngineChoice = "auto",
    ) -> None:
        """Wrap a loaded bundle.

        Args:
            bundle: model and tokenizers; the model stays on the device where it is.
            precision: of the matrix products; "int8" only in the compiled engine.
            batch_tokens: source tokens of one batch, padding included; by default the bundle's.
            batch_size: sentences of one batch at most; by default the tokens alone decide.
            ensemble: more bundles, whose models translate with that of the first (see `EnsembleStep`); they
                have the same tokenizers, and are on the same device. The search is the first one's.
            engine: "compiled" (`engine.py`), which copies the weights when it is first used, "torch", or the
                compiled one where it can be used.

        Raises:
            InputError: a precision or an engine that does not exist, a budget below 1, or models that cannot
                translate together.
        """
        self.bundle = bundle
        self.precision = precision
        self.engine = engine
        self.batch_tokens = bundle.config.decode.batch_tokens if batch_tokens is None else batch_tokens
        self.batch_size = batch_size
        for name, size in (("batch_tokens", self.batch_tokens), ("batch_size", batch_size)):
            if size is not None and size < 1:
                raise InputError(f"{name}={size}: must be at least 1")
        self.ensemble = tuple(ensemble)
        check_ensemble([bundle, *ensemble])
        self._device = next(bundle.model.parameters()).device
        models = [each.model for each in (bundle, *ensemble)]
        self._computation = Computation(models, precision=precision, engine=engine)
        self._framing = Framing.of(bundle.config, bundle.tokenizers)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        precision: Precision = "float32",
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Self:
        """Load a bundle, or the best one of a run; for the languages, see `for_languages`.

        Raises:
            BundleError: nothing there, or a bundle that is damaged or too new.
            InputError: a language that the model does not have.
        """
        bundle = load_bundle(resolve_bundle(Path(path)))
        translator = cls(bundle, precision=precision, batch_tokens=batch_tokens)
        return translator.for_languages(src_lang=src_lang, tgt_lang=tgt_lang)

    def for_languages(self, *, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Return a translator of other languages with the same model, where it is one of many languages.

        Args:
            src_lang: the language to translate from, as the model's tag for it ("fra_Latn", "fr"); None keeps
                the bundle's.
            tgt_lang: the language to translate into.

        Raises:
            InputError: a language that the model does not have, with close ones named, or no choice at all.
        """
        first, *others = [
            replace(
                bundle,
                config=choose_languages(
                    bundle.config, bundle.tokenizers, src_lang=src_lang, tgt_lang=tgt_lang
                ),
            )
            for bundle in (self.bundle, *self.ensemble)
        ]
        return type(self)(
            first,
            precision=self.precision,
            batch_tokens=self.batch_tokens,
            batch_size=self.batch_size,
            ensemble=others,
            engine=self.engine,
        )

    def translate(self, texts: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """The best translation of each text; an empty one for an empty text. See `translations`."""
        return [translation.text for translation in self.translations(texts, options=options)]

    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> list[Translation]:
        """Translate texts, each by itself, in batches of similar length; the order is kept.

        Args:
            texts: one sentence or line each.
            options: the search; by default the bundle's.
            prefixes: for each text, what its translations begin with: whole words, or nothing.

        Raises:
            InputError: a text that is longer than learned positions allow, or a prefix that is longer than
                the translation may be.
        """
        if prefixes is not None and len(prefixes) != len(texts):
            raise InputError(f"prefixes: {len(prefixes):,} for {len(texts):,} texts; give one for each")
        return self._translate_chunk(texts, options=options, prefixes=prefixes, first_line=1)

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        options: SearchOptions | None = None,
        prefixes: Iterable[str] | None = None,
        chunk_lines: int = 1024,
    ) -> Iterator[Translation]:
        r"""Translate a stream, in order, holding no more than `chunk_lines` lines at a time.

        Nothing comes out before `chunk_lines` lines, or the end, have come in: with 1, each line is answered
        before the next is read, as somebody at a terminal expects; with more, batches are fuller.

        Args:
            lines: as a file yields them; a final newline does not belong to the line.
            options: the search; by default the bundle's.
            prefixes: for each line, what its translations begin with; see `translations`.
            chunk_lines: how many lines to read before translating them.

        Raises:
            InputError: a line that is longer than learned positions allow, one without a prefix, or one whose
                prefix is too long; those of earlier chunks came out.
        """
        if chunk_lines < 1:
            raise InputError(f"chunk_lines={chunk_lines}: must be at least 1")
        stripped, beginnings = map(_without_line_ends, (lines, prefixes or ()))
        first_line = 1
        while chunk := list(islice(stripped, chunk_lines)):
            given = None if prefixes is None else list(islice(beginnings, len(chunk)))
            if given is not None and len(given) < len(chunk):
                raise InputError(f"line {first_line + len(given):,}: has no prefix; give one for each line")
            yield from self._translate_chunk(chunk, options=options, prefixes=given, first_line=first_line)
            first_line += len(chunk)

    def _translate_chunk(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None,
        prefixes: Sequence[str] | None,
        first_line: int,
    ) -> list[Translation]:
        if isinstance(texts, str):
            raise InputError("texts: one string given; give a list of strings, as in translate([text])")
        options = options or SearchOptions.from_config(self.bundle.config.decode)
        if self._framing.tgt_prefix:
            options = replace(options, forced_first_id=self._framing.tgt_prefix[0])
        encoded = self.bundle.tokenizers.src.encode_batch(texts)
        sources = [
            self._framing.source(ids) if ids and text.strip() else []
            for ids, text in zip(encoded, texts, strict=True)
        ]
        self._check_lengths(sources, first_line)
        limits = [self._max_length(ids, options) for ids in sources]
        begun = self.bundle.tokenizers.tgt.encode_batch(prefixes) if prefixes else [[] for _ in texts]
        _check_prefixes(begun, limits, options, first_line)
        found = self.search_ids(sources, options=options, prefixes=begun)
        return [self._translation(text, each) for text, each in zip(texts, found, strict=True)]

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search the outputs of sources given as ids, in batches of similar length; the order is kept.

        Args:
            sources: as the encoder reads them, with what `Framing` puts around a text; an empty one has no
                output.
            options: the search.
            prefixes: for each source the ids that its outputs begin with.
        """
        lengths = [len(ids) for ids in sources]
        limits = [self._max_length(ids, options) for ids in sources]
        begun = prefixes or [()] * len(sources)
        share = math.ceil(
            len(sources) / self._computation.batches_at_once
        )  # or else threads would stand idle
        size = min(self.batch_size or share, share)
        batches = plan_batches(lengths, tokens=self.batch_tokens, size=size)

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search(
                [sources[i] for i in batch], [limits[i] for i in batch], [begun[i] for i in batch], options
            )

        found: dict[int, list[Hypothesis]] = {}
        for batch, results in zip(batches, self._each(search_batch, batches), strict=True):
            found.update(zip(batch, results, strict=True))
        return [found.get(i, []) for i in range(len(sources))]

    def _each(
        self, search_batch: Callable[[list[int]], list[list[Hypothesis]]], batches: list[list[int]]
    ) -> Iterator[list[list[Hypothesis]]]:
        """Search batches, several at a time where each needs one thread."""
        at_once = min(self._computation.batches_at_once, len(batches))
        if at_once < 2:
            yield from map(search_batch, batches)
            return
        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(search_batch, batches)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._device

    @property
    def engine_in_use(self) -> str:
        """What computes: "compiled" or "torch"."""
        return self._computation.engine_in_use

    def _check_lengths(self, sources: Sequence[Sequence[int]], first_line: int) -> None:
        limit = self._position_limit
        for line, ids in enumerate(sources, start=first_line):
            if limit is not None and len(ids) > limit:
                raise InputError(
                    f"line {line:,}: {len(ids):,} pieces, but this model's learned positions end at "
                    f"{limit:,}; split the line"
                )

    @property
    def _position_limit(self) -> int | None:
        configs = [bundle.model.config for bundle in (self.bundle, *self.ensemble)]
        return min((each.max_positions for each in configs if each.positions == "learned"), default=None)

    def _max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """Section 6.1 limits an output to the length of its input + 50."""
        caps = [cap for cap in (options.max_length, self._position_limit) if cap is not None]
        return min([len(source) + options.max_length_offset, *caps])

    def _search(
        self,
        sources: Sequence[Sequence[int]],
        max_lengths: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        options: SearchOptions,
    ) -> list[list[Hypothesis]]:
        """Search one batch."""
        tokenizer = self.bundle.tokenizers.tgt
        with self._computation.step(sources) as step:
            return search(
                step,
                max_lengths=max_lengths,
                start_id=self._framing.start_id,
                eos_id=tokenizer.eos_id,
                pad_id=tokenizer.pad_id,
                options=options,
                sources=sources,
                prefixes=prefixes,
            )

    def _translation(self, source: str, found: Sequence[Hypothesis]) -> Translation:
        hypotheses = tuple(
            TextHypothesis(
                text=_one_line(self.bundle.tokenizers.tgt.decode(hypothesis.ids)),
                score=hypothesis.score,
                log_prob=hypothesis.log_prob,
                ids=hypothesis.ids,
                token_log_probs=hypothesis.token_log_probs,
                finished=hypothesis.finished,
            )
            for hypothesis in found
        )
        if not hypotheses:
            return Translation(source, "", 0.0, ())
        return Translation(source, hypotheses[0].text, hypotheses[0].score, hypotheses)


def _without_line_ends(lines: Iterable[str]) -> Iterator[str]:
    return (line.removesuffix("\n").removesuffix("\r") for line in lines)


def _check_prefixes(
    prefixes: Sequence[Sequence[int]], limits: Sequence[int], options: SearchOptions, first_line: int
) -> None:
    num_before = 0 if options.forced_first_id is None else 1
    for line, (prefix, limit) in enumerate(zip(prefixes, limits, strict=True), start=first_line):
        if prefix and num_before + len(prefix) > limit:
            raise InputError(
                f"line {line:,}: a prefix of {len(prefix):,} pieces, but the translation may have "
                f"{limit - num_before:,}; shorten it, or raise max_length_offset and max_length"
            )


def _one_line(text: str) -> str:
    """Byte pieces can spell line ends, which would break the count of lines."""
    return text.replace("\r", " ").replace("\n", " ")


def plan_batches(lengths: Sequence[int], *, tokens: int, size: int | None = None) -> list[list[int]]:
    """Group indices by length, longest first, so that rows x longest <= tokens; a longer one goes alone.

    No group has more than `size`, where that is given.

    Lengths of 0 are left out: they need no search.

    >>> plan_batches([3, 0, 7, 3, 2], tokens=6)
    [[2], [0, 3], [4]]
    """
    batches: list[list[int]] = []
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: (-lengths[i], i))
    for i in order:
        latest = batches[-1] if batches else []
        if latest and (len(latest) + 1) * lengths[latest[0]] <= tokens and len(latest) != size:
            latest.append(i)
        else:
            batches.append([i])
    return batches
