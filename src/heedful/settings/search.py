"""The options that all searches share, and those of every beam: `[decode]` of a configuration has most."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from heedful.errors import InputError, SearchCancelledError
from heedful.settings.options import BUNDLE, OUTPUTS, SEARCH, Option, check_options

LengthNormalization = Literal["gnmt", "average"]
EarlyStopping = Literal["optimal", "estimate", "first"]

PAIR_TOKENS = (
    2000  # where source and target are given, neither can be split; memory and time grow by the square
)
_MAX_COUNT = 2**31


def _length(text: str, least: int, *, heading: str = OUTPUTS, default: str = BUNDLE) -> Option:
    return Option(text, heading, minimum=least, maximum=_MAX_COUNT, outer_maximum=1_000_000, default=default)


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

    n_best: Annotated[
        int, Option("Outputs of each sentence.", minimum=1, maximum=100_000, outer_maximum=1000)
    ] = 1
    length_penalty: Annotated[
        float,
        # A power of a length: a float holds it.
        Option("Alpha of the length penalty.", SEARCH, minimum=0, maximum=30, default=BUNDLE),
    ] = 0.6
    length_normalization: Annotated[
        LengthNormalization,
        Option("Scores over ((5 + length) / 6)^alpha, or over length^alpha.", SEARCH, default=BUNDLE),
    ] = "gnmt"
    coverage_penalty: Annotated[
        float,
        Option(
            "Beta of the coverage penalty: outputs should attend to all of the input; 0.2 where "
            "--length-normalization is gnmt, and far less with average.",
            SEARCH,
            minimum=0,
            maximum=1000,
        ),
    ] = 0.0
    max_length_offset: Annotated[
        int, _length("Maximum output length beyond that of the input, in tokens.", 0)
    ] = 50
    max_length: Annotated[int | None, _length("Maximum output length in tokens.", 1)] = None
    min_length: Annotated[int, _length("Minimum output length in tokens.", 0)] = 0
    max_source_tokens: Annotated[
        int | None,
        _length(
            "Maximum length of a source in tokens; longer lines are translated in segments, and refused "
            "where a translation is given.",
            1,
            heading=SEARCH,
            default=f"data.max_length of the training, and {PAIR_TOKENS:,} where a translation is given",
        ),
    ] = None
    forced_first_id: Annotated[
        int | None, Option("First token of every output.", minimum=0, maximum=_MAX_COUNT)
    ] = None
    forced_last_id: Annotated[
        int | None,
        Option("Last token of an output that is as long as allowed.", minimum=0, maximum=_MAX_COUNT),
    ] = None
    suppressed_ids: Annotated[
        tuple[int, ...] | None, Option("Tokens that are never written; none: the begin and padding tokens.")
    ] = None
    renormalize: Annotated[
        bool, Option("Scale the probabilities of the tokens that may be written to a sum of 1.")
    ] = False
    no_repeat_ngram_size: Annotated[
        int,
        Option("Forbid repeating any n-gram of this size; 0 disables.", OUTPUTS, minimum=0, default=BUNDLE),
    ] = 0
    repetition_penalty: Annotated[
        float,
        Option(
            "Above 1, tokens that were written already are penalised.",
            OUTPUTS,
            above=0,
            maximum=1000,  # times a log-probability
            default=BUNDLE,
        ),
    ] = 1.0
    replace_unknown: Annotated[
        bool,
        Option(
            "Write for an unknown word (or character) the one of the input that it attends to most.", OUTPUTS
        ),
    ] = False
    cancelled: Callable[[], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_options(self)
        if min(self.suppressed_ids or (), default=0) < 0:
            raise InputError(f"suppressed_ids={self.suppressed_ids}: must be at least 0")

    def check_cancelled(self) -> None:
        """Check that the outputs are still needed; strategies do so before each step.

        Raises:
            SearchCancelledError: they are not.
        """
        if self.cancelled is not None and self.cancelled():
            raise SearchCancelledError("the search was cancelled")

    def penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of an output of `length` tokens, its end token counted.

        ((5 + length) / 6) ** alpha of GNMT (Wu et al., 2016, section 7), or length ** alpha; an output of the
        end token alone has the penalty 1.
        """
        base = length if self.length_normalization == "average" else (5 + length) / 6
        return float(base**self.length_penalty)


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The options of every beam search.

    Attributes:
        beam_size: live hypotheses of one sentence.
        early_stopping: when to end a sentence. "optimal": when no live hypothesis can still enter its
            n-best list. "estimate": when it has `beam_size` finished hypotheses and the best live one,
            scored at its present length and as if it covered its source, is no better than the worst of
            these. "first": when it has `beam_size` finished hypotheses.
    """

    beam_size: Annotated[
        int,
        Option(
            "Hypotheses kept in the search; 1 is greedy.", SEARCH, minimum=1, maximum=1000, default=BUNDLE
        ),
    ] = 4
    early_stopping: Annotated[
        EarlyStopping,
        Option(
            "When to end a sentence: optimal, when no live hypothesis can win; estimate, when none would win "
            "now; first, when beam-size hypotheses have finished.",
            SEARCH,
            default=BUNDLE,
        ),
    ] = "optimal"

    def __post_init__(self) -> None:
        check_options(self)
