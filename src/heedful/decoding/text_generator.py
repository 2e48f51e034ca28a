"""Between lines in and lines out: tokenise, generate, detokenise."""

from collections.abc import Callable, Sequence
from dataclasses import replace

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
    Target,
    encoded_prefixes,
    sources_and_outputs,
    sources_and_prefixes,
)
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import ScoredText, Translation
from heedful.errors import InputError
from heedful.text.framing import Framing
from heedful.text.pair import TokenizerPair


class TextGenerator:
    """Tokenises texts, adds special tokens, generates or scores, and detokenises.

    What is asked, and what is refused, is written at the methods of `Translator`. Options are the bundle's
    where none are given; the number of the first line is for messages.
    """

    def __init__(
        self, generator: Generator, framing: Framing, tokenizers: TokenizerPair, default: SearchOptions
    ) -> None:
        """Take a generator and what turns texts into its ids.

        Args:
            generator: of the outputs.
            framing: the special tokens around texts.
            tokenizers: of source and target.
            default: the search where none is asked for.
        """
        self.generator = generator
        self._framing = framing
        self._tokenizers = tokenizers
        self._default = default

    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None,
        prefixes: Sequence[str] | None,
        first_line: int = 1,
    ) -> list[Translation]:
        """See `Translator.translations`."""
        options = self._with_language(options)
        sources, beginnings = self._encoded(texts, prefixes, options, first_line=first_line)
        n_best_lists = self.generator(sources, options=options, prefixes=beginnings)
        spelled = self._spelled(texts, sources, n_best_lists, options)
        return [options.strategy.choose(each, options.n_best) for each in spelled]

    def alternatives(
        self, texts: Sequence[str], *, prefixes: Sequence[str], count: int, options: SearchOptions | None
    ) -> list[Translation]:
        """See `Translator.alternatives`."""
        if count < 1:
            raise InputError(f"count={count}: must be at least 1")
        options = replace(self._with_language(options), n_best=1, prefix_bias=None)
        if options.strategy.num_hypotheses(1) != 1:
            raise InputError("alternatives: each needs a search for one output, not a choice among many")
        sources, beginnings = self._encoded(texts, prefixes, options, first_line=1)
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
        options, tgt = self._with_language(options), self._tokenizers.tgt
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
            options=self._with_language(None), first_line=first_line,
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

    def _with_language(self, options: SearchOptions | None) -> SearchOptions:
        """Return the options, or the default ones, with the target language's tag as forced first token."""
        options, tag = options or self._default, self._framing.tgt_prefix
        return replace(options, forced_first_id=tag[0]) if tag else options

    def _encoded(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None,
        options: SearchOptions,
        *,
        first_line: int,
    ) -> tuple[Ids, Ids]:
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
