"""The settings of the strategies: plain dataclasses, which the command line imports without the searches."""

import math
from dataclasses import dataclass
from typing import Annotated

from heedful.errors import OptionError
from heedful.settings.options import SAMPLING, SEARCH, BeamOptions, Option, check_options


@dataclass(frozen=True, kw_only=True)
class DiverseBeamOptions(BeamOptions):
    """The options of diverse beam search."""

    num_groups: Annotated[
        int,
        Option(
            "Number of groups of diverse beam search; they share the beam.",
            SEARCH,
            minimum=1,
            maximum=1000,
            default="2 with --diversity-penalty, else 1",
        ),
    ] = 2
    diversity_penalty: Annotated[
        float,
        Option(
            "Penalty for a token that an earlier group has at the same position.",
            SEARCH,
            minimum=0,
            maximum=1000,
            default="0.5 with --num-groups",
        ),
    ] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beam_size % self.num_groups:
            raise OptionError(f"num_groups={self.num_groups}: must divide beam_size={self.beam_size}")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """The options of sampling; the defaults sample from the model's distribution."""

    temperature: Annotated[
        float, Option("Softmax temperature; below 1 favours probable tokens.", SAMPLING)
    ] = 1.0
    top_k: Annotated[
        int | None, Option("Sample only from the k most probable tokens.", SAMPLING, minimum=1)
    ] = None
    top_p: Annotated[
        float,
        Option(
            "Nucleus sampling: the fewest tokens whose probabilities sum to at least this.",
            SAMPLING,
            above=0,
            maximum=1,
        ),
    ] = 1.0
    min_p: Annotated[
        float,
        Option(
            "Sample only tokens with at least this fraction of the best token's probability.",
            SAMPLING,
            minimum=0,
            maximum=1,
        ),
    ] = 0.0
    epsilon: Annotated[
        float, Option("Sample only tokens with at least this probability.", SAMPLING, minimum=0, maximum=1)
    ] = 0.0
    seed: Annotated[
        int,
        Option("Random seed; the samples of a line do not depend on the other lines.", SAMPLING, minimum=0),
    ] = 0

    def __post_init__(self) -> None:
        check_options(self)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise OptionError(
                f"temperature={self.temperature}: must be a number above 0; to take the best, search greedily"
            )


@dataclass(frozen=True, kw_only=True)
class MinimumBayesRiskOptions:
    """The options of minimum Bayes risk, without the options of its sampling."""

    samples: Annotated[
        int,
        Option(
            "Minimum Bayes risk: draw this number of samples, and choose the one most similar to all "
            "of them by sentence chrF, its score (0 to 100).",
            SAMPLING,
            minimum=1,
            maximum=100_000,
            metavar="N",
            default="none",
            flags=("--mbr",),
        ),
    ] = 100

    def __post_init__(self) -> None:
        check_options(self)
