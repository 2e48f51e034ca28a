"""A source, the options that all strategies share, and the task that a strategy gets of both."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.ranges import check_choice, check_number, check_range, check_whole, range_of
from heedful.errors import InputError, SearchCancelledError
from heedful.settings.options import LengthNormalization
from heedful.settings.run import Config

_WHOLE = {
    "n_best": (1, 100_000),  # as many as samples
    **dict.fromkeys(("forced_first_id", "forced_last_id"), (0, math.inf)),
    **{  # files and commands have an upper limit too; here every length that can be counted is one
        name: (range_of(name)[0], math.inf)
        for name in (
            "max_length",
            "max_length_offset",
            "min_length",
            "max_source_tokens",
            "no_repeat_ngram_size",
        )
    },
}
_MAY_BE_NONE = {"max_length", "max_source_tokens", "forced_first_id", "forced_last_id"}


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The options that all strategies share; the defaults are the paper's (section 6.1).

    Lengths count the end-of-sequence token of source and target, as the model does, and never the start
    token.

    Attributes:
        n_best: how many hypotheses to return; a beam has no more than its size.
        length_penalty: alpha of the penalty that divides log-probabilities, at least 0.
        length_normalization: the penalty of an output Y: "gnmt" is ((5 + |Y|) / 6) ** alpha, "average"
            |Y| ** alpha, which for alpha = 1 makes scores the mean log-probability of a token.
        coverage_penalty: beta of GNMT's (Wu et al., 2016, equation 14), at least 0. An output that ends has
            beta * sum over i of log(min(sum over j of p_ij, 1)) added to its score, where p_ij is the
            attention that its token j pays to token i of the source (see `Backend.attention`). Live
            hypotheses are compared without it, as in the paper: they may still cover the rest.
        max_length_offset: an output is at most this much longer than its input.
        max_length: the maximum output length in tokens; None sets no such limit.
        min_length: the fewest tokens before the end of the output.
        max_source_tokens: the maximum length of a source in tokens, its special tokens included. A longer
            text is split at ends of sentences, else at punctuation, spaces or between tokens, and each
            segment is searched by itself; where the target is given, it is refused. None: as the bundle says.
        forced_first_id: the first token of every output; None leaves the choice to the model.
        forced_last_id: the token at the last position that the length limit allows; None leaves the choice to
            the model, whose output may then be truncated, without an end token.
        suppressed_ids: tokens that are never chosen; None: the start and padding tokens.
        renormalize: whether the probabilities of the tokens that may be chosen are scaled up to a sum of 1.
        no_repeat_ngram_size: forbids repeating any n-gram of this size; 0 disables it.
        repetition_penalty: multiplies the log-probability of each token that the output has already, as far
            as the search chooses by it (Keskar et al., 2019, section 4.1, on log-probabilities, as beam
            search in transformers has it); above 1 repeats less, and 1 changes nothing.
        replace_unknown: whether texts have, instead of an unknown token, the word of the source that it
            attends to most (see `translations_of`); ids and numbers are as without it.
        cancelled: whether the caller no longer needs the outputs; searches ask before each step. None: they
            run to their end.
    """

    n_best: int = 1
    length_penalty: float = 0.6
    length_normalization: LengthNormalization = "gnmt"
    coverage_penalty: float = 0.0
    max_length_offset: int = 50
    max_length: int | None = None
    min_length: int = 0
    max_source_tokens: int | None = None
    forced_first_id: int | None = None
    forced_last_id: int | None = None
    suppressed_ids: tuple[int, ...] | None = None
    renormalize: bool = False
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    replace_unknown: bool = False
    cancelled: Callable[[], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, (least, most) in _WHOLE.items():
            value = getattr(self, name)
            if value is None and name not in _MAY_BE_NONE:
                raise InputError(f"{name}={value}: must be a whole number")
            check_whole(name, value, least, most)
        for name in ("length_penalty", "coverage_penalty"):
            check_range(name, getattr(self, name), *range_of(name))
        check_number("repetition_penalty", self.repetition_penalty)
        if not 0 < self.repetition_penalty <= 1000:
            raise InputError(
                f"repetition_penalty={self.repetition_penalty}: must be above 0 and at most 1000"
            )
        if min(self.suppressed_ids or (), default=0) < 0:
            raise InputError(f"suppressed_ids={self.suppressed_ids}: must be at least 0")
        check_choice("length_normalization", self.length_normalization, get_args(LengthNormalization))

    def check_cancelled(self) -> None:
        """Check that the outputs are still needed; strategies do so before each step.

        Raises:
            SearchCancelledError: they are not.
        """
        if self.cancelled is not None and self.cancelled():
            raise SearchCancelledError("the search was cancelled")

    def source_limit(self, config: Config) -> int:
        """Return `max_source_tokens`; where it is not set, that of the bundle or of its training."""
        return self.max_source_tokens or config.decode.max_source_tokens or config.data.max_length

    def penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of an output of `length` tokens, its end token counted.

        ((5 + length) / 6) ** alpha of GNMT (Wu et al., 2016, section 7), or length ** alpha; an output of the
        end token alone has the penalty 1.
        """
        base = length if self.length_normalization == "average" else (5 + length) / 6
        return float(base**self.length_penalty)


@dataclass(frozen=True)
class Source:
    """A sentence to be translated.

    Attributes:
        ids: as the encoder reads them, with special tokens; none for an empty text, which is not searched.
        prefix: the ids that its outputs begin with, after `SharedOptions.forced_first_id` where there is one.
        limit: the most tokens of an output, the end token included.
    """

    ids: Sequence[int]
    prefix: Sequence[int]
    limit: int

    @classmethod
    def of(
        cls, ids: Sequence[int], options: SharedOptions, *, prefix: Sequence[int] = (), longest: int | None
    ) -> Self:
        """Return a source with its limit; section 6.1 limits outputs to the length of their inputs + 50.

        Args:
            ids: as the encoder reads them.
            options: of the search.
            prefix: of its outputs.
            longest: what the positions of the model allow; None sets no limit.
        """
        caps = [cap for cap in (options.max_length, longest) if cap is not None]
        return cls(ids, prefix, min([len(ids) + options.max_length_offset, *caps]))


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """The sentences of a batch, B of them, and how their outputs are searched.

    Attributes:
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        start_id: the first input id; never generated, unless the options say otherwise or it is the end
            token.
        eos_id: ends an output; waits for the minimal length of the options.
        pad_id: never generated, like `start_id`.
        options: of the search; its algorithm is that of the strategy.
        sources: for each sentence its ids, which sampling hashes into its seeds; no other search asks for
            them.
        prefixes: for each sentence the ids that its outputs begin with, after `options.forced_first_id` where
            there is one; what goes beyond its length limit is not written. None: no outputs begin with any.
        vocab_size: of the outputs, by which sampling bounds its memory; None: unknown.
    """

    max_lengths: Sequence[int]
    start_id: int
    eos_id: int
    pad_id: int
    options: SharedOptions
    sources: Sequence[Sequence[int]] = ()
    prefixes: Sequence[Sequence[int]] | None = None
    vocab_size: int | None = None

    def start_ids(self) -> NDArray[np.int64]:
        """Return the first input ids, (B,)."""
        return np.full(len(self.max_lengths), self.start_id, dtype=np.int64)
