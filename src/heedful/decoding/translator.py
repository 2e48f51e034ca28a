"""Text in, text out: what turns a bundle into a translator."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

from heedful.decoding.alignment import PENULTIMATE, Alignment, AlignmentMethod, Span, words_between_spaces
from heedful.decoding.backends.choice import Backends, EngineChoice, PrecisionChoice
from heedful.decoding.generator import ForeignEngine, StepwiseGenerator
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.inputs import Ids, Target, check_one_for_each, checked_ids, chunks, without_line_ends
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import ScoredOutput
from heedful.decoding.shortlist import Shortlist, check_shortlist
from heedful.decoding.steps import check_ensemble
from heedful.decoding.text_generator import TextGenerator
from heedful.decoding.translation import ScoredText, Translation
from heedful.errors import InputError
from heedful.storage.bundle import Bundle, load_bundle, resolve_bundle
from heedful.text import SpecialTokens
from heedful.text.pair import choose_languages


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
        precision: PrecisionChoice = "float32",
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        ensemble: Sequence[Bundle] = (),
        engine: EngineChoice | ForeignEngine = "auto",
        shortlist: Shortlist | None = None,
    ) -> None:
        """Wrap a loaded bundle.

        Args:
            bundle: model and tokenizers; the model stays on the device where it is.
            precision: of matrix multiplications; "int8" only in the native engine, "fp16" only in torch,
                for GPUs. "auto" is the fastest of the others that cost hardly any quality, tried out when
                the model is first used: `fastest_precision.py`.
            batch_tokens: source tokens of one batch, padding included; by default the bundle's. Where targets
                are given, lengths are max(src_len, tgt_len).
            batch_size: sentences of one batch at most; by default the tokens alone decide.
            ensemble: more bundles, whose models translate with that of the first (see `EnsembleStep`); they
                have the same tokenizers, and are on the same device. The search is the first one's.
            engine: "native" (`engine.py`), which copies the weights when it is first used, "torch", or the
                native one where it can be used; or another system's, such as `CTranslate2Engine`.
            shortlist: of the model, which leaves each sentence a few target tokens; log-probabilities and
                scores are then those of a model that knows no others.

        Raises:
            InputError: a precision or an engine that does not exist, a budget below 1, models that cannot
                translate together, or another model's shortlist.
        """
        self.precision = precision
        self.engine = engine
        self.batch_tokens = bundle.config.decode.batch_tokens if batch_tokens is None else batch_tokens
        self.batch_size = batch_size
        for name, size in (("batch_tokens", self.batch_tokens), ("batch_size", batch_size)):
            if size is not None and size < 1:
                raise InputError(f"{name}={size}: must be at least 1")
        self.shortlist = shortlist
        self._backends = Backends(
            [each.network for each in (bundle, *ensemble)],
            precision=precision,
            engine=engine if isinstance(engine, str) else "auto",
        )
        self._use(bundle, ensemble)

    def _use(self, bundle: Bundle, ensemble: Sequence[Bundle]) -> None:
        """Set the bundles, whose languages may have changed; the backends keep their packed weights."""
        self.bundle, self.ensemble = bundle, tuple(ensemble)
        check_ensemble([bundle, *ensemble])
        check_shortlist(self.shortlist, bundle)
        framing = SpecialTokens.of(bundle.config, bundle.tokenizers)
        generator = StepwiseGenerator(
            self._backends,
            framing,
            bundle.tokenizers,
            batch_tokens=self.batch_tokens,
            batch_size=self.batch_size,
            shortlist=self.shortlist,
        )
        self._texts = TextGenerator(
            generator if isinstance(self.engine, str) else self.engine(bundle, generator),
            framing,
            bundle.tokenizers,
            SearchOptions.from_config(bundle.config.decode),
            trained_length=bundle.config.data.max_length,
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        precision: PrecisionChoice = "float32",
        batch_tokens: int | None = None,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> Self:
        """Load a bundle, or the best one of a run; for the languages, see `for_languages`.

        For an engine, a shortlist or an ensemble: `Translator(load_bundle(path), engine=...)`.

        Raises:
            BundleError: nothing there, or a bundle that is damaged or too new.
            InputError: a language that the model does not have.
        """
        bundle = load_bundle(resolve_bundle(Path(path)))
        translator = cls(bundle, precision=precision, batch_tokens=batch_tokens)
        return translator.for_languages(src_lang=src_lang, tgt_lang=tgt_lang)

    def for_languages(self, *, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Return a translator of other languages with the same model, where it is one of many languages.

        Both compute with the same weights, packed once.

        Args:
            src_lang: the language to translate from, as the model's tag for it ("fra_Latn", "fr"); None keeps
                the bundle's.
            tgt_lang: the language to translate into.

        Raises:
            InputError: a language that the model does not have, with close ones named, or no choice at all.
        """

        def chosen(bundle: Bundle) -> Bundle:
            config, tokenizers = bundle.config, bundle.tokenizers
            return replace(
                bundle, config=choose_languages(config, tokenizers, src_lang=src_lang, tgt_lang=tgt_lang)
            )

        first, *others = map(chosen, (self.bundle, *self.ensemble))
        translator = copy(self)
        translator._use(first, others)
        return translator

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

        A text of more tokens than `options.max_source_tokens` is translated in segments, and the log says so:
        see `Translation.joined`. The prefix is then that of the first segment.

        Args:
            texts: one sentence or line each.
            options: the search; by default the bundle's.
            prefixes: for each text, what its translations begin with: whole words, or nothing.

        Raises:
            InputError: a prefix that is longer than the translation may be.
        """
        return self._texts.translations(texts, options=options, prefixes=prefixes)

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
            InputError: a line without a prefix, or one whose prefix is too long; those of earlier chunks came
                out.
        """
        for first_line, chunk, prefixes_of_chunk in chunks(without_line_ends(lines), prefixes, chunk_lines):
            yield from self._texts.translations(
                chunk, options=options, prefixes=prefixes_of_chunk, first_line=first_line
            )

    def alternatives(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str],
        count: int,
        options: SearchOptions | None = None,
    ) -> list[Translation]:
        """Translate each text in `count` ways that part right after its prefix.

        They begin with the prefix and the `count` most probable tokens after it, and each is searched on for
        its best output; CTranslate2 calls that `return_alternatives`.

        Args:
            texts: one sentence or line each.
            prefixes: for each text, whole words or nothing.
            count: of ways, at least 1.
            options: how to search on; by default as the bundle does.

        Returns:
            Translations whose hypotheses are the ways, that with the most probable token first.

        Raises:
            InputError: as `translations` does.
        """
        return self._texts.alternatives(texts, prefixes=prefixes, count=count, options=options)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[Target],
        *,
        options: SearchOptions | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> list[ScoredText]:
        """Score given translations: the log-probability of each token, and of each text, and its score.

        They are what a search says of the same tokens: the same options decide what is forced (with
        log-probability 0), ruled out (-inf) or renormalised; see `score_outputs`. A text is tokenised
        by the target's tokenizer; a search may have written it in other tokens, which only ids say. Where
        both texts are empty, the score is 0, as that of a translation of nothing, and there are no tokens;
        where one is, the model is asked as ever.

        Args:
            sources: one sentence or line each.
            targets: the translation of each: its text, or the ids that the decoder writes, with the end token
                unless the output is truncated.
            options: of the search; by default the bundle's.
            prefixes: for each source, what the search had to begin with.

        Returns:
            For each pair the target, on one line, with its numbers.

        Raises:
            InputError: unequal numbers of texts, ids that no output has, or a text that is longer than
                `options.max_source_tokens` or learned positions allow.
        """
        return self._texts.scores(sources, targets, options=options, prefixes=prefixes)

    def score_lines(
        self,
        pairs: Iterable[tuple[str, Target]],
        *,
        options: SearchOptions | None = None,
        prefixes: Iterable[str] | None = None,
        chunk_lines: int = 1024,
    ) -> Iterator[ScoredText]:
        """Score a stream of sources and targets, in order, holding `chunk_lines` pairs at most; see `score`.

        Raises:
            InputError: a line that is longer than learned positions allow, or one without a prefix; those of
                earlier chunks came out.
        """
        for first_line, chunk, prefixes_of_chunk in chunks(iter(pairs), prefixes, chunk_lines):
            sources, targets = zip(*chunk, strict=True)
            yield from self._texts.scores(
                sources, targets, options=options, prefixes=prefixes_of_chunk, first_line=first_line
            )

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        method: AlignmentMethod = PENULTIMATE,
        split: Callable[[str], list[Span]] = words_between_spaces,
        first_line: int = 1,
    ) -> list[Alignment]:
        """Align the words of given translations by the cross-attention of the model (see `alignment.py`).

        Every target word gets at least one link; a pair with an empty text has none.

        Args:
            sources: one sentence or line each.
            targets: the translation of each.
            method: where alignments are read.
            split: returns the words of a text, as spans of characters; by default what is between spaces.
            first_line: the number of the first pair, for messages.

        Raises:
            InputError: unequal numbers of texts, a layer that the decoder does not have, or a text that is
                longer than learned positions allow.
        """
        return self._texts.alignments(sources, targets, method=method, split=split, first_line=first_line)

    def search_ids(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search the outputs of sources given as ids: see `Generator`; the batches are the translator's.

        Args:
            sources: as the encoder reads them, with special tokens (`SpecialTokens`); an empty one has no
                output.
            options: the search.
            prefixes: for each source the ids that its outputs begin with.

        Raises:
            InputError: naming the first sentence with an id that the model does not have, or with more of
                them than it has positions.
        """
        sources, prefixes = self._checked_sources(sources, prefixes)
        return self._texts.generator(sources, options=options, prefixes=prefixes)

    def score_ids(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """Score outputs given as ids: see `Generator.score`, and `search_ids` for what is refused."""
        sources, prefixes = self._checked_sources(sources, prefixes)
        check_one_for_each("outputs", outputs, "sources", sources)
        limit, size = self._texts.generator.position_limit, self._backends.vocab_size
        outputs = checked_ids("outputs", outputs, vocab_size=size, longest=limit)
        for number, (source, output) in enumerate(zip(sources, outputs, strict=True), start=1):
            if bool(source) != bool(output):
                raise InputError(
                    f"sentence {number:,}: a source without an output, or the reverse; an empty text is the "
                    "end token alone"
                )
        return self._texts.generator.score(sources, outputs, options=options, prefixes=prefixes)

    def _checked_sources(
        self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None
    ) -> tuple[Ids, Ids | None]:
        check_one_for_each("prefixes", prefixes, "sources", sources)
        limit, backends = self._texts.generator.position_limit, self._backends
        read = checked_ids("sources", sources, vocab_size=backends.src_vocab_size, longest=limit)
        if prefixes is None:
            return read, None
        return read, checked_ids("prefixes", prefixes, vocab_size=backends.vocab_size)

    @property
    def device(self) -> str:
        """The kind of device that computes: "cpu" or "cuda"."""
        return self._backends.device

    @property
    def engine_in_use(self) -> str:
        """The engine: "native", "torch" or the name of another system."""
        return self._texts.generator.name

    @property
    def precision_in_use(self) -> str:
        """The precision of matrix multiplications: "float32", "bf16", "fp16" or "int8"."""
        return self._texts.generator.precision
