"""Between texts and ids: sources with their limits, given outputs, and hypotheses as translations."""

import logging
import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, islice, repeat
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.aligner import Aligner
from heedful.decoding.alignment import (
    TRAINED_LEAST,
    SplitWords,
    align_words,
    attended_words,
    relative_weights,
    token_ends,
    words_between_spaces,
    words_of_ends,
    words_of_tokens,
)
from heedful.decoding.confidence import confidence_of
from heedful.decoding.glossary import Entry, PlacedTerm, placed_terms, term_of
from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.task import Hypothesis, Source
from heedful.decoding.translation import TextHypothesis, Translation, warn_of_cut
from heedful.errors import InputError, refuse_if
from heedful.settings.parsing import shown
from heedful.storage.adapter import Adapter
from heedful.storage.bundle import Bundle
from heedful.storage.calibration import Calibration
from heedful.text.pair import TokenizerPair
from heedful.text.sentences import split_text
from heedful.text.special_tokens import SpecialTokens
from heedful.text.tokenizer import Tokenizer

Ids = list[list[int]]
_Item = TypeVar("_Item")
_Text = TypeVar("_Text", bound=TextHypothesis)
_log = logging.getLogger("heedful.decoding")
Target = str | Sequence[int]  # the text of an output, or the ids that the decoder writes
# Returns the cross-attention (T, S) of each output, given sources and the outputs as ids.
AttentionOf = Callable[[Sequence[Source], Sequence[Sequence[int]]], list[NDArray[np.float64]]]


@dataclass(frozen=True)
class EncodedLines:
    """Lines as sources of a search; a line that is too long for the model is split into segments.

    Attributes:
        texts: the lines.
        segments: the segments of all lines, in order; most lines are one segment.
        sources: the sources of the segments.
        gaps: for each line, the space before each segment: " " or "".
        entries: for each line, the glossary entries that apply to it; empty without a glossary.
    """

    texts: Sequence[str]
    segments: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    gaps: list[list[str]] = field(default_factory=list)
    entries: list[list[Entry]] = field(default_factory=list)

    def without_terms(self, numbers: Iterable[int]) -> tuple[list[int], Self]:
        """Return which of these lines are one segment and have no prefix, and these lines without terms."""
        first = [*accumulate(map(len, self.gaps), initial=0)]
        whole = [i for i in numbers if self.gaps[i] == [""] and not self.sources[first[i]].prefix]
        lines = type(self)(
            texts=[self.texts[i] for i in whole],
            segments=[self.segments[first[i]] for i in whole],
            sources=[replace(self.sources[first[i]], terms=()) for i in whole],
            gaps=[[""] for _ in whole],
            entries=[[] for _ in whole],
        )
        return whole, lines

    def adapted(self, adapters: Sequence[Adapter | None]) -> Self:
        """Return these lines with the adapter of each."""
        of_segments = chain.from_iterable(map(repeat, adapters, map(len, self.gaps)))
        return replace(self, sources=with_adapters(self.sources, of_segments))


def with_adapters(sources: Iterable[Source], adapters: Iterable[Adapter | None]) -> list[Source]:
    """Return sources with the adapter of each."""
    return [replace(source, adapter=own) for source, own in zip(sources, adapters, strict=True)]


@dataclass(frozen=True, kw_only=True)
class TextCodec:
    """Turns texts into the sources and outputs of a model, and its hypotheses into texts.

    Attributes:
        tokenizers: the tokenizers of source and target.
        special_tokens: the special-token template of the model.
        default: the search if no options are given.
        trained_length: the maximum source length if no search sets `max_source_tokens`; None: no limit.
        position_limit: the number of learned positions for a source or an output; None: no limit.
        calibration: the calibration of the confidence; None: outputs have no confidence.
        least_weight: the lowest attention weight that links words.
    """

    tokenizers: TokenizerPair
    special_tokens: SpecialTokens
    default: SearchOptions
    trained_length: int | None = None
    position_limit: int | None = None
    calibration: Calibration | None = None
    least_weight: float = 0.0

    @classmethod
    def of(cls, bundle: Bundle, ensemble: Sequence[Bundle] = ()) -> Self:
        """Return the codec of a bundle, or of an ensemble."""
        configs = [each.config.model for each in (bundle, *ensemble)]
        limits = [each.max_positions for each in configs if each.positions == "learned"]
        return cls(
            tokenizers=bundle.tokenizers,
            special_tokens=SpecialTokens.of(bundle.config, bundle.tokenizers),
            default=search_options({}, bundle.config.decode),
            trained_length=bundle.config.data.max_length,
            position_limit=min(limits, default=None),
            calibration=None if ensemble else bundle.calibration_in_use,
            least_weight=0.0 if configs[0].alignment_layer is None else TRAINED_LEAST,
        )

    def resolved(self, options: SearchOptions | None, *, least: int = 0) -> SearchOptions:
        """Return the options, or the default ones, with the language tag and the source limit filled in.

        Args:
            options: the options of the search.
            least: the lowest source limit, unless the options set one.
        """
        options, tag = options or self.default, self.special_tokens.tgt_prefix
        limit = options.max_source_tokens or self.default.max_source_tokens
        if limit is None and (self.trained_length or least):
            limit = max(self.trained_length or 0, least)
        first_id = tag[0] if tag else options.forced_first_id
        return options.resolved(forced_first_id=first_id, max_source_tokens=limit)

    def max_tokens(self, options: SearchOptions) -> int | None:
        """Return the maximum tokens of a text that is not split, special tokens excluded; None: no limit."""
        if options.max_source_tokens is None:
            return None
        most = min(options.max_source_tokens, self.position_limit or sys.maxsize)
        return max(1, most - len(self.special_tokens.source(())))

    def encode(
        self, texts: Sequence[str], prefixes: Sequence[str] | None, options: SearchOptions, *, first_line: int
    ) -> EncodedLines:
        """Tokenise texts and prefixes; a text of several lines, or one too long, is split into segments.

        Args:
            texts: sentences or lines.
            prefixes: for each text, the beginning of its translations (of its first segment); None: no
                prefixes.
            options: the options of the search; without `max_source_tokens`, no text is split.
            first_line: the number of the first text, for messages.

        Raises:
            InputError: a text or a prefix that is too long, or unequal numbers of them.
        """
        src, tgt = self.tokenizers.src, self.tokenizers.tgt
        lines, most = EncodedLines(texts), self.max_tokens(options) or sys.maxsize
        encoded = zip(texts, _encoded(src, texts), _prefix_ids(tgt, prefixes, texts, first_line), strict=True)
        for number, (text, ids, prefix) in enumerate(encoded, start=first_line):
            segments, gaps, encoded_segments = [text], [""], [ids]
            if len(ids) > most:
                self._warn_of_segments(number, len(ids), most, options)
            if len(ids) > most or "\n" in text:
                parts = split_text(text, src, most)
                segments = [each.text for each in parts if each.text]
                gaps = [_gap(part.space) if i else "" for i, part in enumerate(parts) if part.text]
                encoded_segments = _encoded(src, segments)
            lines.gaps.append(gaps)
            of_line: list[Entry] = []
            for segment, ids_of_segment in zip(segments, encoded_segments, strict=True):
                src_ids = self.special_tokens.source(ids_of_segment) if ids_of_segment else []
                _check_length(f"line {number:,}", src_ids, self.position_limit)
                entries = options.glossary.applicable(segment) if options.glossary is not None else []
                terms = [term for each in entries if (term := term_of(each, tgt))]
                source = Source.of(src_ids, options, prefix=prefix, longest=self.position_limit, terms=terms)
                of_line += [each for each in entries if each not in of_line]
                most_of_prefix = source.limit - (options.forced_first_id is not None)
                if len(prefix) > most_of_prefix:
                    raise InputError(
                        f"line {number:,}: a prefix of {len(prefix):,} tokens, but the translation may have "
                        f"{most_of_prefix:,}; shorten it, or raise max_length_offset and max_length"
                    )
                lines.segments.append(segment)
                lines.sources.append(source)
                prefix = []
            lines.entries.append(of_line)
        return lines

    def _warn_of_segments(self, line: int, num_tokens: int, most: int, options: SearchOptions) -> None:
        """Warn that a line is split; `most` is the maximum of its tokens, special tokens excluded."""
        num_special = len(self.special_tokens.source(()))
        name, limit = "max_source_tokens", options.max_source_tokens
        if most + num_special < (limit or 0):
            name, limit = "max_positions", self.position_limit
        _log.warning(
            "line %s: %s tokens, above %s=%s: translated in segments",
            f"{line:,}", f"{num_tokens + num_special:,}", name, f"{limit:,}",
        )  # fmt: skip

    def decode(
        self,
        lines: EncodedLines,
        n_best_lists: Sequence[Sequence[Hypothesis]],
        options: SearchOptions,
        *,
        attention_of: AttentionOf,
        aligned: Sequence[bool] = (),
        aligner: Aligner | None = None,
        split: SplitWords = words_between_spaces,
    ) -> list[Translation]:
        """Return the translations of lines: the hypotheses of their segments as text, chosen and joined.

        With `options.replace_unknown`, each unknown token is replaced by source text. In a vocabulary of
        words, it becomes the word of the line with the most attention: the attention of all tokens between
        two spaces is summed (as in Clark et al., 2019). In a subword vocabulary, it becomes the text of the
        single token with the most attention. (Byte vocabularies have no unknown tokens.) The attention comes
        from a pass over the whole output.

        Args:
            lines: the lines that were searched.
            n_best_lists: the hypotheses of each segment.
            options: the options of the search.
            attention_of: returns the attention of the model.
            aligned: for each line, whether to align the words of its hypotheses; (): none.
            aligner: the aligner; None: align by the attention.
            split: returns the words of a text.
        """
        tgt = self.tokenizers.tgt
        texts = [[tgt.decode(each.ids) for each in one] for one in n_best_lists]
        unknown: dict[tuple[int, Sequence[int]], list[str]] = {}
        if options.replace_unknown:
            unknown = self._replace_unknown(texts, lines, n_best_lists, attention_of)
        segments = [
            Translation.of(text, one, of_one, eos_id=tgt.eos_id)
            for text, one, of_one in zip(lines.segments, n_best_lists, texts, strict=True)
        ]
        segments = [options.strategy.choose(each, options.n_best) for each in segments]
        if self.calibration is not None:
            segments = [
                replace(each, hypotheses=tuple(map(self.confident, each.hypotheses))) for each in segments
            ]
        if any(aligned):
            number_of_segments = map(len, lines.gaps)
            of_segments = chain.from_iterable(map(repeat, aligned, number_of_segments))
            segments = self._aligned(segments, [*of_segments], lines, unknown, attention_of, aligner, split)
        chosen, translations = iter(segments), list[Translation]()
        for text, gaps, entries in zip(lines.texts, lines.gaps, lines.entries, strict=True):
            own = list(islice(chosen, len(gaps)))
            translation = own[0] if gaps == [""] else Translation.joined(text, own, gaps, split=split)
            if entries:
                translation = replace(translation, terms=_placed(entries, translation.text, own, tgt.decode))
            translations.append(translation)
        if num_cut := sum(not each.finished for each in translations):
            warn_of_cut(num_cut)
        return translations

    def confident(self, hypothesis: _Text) -> _Text:
        """Return an output with its confidence, if the model has a calibration."""
        if self.calibration is None:
            return hypothesis
        text, ids, log_probs = hypothesis.text, hypothesis.ids, hypothesis.token_log_probs
        confidence = confidence_of(self.calibration, self.tokenizers.tgt, text, ids, log_probs)
        return replace(hypothesis, confidence=confidence)

    def pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[Target],
        options: SearchOptions,
        *,
        prefixes: Sequence[str] | None = None,
        first_line: int,
    ) -> tuple[list[Source], Ids, set[int]]:
        """Return pairs as the encoder reads and the decoder writes them.

        A pair with a text that is longer than the options or learned positions allow is left out, with a
        warning in the log.

        Args:
            sources: sentences or lines.
            targets: their translations, as text, or as ids with the end token unless the output is truncated.
            options: the options of the search; `max_source_tokens` limits both texts.
            prefixes: for each source, the prefix of the search; None: no prefixes.
            first_line: the number of the first pair, for messages.

        Returns:
            The sources, the outputs, and the indices of the pairs that are left out. These, and pairs of
            empty texts, have no ids.

        Raises:
            InputError: ids that no output has, or unequal numbers of texts.
        """
        check_one_for_each("targets", targets, "sources", sources)
        read: Ids = []
        written: Ids = []
        left_out: set[int] = set()
        tgt = self.tokenizers.tgt
        texts = [target if isinstance(target, str) else "" for target in targets]
        encoded = zip(_encoded(self.tokenizers.src, sources), _encoded(tgt, texts), targets, strict=True)
        limits = {"max_source_tokens": options.max_source_tokens, "max_positions": self.position_limit}
        for line, (src_ids, tgt_ids, target) in enumerate(encoded, start=first_line):
            source, output = self.special_tokens.source(src_ids), [*target]
            if not src_ids and not (tgt_ids if isinstance(target, str) else target):
                source = output = []
            elif isinstance(target, str):
                output = _with_forced_first_id(self.special_tokens.target(tgt_ids), options)
            else:
                _check_ids(f"target line {line:,}", output, tgt)
            if _leaves_out(line, source, output, limits):
                left_out.add(len(read))
                source = output = []
            read.append(source)
            written.append(output)
        of_prefixes = _prefix_ids(tgt, prefixes, sources, first_line)
        of_texts = [
            Source.of(ids, options, prefix=prefix, longest=self.position_limit)
            for ids, prefix in zip(read, of_prefixes, strict=True)
        ]
        return of_texts, written, left_out

    def _replace_unknown(
        self,
        texts: list[list[str]],
        lines: EncodedLines,
        n_best_lists: Sequence[Sequence[Hypothesis]],
        attention_of: AttentionOf,
    ) -> dict[tuple[int, Sequence[int]], list[str]]:
        """Replace the unknown tokens in texts of hypotheses.

        Returns:
            The replacements, by the number of the segment and the ids of the output.
        """
        replaced: dict[tuple[int, Sequence[int]], list[str]] = {}
        src, tgt = self.tokenizers.src, self.tokenizers.tgt
        incomplete = [
            (i, k, each)
            for i, one in enumerate(n_best_lists)
            for k, each in enumerate(one)
            if tgt.unk_id in each.ids
        ]
        attention = attention_of(
            [lines.sources[i] for i, _, _ in incomplete],
            [(*each.ids, *[tgt.eos_id] * each.finished) for _, _, each in incomplete],
        )
        for (i, k, each), weights_TS in zip(incomplete, attention, strict=True):
            unknown = [position for position, token in enumerate(each.ids) if token == tgt.unk_id]
            weights_US = weights_TS[unknown, len(self.special_tokens.src_prefix) :]
            words = attended_words(weights_US, lines.segments[i], src, whole=tgt.kind == "word")
            texts[i][k] = tgt.decode(each.ids, unknown=words)
            replaced[i, each.ids] = words
        return replaced

    def _aligned(
        self,
        segments: Sequence[Translation],
        chosen: Sequence[bool],
        lines: EncodedLines,
        unknown: Mapping[tuple[int, Sequence[int]], Sequence[str]],
        attention_of: AttentionOf,
        aligner: Aligner | None,
        split: SplitWords,
    ) -> list[Translation]:
        """Return the translations of segments, the chosen ones with aligned words; see `Translator.align`."""
        aligned: dict[int, list[TextHypothesis]] = {
            number: [] for number, is_chosen in enumerate(chosen) if is_chosen
        }
        outputs = [(number, output) for number in aligned for output in segments[number].hypotheses]
        attention = [np.zeros((0, 0))] * len(outputs)
        if aligner is None:
            read = [lines.sources[number] for number, _ in outputs]
            attention = attention_of(read, [output.written_ids for _, output in outputs])
        tag = self.special_tokens.tgt_prefix
        src, tgt = self.tokenizers.src, self.tokenizers.tgt
        for (number, output), weights_TS in zip(outputs, attention, strict=True):
            source = segments[number].source
            src_words = words_of_tokens(src, source, split=split)
            tgt_words = _words_of_output(tgt, output, unknown.get((number, output.ids), ()), split)
            if aligner is None:
                column = len(self.special_tokens.src_prefix)
                read_TS = weights_TS[:, column : column + len(src_words)]
                own_TS = relative_weights(read_TS, least=self.least_weight)[: len(tgt_words)]
                alignment = align_words(own_TS, src_words, tgt_words)
            else:
                start = len(tag) if output.ids[: len(tag)] == tuple(tag) else 0
                src_ids = src.encode(source)
                alignment = aligner.align_words(src_ids, output.ids[start:], src_words, tgt_words[start:])
            aligned[number].append(replace(output, alignment=alignment))
        return [
            replace(segment, hypotheses=tuple(aligned.get(number, segment.hypotheses)))
            for number, segment in enumerate(segments)
        ]


def _prefix_ids(tgt: Tokenizer, prefixes: Sequence[str] | None, texts: Sequence[str], first_line: int) -> Ids:
    """Return the ids of the prefix of each text.

    Raises:
        InputError: unequal numbers of them, or a prefix with a character that the vocabulary lacks.
    """
    check_one_for_each("prefixes", prefixes, "texts", texts)
    if prefixes is None:
        return [[] for _ in texts]
    of_prefixes = tgt.encode_batch(prefixes)
    for number, (prefix, ids) in enumerate(zip(prefixes, of_prefixes, strict=True), start=first_line):
        if tgt.unk_id in ids:
            lacking = shown(tgt.unknown_text(prefix))
            raise InputError(
                f"line {number:,}: the prefix has {lacking}, which the vocabulary lacks; take it out of it"
            )
    return of_prefixes


def _leaves_out(line: int, src: Sequence[int], tgt: Sequence[int], limits: Mapping[str, int | None]) -> bool:
    """Return whether a pair is left out; the log names the text that is too long, and the lowest limit."""
    known = {name: most for name, most in limits.items() if most is not None}
    option = min(known, key=known.__getitem__, default="")
    too_long = {"source": len(src), "target": len(tgt)} if known else {}
    too_long = {name: length for name, length in too_long.items() if length > known[option]}
    for name, length in too_long.items():
        which = f"{option}={known[option]:,}" + ", which limits both" * (name == "target")
        _log.warning("%s line %s: %s tokens, above %s: left out", name, f"{line:,}", f"{length:,}", which)
    return bool(too_long)


def _placed(
    entries: Sequence[Entry],
    text: str,
    segments: Sequence[Translation],
    decode: Callable[[Sequence[int]], str],
) -> tuple[PlacedTerm, ...]:
    """Return the terms in the translation of a line, with their probabilities in its segments."""
    best = [-math.inf] * len(entries)
    for output in (hypothesis for each in segments for hypothesis in each.hypotheses[:1]):
        ends = token_ends(output.text, output.ids, decode)
        tokens = [*zip([0, *ends], ends, output.token_log_probs, strict=False)]
        for number, term in enumerate(placed_terms(entries, output.text)):
            sums = [
                sum(p for start, end, p in tokens if start < last and (end > first or start == first))
                for first, last in term.spans
            ]
            best[number] = max([best[number], *sums])
    return tuple(
        replace(term, probability=math.exp(total)) if total > -math.inf else term
        for term, total in zip(placed_terms(entries, text), best, strict=True)
    )


def _words_of_output(
    tgt: Tokenizer, output: TextHypothesis, replaced: Sequence[str], split: SplitWords
) -> list[list[int]]:
    """Return, for each token of an output, the words that it is a part of.

    Args:
        tgt: the target tokenizer.
        output: the output; the tokenizer may split its text into other ids.
        replaced: the replacements of its unknown tokens.
        split: returns the words of a text.
    """
    encoded = tgt.encode(output.text)
    before = len(output.ids) - len(encoded)  # a language tag
    if before >= 0 and [*output.ids[before:]] == encoded:
        return [*[[] for _ in range(before)], *words_of_tokens(tgt, output.text, split=split)]

    def decode(ids: Sequence[int]) -> str:
        num_unknown = sum(token == tgt.unk_id for token in ids) if replaced else 0
        return tgt.decode(ids, unknown=list(replaced[:num_unknown])) if num_unknown else tgt.decode(ids)

    return words_of_ends(output.text, token_ends(output.text, output.ids, decode), split=split)


def checked_ids(
    name: str, rows: Sequence[Sequence[int]], *, vocab_size: int, longest: int | None = None
) -> Ids:
    """Return ids given by the caller as checked lists.

    Args:
        name: the name of the argument, for messages.
        rows: the ids of each sentence.
        vocab_size: the size of the vocabulary.
        longest: the maximum number of ids in a sentence; None: no limit.

    Raises:
        InputError: a sentence with an id outside of the vocabulary, or with too many ids.
    """
    checked = []
    for number, row in enumerate(rows, start=1):
        where = f"{name}: sentence {number:,}"
        try:
            ids = [operator.index(each) for each in row]
            wrong = (position for position, each in enumerate(ids) if not 0 <= each < vocab_size)
            at = next(wrong, None)
            problem = None if at is None else f"{shown(ids[at])}, at position {at:,}, is not an id"
        except TypeError:
            problem = "not a list of ids"
        if problem:
            raise InputError(
                f"{where}: {problem}; give whole numbers from 0 to {vocab_size - 1:,}, as in [[5, 12, 2]]"
            )
        _check_length(where, ids, longest)
        checked.append(ids)
    return checked


def check_one_for_each(name: str, values: Sequence[object] | None, to: str, others: Sequence[object]) -> None:
    """Check that two sequences have the same length.

    Raises:
        InputError: they do not.
    """
    if values is not None and len(values) != len(others):
        raise InputError(f"{name}: {len(values):,} for {len(others):,} {to}; give one for each")


def _gap(space: str) -> str:
    """Return what stands before a segment: line ends as they are, or one space."""
    return space if "\n" in space else space[:1] and " "


def without_line_ends(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of a file without their line ends."""
    return (line.removesuffix("\n").removesuffix("\r") if isinstance(line, str) else line for line in lines)


def chunks(
    items: Iterator[_Item], prefixes: Iterable[str] | None, chunk_lines: int, *, first_line: int = 1
) -> Iterator[tuple[int, list[_Item], list[str] | None]]:
    """Yield chunks of a stream: the number of the first line, the lines, and their prefixes.

    Raises:
        InputError: a line without a prefix.
    """
    lines = without_line_ends(prefixes or ())
    while chunk := list(islice(items, chunk_lines)):
        prefixes_of_chunk = None if prefixes is None else list(islice(lines, len(chunk)))
        if prefixes_of_chunk is not None and len(prefixes_of_chunk) < len(chunk):
            raise InputError(
                f"line {first_line + len(prefixes_of_chunk):,}: has no prefix; give one for each line"
            )
        yield first_line, chunk, prefixes_of_chunk
        first_line += len(chunk)


def _check_ids(name: str, ids: Sequence[int], tokenizer: Tokenizer) -> None:
    are_ids = all(isinstance(i, int | np.integer) and 0 <= i < tokenizer.vocab_size for i in ids)
    refuse_if(
        (not are_ids, f"{name}: ids are whole numbers from 0 to {tokenizer.vocab_size - 1:,}"),
        (
            not ids or tokenizer.eos_id in ids[:-1],
            f"{name}: the end token, {tokenizer.eos_id}, ends an output; an empty text is that token alone",
        ),
        error=InputError,
    )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Ids:
    """Return the ids of each text; none for a text of spaces."""
    encoded = tokenizer.encode_batch(texts)
    return [ids if text.strip() else [] for ids, text in zip(encoded, texts, strict=True)]


def _with_forced_first_id(output: list[int], options: SearchOptions) -> list[int]:
    """Return an output with the first id that the search forces, which is not part of its text."""
    first = options.forced_first_id
    return output if first is None or first == output[0] else [first, *output]


def _check_length(name: str, ids: Sequence[int], longest: int | None) -> None:
    if longest is not None and len(ids) > longest:
        raise InputError(
            f"{name}: {len(ids):,} tokens, but this model's positions end at {longest:,}; split the line"
        )
