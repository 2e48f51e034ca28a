"""Between lines in and lines out: tokenise, generate, detokenise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from heedful.decoding.alignment import (
    Alignment,
    AlignmentMethod,
    Span,
    align_words,
    relative_weights,
    words_of_tokens,
)
from heedful.decoding.alternatives import search_alternatives
from heedful.decoding.detokenization import translations_of
from heedful.decoding.generator import Generator
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.inputs import (
    Ids,
    Sources,
    Target,
    check_unsplit,
    encoded_prefixes,
    sources_and_outputs,
    sources_and_prefixes,
)
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import ScoredText, Translation
from heedful.errors import InputError
from heedful.settings.options import PAIR_TOKENS
from heedful.text.pair import TokenizerPair
from heedful.text.special_tokens import SpecialTokens


class TextGenerator:
    """Tokenises texts, adds special tokens, generates or scores, and detokenises.

    What is asked, and what is refused, is written at the methods of `Translator`. Options are the bundle's
    where none are given; the number of the first line is for messages.
    """

    def __init__(
        self,
        generator: Generator,
        framing: SpecialTokens,
        tokenizers: TokenizerPair,
        default: SearchOptions,
        *,
        trained_length: int | None = None,
    ) -> None:
        """Take a generator and what turns texts into its ids.

        Args:
            generator: of the outputs.
            framing: the special tokens around texts.
            tokenizers: of source and target.
            default: the search where none is asked for.
            trained_length: the limit of sources where neither search says `max_source_tokens`; None: none.
        """
        self.generator = generator
        self._framing = framing
        self._tokenizers = tokenizers
        self._default = default
        self._trained_length = trained_length

    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None,
        prefixes: Sequence[str] | None,
        first_line: int = 1,
    ) -> list[Translation]:
        """See `Translator.translations`."""
        options = self._resolved(options)
        sources = self._encoded(texts, prefixes, options, first_line=first_line)
        n_best_lists = self.generator(sources.ids, options=options, prefixes=sources.prefixes)
        spelled = self._spelled(sources.texts, sources.ids, n_best_lists, options)
        chosen = iter([options.strategy.choose(each, options.n_best) for each in spelled])
        return [
            next(chosen) if gaps == [""] else Translation.joined(text, list(islice(chosen, len(gaps))), gaps)
            for text, gaps in zip(texts, sources.gaps, strict=True)
        ]

    def alternatives(
        self, texts: Sequence[str], *, prefixes: Sequence[str], count: int, options: SearchOptions | None
    ) -> list[Translation]:
        """See `Translator.alternatives`."""
        if count < 1:
            raise InputError(f"count={count}: must be at least 1")
        options = replace(self._resolved(options, least=PAIR_TOKENS), n_best=1, prefix_bias=None)
        if options.strategy.num_hypotheses(1) != 1:
            raise InputError("alternatives: each needs a search for one output, not a choice among many")
        whole = self._encoded(texts, prefixes, replace(options, max_source_tokens=None), first_line=1)
        sources, beginnings = whole.ids, whole.prefixes
        for number, ids in enumerate(sources, start=1):
            check_unsplit(f"text {number:,}", ids, options.max_source_tokens)
        eos_id = self._tokenizers.tgt.eos_id
        n_best_lists = search_alternatives(
            sources, beginnings, count=count, options=options, generator=self.generator, eos_id=eos_id
        )
        return self._spelled(texts, sources, n_best_lists, options)

    def scores(
        self,
        sources: Sequence[str],
        targets: Sequence[Target],
        *,
        options: SearchOptions | None,
        prefixes: Sequence[str] | None,
        first_line: int = 1,
    ) -> list[ScoredText]:
        """See `Translator.score`."""
        options, tgt = self._resolved(options, least=PAIR_TOKENS), self._tokenizers.tgt
        read, written = sources_and_outputs(
            sources, targets, tokenizers=self._tokenizers, framing=self._framing, generator=self.generator,
            options=options, first_line=first_line,
        )  # fmt: skip
        beginnings = encoded_prefixes(prefixes, texts=sources, tokenizer=tgt)
        scored = self.generator.score(read, written, options=options, prefixes=beginnings)
        return [
            ScoredText.of_scored(
                each, target if isinstance(target, str) else tgt.decode(each.ids), eos_id=tgt.eos_id
            )
            for each, target in zip(scored, targets, strict=True)
        ]

    def alignments(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        method: AlignmentMethod,
        split: Callable[[str], list[Span]],
        first_line: int,
    ) -> list[Alignment]:
        """See `Translator.align`."""
        src, tgt = self._tokenizers.src, self._tokenizers.tgt
        read, written = sources_and_outputs(
            sources, targets, tokenizers=self._tokenizers, framing=self._framing, generator=self.generator,
            options=self._resolved(None, least=PAIR_TOKENS), first_line=first_line,
        )  # fmt: skip
        pairs = [i for i, both in enumerate(zip(sources, targets, strict=True)) if all(map(str.strip, both))]
        weights = self.generator.attention(
            [read[i] for i in pairs], [written[i] for i in pairs], layer=method.layer
        )
        alignments = [Alignment(())] * len(sources)
        for i, weights_TS in zip(pairs, weights, strict=True):
            src_words = words_of_tokens(src, sources[i], split)
            tgt_words = words_of_tokens(tgt, targets[i], split)
            # A token's own step is the one that predicts it; the end token is predicted last.
            last = len(written[i]) - len(self._framing.tgt_suffix) + method.shift
            column = len(self._framing.src_prefix)
            own_TS = relative_weights(weights_TS)[
                last - len(tgt_words) : last, column : column + len(src_words)
            ]
            alignments[i] = align_words(own_TS, src_words, tgt_words)
        return alignments

    def _resolved(self, options: SearchOptions | None, *, least: int = 0) -> SearchOptions:
        """Return the options, or the default ones, with the tag and the limit that they leave to the model.

        Args:
            options: of the search.
            least: the limit of sources is no lower, unless the options say so.
        """
        options, tag = options or self._default, self._framing.tgt_prefix
        limit = options.max_source_tokens or self._default.max_source_tokens
        if limit is None and (self._trained_length or least):
            limit = max(self._trained_length or 0, least)
        first_id = tag[0] if tag else options.forced_first_id
        return replace(options, forced_first_id=first_id, max_source_tokens=limit)

    def _encoded(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None,
        options: SearchOptions,
        *,
        first_line: int,
    ) -> Sources:
        return sources_and_prefixes(
            texts, prefixes, tokenizers=self._tokenizers, framing=self._framing, generator=self.generator,
            options=options, first_line=first_line,
        )  # fmt: skip

    def _spelled(
        self,
        texts: Sequence[str],
        sources: Ids,
        n_best_lists: Sequence[Sequence[Hypothesis]],
        options: SearchOptions,
    ) -> list[Translation]:
        return translations_of(
            texts, sources, n_best_lists, options=options, tokenizers=self._tokenizers, framing=self._framing,
            generator=self.generator,
        )  # fmt: skip
