"""The options of a search, as one frozen value."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from heedful.config import DecodeConfig
from heedful.decoding.hypotheses import LengthNormalization, length_penalty
from heedful.errors import InputError

EarlyStopping = Literal["optimal", "estimate", "first"]
_AT_LEAST = {
    **dict.fromkeys(("beam_size", "n_best", "num_groups", "max_length"), 1),
    **dict.fromkeys(("max_length_offset", "min_length", "no_repeat_ngram_size"), 0),
    **dict.fromkeys(("forced_first_id", "forced_last_id", "length_penalty", "diversity_penalty"), 0),
    "coverage_penalty": 0,
}
_MOST = 2**31  # of every number that counts something
_AT_MOST = {"beam_size": 1000, "num_groups": 1000, "length_penalty": 30, "n_best": 100_000}


def _check_range(name: str, value: float | None, least: float) -> None:
    if value is not None and not least <= value < math.inf:
        what = f"at least {least}" if value < least else "a finite number"
        raise InputError(f"{name}={value}: must be {what}")
    if isinstance(value, int) and value > _MOST:
        raise InputError(f"{name}={value}: must be at most {_MOST:,}")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are sampled; the defaults sample from the model's distribution.

    Attributes:
        temperature: log-probabilities are divided by it; below 1 the probable become more probable.
        top_k: only so many tokens, the most probable ones, may be drawn; None sets no such limit.
        top_p: only the fewest most probable tokens that have this probability together.
        min_p: only tokens of at least this share of the probability of the best.
        epsilon: only tokens of at least this probability, or the best.
        seed: of the random generator.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    epsilon: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InputError(
                f"temperature={self.temperature}: must be a number above 0; to take the best, search greedily"
            )
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k={self.top_k}: must be at least 1")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p}: must be above 0 and at most 1")
        for name in ("min_p", "epsilon"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name}={getattr(self, name)}: must lie between 0 and 1")
        if self.seed < 0:
            raise InputError(f"seed={self.seed}: must be at least 0")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How outputs are searched; the defaults are the paper's (section 6.1).

    Lengths count the end-of-sequence token of source and target, as the model does, and never the start
    token.

    Attributes:
        beam_size: live hypotheses of one sentence; 1 is greedy search.
        n_best: how many hypotheses to return, at most `beam_size` unless they are drawn.
        length_penalty: alpha of the penalty that divides log-probabilities, at least 0.
        length_normalization: the penalty of an output Y: "gnmt" is ((5 + |Y|) / 6) ** alpha, "average"
            |Y| ** alpha, which for alpha = 1 makes scores the mean log-probability of a token.
        coverage_penalty: beta of GNMT's (Wu et al., 2016, equation 14), at least 0. An output that ends has
            beta * sum over i of log(min(sum over j of p_ij, 1)) added to its score, where p_ij is the
            attention that its token j pays to token i of the source (see `cross_attention.py`). Live
            hypotheses are compared without it, as in the paper: they may still cover the rest.
        early_stopping: when to end a sentence. "optimal": when no live hypothesis can still enter its
            n-best list. "estimate": when it has `beam_size` finished hypotheses and the best live one,
            scored at its present length and as if it covered its source, is no better than the worst of
            these. "first": when it has
            `beam_size` finished hypotheses.
        max_length_offset: an output is at most this much longer than its input.
        max_length: the maximum output length in tokens; None sets no such limit.
        min_length: the fewest tokens before the end of the output.
        forced_first_id: the first token of every output; None leaves the choice to the model.
        forced_last_id: the token at the last position that the length limit allows; None leaves the choice to
            the model, whose output may then be truncated, without an end token.
        suppressed_ids: tokens that are never chosen; None: the start and padding tokens.
        renormalize: whether the probabilities of the tokens that may be chosen are scaled up to a sum of 1.
        no_repeat_ngram_size: forbids repeating any n-gram of this size; 0 disables it.
        repetition_penalty: multiplies the log-probability of each token that the output has already, as far
            as the search chooses by it (Keskar et al., 2019, section 4.1, on log-probabilities, as beam
            search in transformers has it); above 1 repeats less, and 1 changes nothing.
        prefix_bias: None: outputs begin with the prefixes of their sentences. From 0 to below 1: they lean to
            them. As long as an output follows its prefix, the search goes by (1 - bias) times the probability
            of each next token, and the bias on top for the prefix's (Arivazhagan et al., 2020).
        replace_unknown: whether texts have, instead of an unknown token, the word of the source that it
            attends to most (see `spelling.py`); ids and numbers are as without it.
        num_groups: of the beam, for diverse beam search (Vijayakumar et al., 2016); each has its share of
            `beam_size`, and 1 is the usual beam.
        diversity_penalty: lambda: what a token costs in a group for each hypothesis of the groups before it
            that goes on with the same token at the same position.
        sampling: sample the outputs instead of a beam search; None searches for the best.
    """

    beam_size: int = 4
    n_best: int = 1
    length_penalty: float = 0.6
    length_normalization: LengthNormalization = "gnmt"
    coverage_penalty: float = 0.0
    early_stopping: EarlyStopping = "optimal"
    max_length_offset: int = 50
    max_length: int | None = None
    min_length: int = 0
    forced_first_id: int | None = None
    forced_last_id: int | None = None
    suppressed_ids: tuple[int, ...] | None = None
    renormalize: bool = False
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    prefix_bias: float | None = None
    replace_unknown: bool = False
    num_groups: int = 1
    diversity_penalty: float = 0.0
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            _check_range(name, getattr(self, name), least)
        for name, most in _AT_MOST.items():
            if getattr(self, name) > most:
                raise InputError(f"{name}={getattr(self, name)}: must be at most {most:,}")
        if self.n_best > self.beam_size and self.sampling is None:
            raise InputError(f"n_best={self.n_best}: must be at most beam_size={self.beam_size}")
        if self.coverage_penalty and self.sampling is not None:
            raise InputError(
                f"coverage_penalty={self.coverage_penalty}: ranks no samples; leave out one of the two"
            )
        if self.beam_size % self.num_groups:
            raise InputError(f"num_groups={self.num_groups}: must divide beam_size={self.beam_size}")
        if not 0 < self.repetition_penalty < math.inf:
            raise InputError(f"repetition_penalty={self.repetition_penalty}: must be a number above 0")
        if self.prefix_bias is not None and not 0 <= self.prefix_bias < 1:
            raise InputError(f"prefix_bias={self.prefix_bias}: must be at least 0 and below 1")
        if min(self.suppressed_ids or (), default=0) < 0:
            raise InputError(f"suppressed_ids={self.suppressed_ids}: must be at least 0")
        for name, choice in (
            ("length_normalization", LengthNormalization),
            ("early_stopping", EarlyStopping),
        ):
            if getattr(self, name) not in get_args(choice):
                known = ", ".join(map(repr, get_args(choice)))
                raise InputError(f"{name}={getattr(self, name)!r}: must be one of {known}")

    @classmethod
    def from_config(cls, config: DecodeConfig) -> "SearchOptions":
        """The search that a configuration asks for."""
        return cls(
            beam_size=config.beam_size,
            n_best=config.n_best,
            length_penalty=config.length_penalty,
            length_normalization=config.length_normalization,
            early_stopping=config.early_stopping,
            max_length_offset=config.max_length_offset,
            max_length=config.max_length,
            min_length=config.min_length,
            forced_first_id=config.forced_first_id,
            forced_last_id=config.forced_last_id,
            suppressed_ids=config.suppressed_ids,
            renormalize=config.renormalize,
            no_repeat_ngram_size=config.no_repeat_ngram_size,
            repetition_penalty=config.repetition_penalty,
        )

    @property
    def needs_attention(self) -> bool:
        """Whether outputs depend on what the decoder attends to; the compiled engine does not give that."""
        return bool(self.coverage_penalty) or self.replace_unknown

    def penalty(self, length: int) -> float:
        """Return the length penalty: the divisor of the log-probability of an output of `length` tokens."""
        return length_penalty(length, self.length_penalty, self.length_normalization)
