"""The options of a search as CTranslate2 names them, and those that it does not have."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heedful.config import DecodeConfig
from heedful.decoding.beam import BeamSearch
from heedful.decoding.diverse_beam import DiverseBeamSearch
from heedful.decoding.greedy import Greedy
from heedful.decoding.minimum_bayes_risk import MinimumBayesRisk
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import Sampling


def penalties(search: SearchOptions | DecodeConfig) -> dict[str, float]:
    """Return what every search of CTranslate2 goes by, whatever its strategy."""
    return {
        "length_penalty": search.length_penalty,
        "repetition_penalty": search.repetition_penalty,
        "no_repeat_ngram_size": search.no_repeat_ngram_size,
        "min_decoding_length": search.min_length,
    }


def sum_of_log_probs(score: float, length: int, options: SearchOptions) -> float:
    """Return the log-probability of an output of `length` tokens that CTranslate2 gives a score."""
    return score * float(length**options.length_penalty)


def lacking(options: SearchOptions, eos_id: int) -> Iterator[str]:
    """Yield each option that CTranslate2 does not have, and what it has instead."""
    if options.forced_last_id not in (None, eos_id):
        yield f"forced_last_id={options.forced_last_id}"
    if options.coverage_penalty:
        yield f"coverage_penalty={options.coverage_penalty}"
    if options.prefix_bias is not None:
        yield f"prefix_bias={options.prefix_bias}"
    if sampled := sampled_by(options):
        for name in ("min_p", "epsilon", "seed"):
            if value := getattr(sampled.strategy, name):
                yield f"{name}={value}"
        return
    strategy = options.strategy
    if not isinstance(strategy, Greedy | BeamSearch | DiverseBeamSearch):
        yield f"strategy={strategy}"
        return
    beam = beam_of(options)
    if beam.beam_size == 1:
        return
    if isinstance(strategy, DiverseBeamSearch) and strategy.num_groups > 1:
        yield f"num_groups={strategy.num_groups}"
    if options.length_penalty and options.length_normalization != "average":
        yield f"length_normalization={options.length_normalization!r} (use 'average')"
    provably_best = not options.length_penalty and options.n_best == 1
    if beam.early_stopping != "first" and not (beam.early_stopping == "optimal" and provably_best):
        yield f"early_stopping={beam.early_stopping!r} (use 'first')"


@dataclass(frozen=True)
class Sampled:
    """How outputs are drawn, and how many of each sentence."""

    strategy: Sampling
    count: int


def sampled_by(options: SearchOptions) -> Sampled | None:
    """Return how outputs are drawn; None where they are searched."""
    match options.strategy:
        case Sampling() as sampling:
            return Sampled(sampling, options.n_best)
        case MinimumBayesRisk(samples=samples, sampling=sampling):
            return Sampled(sampling, samples)
    return None


def beam_of(options: SearchOptions) -> BeamSearch:
    """Return the beam of a search: of one where it has none."""
    match options.strategy:
        case BeamSearch() as beam:
            return beam
        case DiverseBeamSearch(beam_size=beam_size, early_stopping=early_stopping):
            return BeamSearch(beam_size=beam_size, early_stopping=early_stopping)
    return BeamSearch(beam_size=1)


def search_settings(options: SearchOptions, *, whole_beam: bool) -> dict[str, Any]:
    """Return the options as arguments of CTranslate2's search, but for those that depend on the model."""
    beam = beam_of(options)
    settings: dict[str, Any] = {
        "beam_size": beam.beam_size,
        "num_hypotheses": beam.beam_size if whole_beam else options.n_best,
        # Without a length penalty it ends by "optimal", unless it is asked for patience.
        "patience": 1.0 if beam.early_stopping == "optimal" else 1.0001,
        **penalties(options),
        "max_input_length": 0,
        "return_end_token": True,
        "return_scores": True,
    }
    if sampled := sampled_by(options):
        settings |= {
            "beam_size": 1,
            "num_hypotheses": sampled.count,
            "patience": sampled.count,  # without which it refuses to draw several of the best token alone
            "sampling_topk": sampled.strategy.top_k or 0,
            "sampling_topp": sampled.strategy.top_p,
            "sampling_temperature": sampled.strategy.temperature,
        }
    return settings
