"""Text in, text out: a bundle as a translator of lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, Unpack, get_args

from heedful.decoding.aligner import Aligner
from heedful.decoding.alignment import (
    BY_ATTENTION,
    Alignment,
    AlignmentMethod,
    Span,
    SplitWords,
    align_words,
    relative_weights,
    words_between_spaces,
    words_of_tokens,
)
from heedful.decoding.backends.choice import choose_backend
from heedful.decoding.backends.protocol import Backend
from heedful.decoding.generator import Generator
from heedful.decoding.glossary import word_spans
from heedful.decoding.models import Adapters, check_ensemble, check_unchanged, chosen_adapters
from heedful.decoding.options import SearchOptions, SearchSettings, search_options
from heedful.decoding.placement import needs_placement, put_in_place
from heedful.decoding.scoring import ScoredOutput
from heedful.decoding.shortlist import Shortlist, check_shortlist
from heedful.decoding.task import Hypothesis, Source
from heedful.decoding.texts import (
    EncodedLines,
    Target,
    TextCodec,
    check_one_for_each,
    checked_ids,
    chunks,
    with_adapters,
    without_line_ends,
)
from heedful.decoding.translation import ScoredText, Translation, warn_of_improbable_terms
from heedful.errors import InputError
from heedful.settings.arguments import checked
from heedful.settings.options import PAIR_TOKENS, AtLeastOne, EngineChoice, PrecisionChoice
from heedful.storage.adapter import Adapter, read_adapter
from heedful.storage.bundle import Bundle, load_bundle


class Translator:
    """A trained model, ready to translate lines.

    >>> translator = Translator.load("runs/demo")
    >>> translator.translate(["The house is small."])
    ['Das Haus ist klein.']

    Attributes:
        bundle: the model and its tokenizers.
        ensemble: the bundles of further models in an ensemble.
        codec: converts between texts and ids.
        generator: searches and scores outputs as ids.
        adapters: the adapters that texts may name; some may be added or removed at any time.
        adapter: the name of the adapter of texts that name none; None: they have none.
    """

    @checked
    def __init__(
        self,
        bundle: Bundle | str | Path,
        *,
        precision: PrecisionChoice = "float32",
        batch_tokens: AtLeastOne | None = None,
        batch_size: AtLeastOne | None = None,
        ensemble: Sequence[Bundle] = (),
        engine: EngineChoice | Backend = "auto",
        shortlist: Shortlist | None = None,
    ) -> None:
        """Wrap a bundle.

        Args:
            bundle: model and tokenizers, or their path, as for `load`; a loaded model stays on its device.
            precision: the precision of matrix multiplications: "float32", "bf16", "int8" (native engine only)
                or "fp16" (torch only, for GPUs). "auto" is the fastest one for this class of CPU that costs
                hardly any quality: see `choose_backend`.
            batch_tokens: the maximum number of source tokens in a batch, padding included; None: the
                bundle's. If targets are given, a pair has the length max(src_len, tgt_len).
            batch_size: the maximum number of sentences in a batch; None: no limit but `batch_tokens`.
            ensemble: the bundles of further models; the probabilities of all models are averaged (see
                `EnsembleStep`). They need the same tokenizers and device. The first bundle's search is used.
            engine: "native" (`engine.py`), which copies the weights, "torch", or "auto": native if it
                supports the model. Or your own backend.
            shortlist: restricts the output vocabulary per sentence, and renormalises over it.

        Raises:
            InputError: a precision or an engine that does not exist or cannot compute the model here, a batch
                size below 1, models that cannot be an ensemble, or another model's shortlist.
            MissingExtraError: torch is needed and not installed.
        """
        bundle = load_bundle(bundle) if isinstance(bundle, str | Path) else bundle
        if ensemble:
            check_ensemble([bundle, *ensemble])
        if shortlist is not None:
            check_shortlist(shortlist, bundle)
        self.bundle, self.ensemble = bundle, tuple(ensemble)
        networks = [each.network for each in (bundle, *ensemble)]
        configs = [each.config for each in networks]
        self._src_vocab_size = min(each.src_vocab_size for each in configs)
        self.codec = TextCodec.of(bundle, ensemble)
        special_tokens, tgt = self.codec.special_tokens, bundle.tokenizers.tgt
        if isinstance(engine, str):
            engine = choose_backend(networks, precision=precision, engine=engine)
        self.generator = Generator(
            backend=engine,
            start_id=special_tokens.start_id,
            eos_id=tgt.eos_id,
            pad_id=tgt.pad_id,
            vocab_size=configs[0].tgt_vocab_size,
            batch_tokens=bundle.config.decode.batch_tokens if batch_tokens is None else batch_tokens,
            batch_size=batch_size,
            shortlist=shortlist,
        )
        self.adapters: dict[str, Adapter] = {}
        self.adapter: str | None = None
        is_copy = engine.name == "native"
        self._versions = [each.weight_versions for each in (bundle, *ensemble)] if is_copy else None

    def __reduce__(self) -> tuple[object, ...]:
        """Load the model again in another process, from its path unless it is in memory alone."""
        backend = self.generator.backend
        engine: Any = backend.name if backend.name in get_args(EngineChoice) else backend
        again = partial(
            type(self),
            precision=backend.precision,
            batch_tokens=self.generator.batch_tokens,
            batch_size=self.generator.batch_size,
            ensemble=self.ensemble,
            engine=engine,
            shortlist=self.generator.shortlist,
        )
        return again, (self.bundle,), {"adapters": self.adapters, "adapter": self.adapter}

    def __repr__(self) -> str:
        return f"Translator({self.bundle!r}, {self.engine_in_use} engine, {self.precision_in_use})"

    @classmethod
    @checked
    def load(
        cls,
        path: str | Path,
        *,
        precision: PrecisionChoice = "float32",
        batch_tokens: AtLeastOne | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        adapters: Mapping[str, str | Path] = MappingProxyType({}),
    ) -> Self:
        """Load a bundle, or the best one of a run; for the languages, see `for_languages`.

        For an engine, a shortlist or an ensemble: `Translator(path, engine=...)`.

        `adapters` has runs that were fine-tuned from this model with LoRA (or their adapter.safetensors), by
        the names that texts choose them by.

        Raises:
            BundleError: nothing there, or a bundle or an adapter that is damaged, too new or of another base.
            InputError: a language that the model does not have.
        """
        translator = cls(path, precision=precision, batch_tokens=batch_tokens)
        translator.adapters |= {
            name: read_adapter(Path(own), translator.bundle) for name, own in adapters.items()
        }
        return translator.for_languages(src_lang=src_lang, tgt_lang=tgt_lang)

    @checked
    def for_languages(self, *, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Return a translator for other languages of a multilingual model; both share the packed weights.

        Args:
            src_lang: the language to translate from, as the model's tag for it ("fra_Latn", "fr"); None keeps
                the bundle's.
            tgt_lang: the language to translate into.

        Raises:
            InputError: a language that the model does not have (the message names close ones), or a model
                without a choice of languages.
        """
        self._check_weights()
        if src_lang is None and tgt_lang is None:
            return self
        first, *others = (
            bundle.for_languages(src_lang=src_lang, tgt_lang=tgt_lang)
            for bundle in (self.bundle, *self.ensemble)
        )
        return self._copy(first, others)

    @checked
    def with_adapter(self, adapter: str | None) -> Self:
        """Return a translator whose texts have this adapter unless they name one; both share the weights."""
        self._adapters_of(adapter, [""])
        copy = self._copy(self.bundle, self.ensemble)
        copy.adapter = adapter
        return copy

    def _copy(self, bundle: Bundle, ensemble: Sequence[Bundle]) -> Self:
        """Return a translator with the same packed weights and adapters."""
        copy = type(self)(
            bundle,
            ensemble=ensemble,
            engine=self.generator.backend,
            batch_tokens=self.generator.batch_tokens,
            batch_size=self.generator.batch_size,
            shortlist=self.generator.shortlist,
        )
        copy.adapters, copy.adapter = self.adapters, self.adapter
        return copy

    def translate(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        adapter: Adapters = None,
        **search: Unpack[SearchSettings],
    ) -> list[str]:
        """Return the best translation of each text; an empty text stays empty. See `translations`.

        >>> translator.translate(["The house is small."], beam_size=1)
        ['Das Haus ist klein.']
        """
        return [each.text for each in self.translations(texts, options=options, adapter=adapter, **search)]

    @checked
    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        prefixes: Sequence[str] | None = None,
        first_line: int = 1,
        aligned: bool | Sequence[bool] = False,
        split: Callable[[str], list[Span]] = words_between_spaces,
        adapter: Adapters = None,
        **search: Unpack[SearchSettings],
    ) -> list[Translation]:
        """Translate texts, each by itself, in batches of similar length; the order is kept.

        Lines of a text are translated one by one, and a text with more tokens than
        `options.max_source_tokens` in segments, with a warning in the log: see `Translation.joined`. The
        first segment has the prefix.

        Args:
            texts: sentences or lines: a list, a generator, or a column of a table.
            options: the search; None: the bundle's.
            prefixes: for each text, the beginning of its translations: whole words, or "".
            first_line: the number of the first text, for messages.
            aligned: whether to align the words of each hypothesis with the words of the text, like `align`;
                for all texts, or for each.
            split: returns the words of a text to align, as spans of characters; by default, words between
                spaces.
            adapter: the name of an adapter (see `load`) for all texts, or for each; None: `self.adapter`.
                Texts with different adapters share batches, which changes nothing in their translations.
            search: changes of the options: fields of `SearchOptions` and settings of strategies, such as
                beam_size=1, n_best=4, glossary=..., or sample=True, temperature=0.7.

        Raises:
            InputError: an option that does not exist or has an invalid value, a prefix longer than the
                translation may be, no attention to align by, or an adapter that is not there.
        """
        self._check_weights()
        adapters = self._adapters_of(adapter, texts)
        if options is None and search:
            options = search_options(search, self.bundle.config.decode)
        elif options is not None and search:
            options = replace(options, **dict[str, Any](search))
        options = self.codec.resolved(options)
        lines = self.codec.encode(texts, prefixes, options, first_line=first_line).adapted(adapters)
        wanted = [aligned] * len(texts) if isinstance(aligned, bool) else aligned
        found = self._searched(lines, options, wanted, split)
        if options.glossary is not None and self.can_align:
            for number, translation in self._with_terms_in_place(found, lines, options).items():
                found[number] = translation
                if wanted[number]:
                    pair = [translation.source], [translation.text]
                    [alignment] = self.align(*pair, split=split, adapter=adapters[number])
                    best, *others = translation.hypotheses
                    best = replace(best, alignment=alignment)
                    found[number] = replace(translation, hypotheses=(best, *others))
        warn_of_improbable_terms(found)
        return found

    def _searched(
        self, lines: EncodedLines, options: SearchOptions, aligned: Sequence[bool], split: SplitWords
    ) -> list[Translation]:
        """Return what a search finds for lines, with the terms that their sources must have."""
        return self.codec.decode(
            lines,
            self.generator.search(lines.sources, options),
            options,
            attention_of=self.generator.attention,
            aligned=aligned,
            aligner=self._aligner if any(aligned) else None,
            split=split,
        )

    def _with_terms_in_place(
        self, found: Sequence[Translation], lines: EncodedLines, options: SearchOptions
    ) -> dict[int, Translation]:
        """Return what is better than a search with improbable terms, by the number of the line.

        It is the translation without terms, and these put in place. A line with a prefix, or of several
        segments, has none.
        """
        assert options.glossary is not None
        doubtful = [number for number, translation in enumerate(found) if needs_placement(translation)]
        doubtful, without = lines.without_terms(doubtful)
        free = self._searched(without, replace(options, n_best=1), [True] * len(doubtful), word_spans)
        edited = [put_in_place(translation, options.glossary) for translation in free]
        placed = {number: new for number, new in zip(doubtful, edited, strict=True) if new is not None}
        sources, texts = [found[number].source for number in placed], [new.text for new in placed.values()]
        adapters = {i: source.adapter for i, source in zip(doubtful, without.sources, strict=True)}
        scored = self.score(sources, texts, options=options, adapter=[adapters[i] for i in placed])
        return {
            number: found[number].led_by(best, new.terms)
            for (number, new), best in zip(placed.items(), scored, strict=True)
        }

    @checked
    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        options: SearchOptions | None = None,
        prefixes: Iterable[str] | None = None,
        chunk_lines: AtLeastOne = 1024,
        first_line: int = 1,
        aligned: bool = False,
        **search: Unpack[SearchSettings],
    ) -> Iterator[Translation]:
        r"""Translate a stream in order; at most `chunk_lines` lines are in memory.

        A chunk is read before it is translated. With 1, each line is translated before the next one is read,
        for interactive input; with more, batches are fuller.

        Args:
            lines: lines with or without their newline.
            options: the search; None: the bundle's.
            prefixes: for each line, the beginning of its translations; see `translations`.
            chunk_lines: the number of lines to read before they are translated.
            first_line: the number of the first line, for messages.
            aligned: whether to align words; see `translations`.
            search: changes of the options; see `translations`.

        Raises:
            InputError: a line without a prefix, or with one that is too long; earlier chunks were yielded.
        """
        of_lines = chunks(without_line_ends(lines), prefixes, chunk_lines, first_line=first_line)
        for number, chunk, prefixes_of_chunk in of_lines:
            yield from self.translations(
                chunk,
                options=options,
                prefixes=prefixes_of_chunk,
                first_line=number,
                aligned=aligned,
                **search,
            )

    @checked
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[Target],
        *,
        options: SearchOptions | None = None,
        prefixes: Sequence[str] | None = None,
        first_line: int = 1,
        adapter: Adapters = None,
    ) -> list[ScoredText]:
        """Score given translations: the log-probability of each token, and of each text, and its score.

        Scores are as in a search with the same options: a forced token has log-probability 0, a
        suppressed one -inf, and probabilities are renormalised if the options say so; see `score_outputs`.
        The tokenizer splits each text; if a search wrote it with other tokens, give the ids. Two empty texts
        score 0 and have no tokens; one empty text is scored normally. If a text is longer than
        `options.max_source_tokens` or the learned positions, the numbers of the pair are NaN, it has no
        tokens, and the log has a warning.

        Args:
            sources: sentences or lines.
            targets: for each source its translation: the text, or the ids that the decoder writes, with the
                end token unless the output is truncated.
            options: the search; None: the bundle's.
            prefixes: for each source, the prefix of the search.
            first_line: the number of the first pair, for messages.
            adapter: as for `translations`.

        Returns:
            For each pair the target, on one line, with its numbers.

        Raises:
            InputError: unequal numbers of texts, or ids that no output has.
        """
        self._check_weights()
        options, tgt = self.codec.resolved(options, least=PAIR_TOKENS), self.bundle.tokenizers.tgt
        read, written, left_out = self.codec.pairs(
            sources, targets, options, prefixes=prefixes, first_line=first_line
        )
        scored = self.generator.score(
            with_adapters(read, self._adapters_of(adapter, sources)), written, options
        )
        texts = [each if isinstance(each, str) else tgt.decode([*each]) for each in targets]
        return [
            ScoredText.unknown(text)
            if i in left_out
            else self.codec.confident(ScoredText.of(each, text, eos_id=tgt.eos_id))
            for i, (each, text) in enumerate(zip(scored, texts, strict=True))
        ]

    @checked
    def score_lines(
        self,
        pairs: Iterable[tuple[str, Target]],
        *,
        options: SearchOptions | None = None,
        prefixes: Iterable[str] | None = None,
        chunk_lines: AtLeastOne = 1024,
    ) -> Iterator[ScoredText]:
        """Score a stream of sources and targets in order, with at most `chunk_lines` in memory; see `score`.

        Raises:
            InputError: a line without a prefix; earlier chunks were yielded.
        """
        for first_line, chunk, prefixes_of_chunk in chunks(iter(pairs), prefixes, chunk_lines):
            sources, targets = zip(*chunk, strict=True)
            yield from self.score(
                sources, targets, options=options, prefixes=prefixes_of_chunk, first_line=first_line
            )

    @checked
    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        method: AlignmentMethod | None = None,
        split: Callable[[str], list[Span]] = words_between_spaces,
        max_source_tokens: int | None = None,
        first_line: int = 1,
        adapter: Adapters = None,
    ) -> list[Alignment]:
        """Align the words of given translations by the bundle's aligner, or by the model's cross-attention.

        See `aligner.py` and `alignment.py`. By attention that was not trained to align, every target word has
        at least one link. A pair with an empty text has no links. A pair that is too long has none either,
        and the log names it.

        Args:
            sources: sentences or lines.
            targets: their translations.
            method: the attention to read; None: use the aligner, or BY_ATTENTION if the bundle has none.
            split: returns the words of a text, as spans of characters; by default, words between spaces.
            max_source_tokens: the maximum length of a source or a target, special tokens included; None: no
                limit for the aligner, and the limit of `score` for attention.
            first_line: the number of the first pair, for messages.
            adapter: as for `translations`.

        Raises:
            InputError: unequal numbers of texts, or a layer that the decoder does not have.
        """
        codec, src, tgt = self.codec, self.bundle.tokenizers.src, self.bundle.tokenizers.tgt
        aligner = self._aligner if method is None else None
        options = replace(codec.default, max_source_tokens=max_source_tokens)
        if aligner is None:
            options = codec.resolved(options, least=PAIR_TOKENS)
        else:  # positions do not limit it
            codec = replace(codec, position_limit=None)
        read, written, left_out = codec.pairs(sources, targets, options, first_line=first_line)
        both = zip(sources, targets, strict=True)
        pairs = [i for i, texts in enumerate(both) if i not in left_out and all(map(str.strip, texts))]
        alignments = [Alignment(())] * len(sources)
        words = {
            i: [words_of_tokens(src, sources[i], split=split), words_of_tokens(tgt, targets[i], split=split)]
            for i in pairs
        }
        if aligner is not None:
            for i in pairs:
                alignments[i] = aligner.align_words(src.encode(sources[i]), tgt.encode(targets[i]), *words[i])
            return alignments
        method, column = method or BY_ATTENTION, len(codec.special_tokens.src_prefix)
        least = codec.least_weight if method == BY_ATTENTION else 0.0
        adapted = with_adapters(read, self._adapters_of(adapter, sources))
        weights = self.generator.attention(
            [adapted[i] for i in pairs], [written[i] for i in pairs], layer=method.layer
        )
        for i, weights_TS in zip(pairs, weights, strict=True):
            src_words, tgt_words = words[i]
            # A token's own step is the one that predicts it; the end token is predicted last.
            last = len(written[i]) - len(codec.special_tokens.tgt_suffix) + method.shift
            own_TS = relative_weights(weights_TS[:, column : column + len(src_words)], least=least)
            alignments[i] = align_words(own_TS[last - len(tgt_words) : last], src_words, tgt_words)
        return alignments

    def _adapters_of(self, adapter: Adapters, texts: Sequence[str]) -> list[Adapter | None]:
        chosen = self.adapter if adapter is None else adapter
        engine = None if self.generator.backend.has_adapters else self.engine_in_use
        return chosen_adapters(chosen, texts, self.adapters, engine=engine, ensemble=self.ensemble)

    def _check_weights(self) -> None:
        if self._versions is not None:
            check_unchanged((self.bundle, *self.ensemble), self._versions)

    @property
    def can_align(self) -> bool:
        """Whether words can be aligned: the bundle has an aligner, or the engine records attention."""
        return self.generator.backend.records_attention or self._aligner is not None

    @cached_property
    def _aligner(self) -> Aligner | None:
        return Aligner.load(self.bundle)

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search the outputs of sources given as ids, in batches like texts.

        Args:
            sources: the ids that the encoder reads, special tokens included; an empty source has no output.
            options: the search.
            prefixes: for each source, the ids at the beginning of its outputs.

        Raises:
            InputError: a sentence with an id that the model does not have, or with more ids than the model
                has positions; the message names the first one.
        """
        return self.generator.search(self._checked_sources(sources, prefixes, options), options)

    def score_ids(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """Score outputs given as ids: see `Generator.score`, and `search_ids` for errors."""
        read = self._checked_sources(sources, prefixes, options)
        check_one_for_each("outputs", outputs, "sources", sources)
        limit, size = self.codec.position_limit, self.generator.vocab_size
        written = checked_ids("outputs", outputs, vocab_size=size, longest=limit)
        for number, (source, output) in enumerate(zip(read, written, strict=True), start=1):
            if bool(source.ids) != bool(output):
                raise InputError(
                    f"sentence {number:,}: a source without an output, or the reverse; an empty text is the "
                    "end token alone"
                )
        return self.generator.score(read, written, options)

    def _checked_sources(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None,
        options: SearchOptions,
    ) -> list[Source]:
        check_one_for_each("prefixes", prefixes, "sources", sources)
        longest = self.codec.position_limit
        read = checked_ids("sources", sources, vocab_size=self._src_vocab_size, longest=longest)
        prefix_ids = checked_ids(
            "prefixes", prefixes or [()] * len(read), vocab_size=self.generator.vocab_size
        )
        return [
            Source.of(ids, options, prefix=prefix, longest=longest)
            for ids, prefix in zip(read, prefix_ids, strict=True)
        ]

    @property
    def default_options(self) -> SearchOptions:
        """The bundle's own search, used if no options are given."""
        return self.codec.default

    @property
    def batch_tokens(self) -> int:
        """The maximum number of source tokens in a batch."""
        return self.generator.batch_tokens

    @property
    def device(self) -> str:
        """The kind of device that computes: "cpu" or "cuda"."""
        return self.generator.backend.device

    @property
    def engine_in_use(self) -> str:
        """The engine: "native", "torch" or the name of your own backend."""
        return self.generator.backend.name

    @property
    def precision_in_use(self) -> str:
        """The precision of matrix multiplications: "float32", "bf16", "fp16" or "int8"."""
        return self.generator.backend.precision
