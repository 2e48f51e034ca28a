"""The search that the options ask for."""

from collections.abc import Sequence

from heedful.decoding.beam import beam_search
from heedful.decoding.diverse_beam import diverse_beam_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import sample_search
from heedful.decoding.speculation import speculative_search
from heedful.decoding.step_function import SpeculativeStep, StepFunction
from heedful.errors import InputError


def search(
    step: StepFunction,
    *,
    max_lengths: Sequence[int],
    start_id: int,
    eos_id: int,
    pad_id: int,
    options: SearchOptions,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Search one batch: by chance, greedily, with a beam or with one in groups.

    Args:
        step: has one row for each sentence, not fed yet.
        max_lengths: for each sentence, the most tokens to generate, the end token included; at least 1.
        start_id: fed first.
        eos_id: ends an output.
        pad_id: never generated, like `start_id`, unless the options say otherwise.
        options: what to search.
        sources: the ids of each sentence; only chance and guesses ask for them.
        prefixes: for each sentence what its outputs begin with (see `Constraints`).

    Returns:
        For each sentence at most `options.n_best` hypotheses, best first, or as they were drawn.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation; guesses
            where the step function cannot check them.
    """
    if options.sampling is not None:
        return sample_search(
            step, max_lengths=max_lengths, start_id=start_id, eos_id=eos_id, pad_id=pad_id, options=options,
            sources=sources, prefixes=prefixes,
        )  # fmt: skip
    if options.speculate:
        if not isinstance(step, SpeculativeStep):
            raise InputError(
                f"speculate={options.speculate}: only the compiled engine checks guesses, and of one model; "
                "set speculate=0 (engine='compiled' says what speaks against the engine here)"
            )
        return speculative_search(
            step, max_lengths=max_lengths, start_id=start_id, eos_id=eos_id, pad_id=pad_id, options=options,
            sources=sources, prefixes=prefixes,
        )  # fmt: skip
    is_greedy = options.beam_size == 1 and not options.coverage_penalty  # a beam of one is the same, with it
    without_chance = greedy_search if is_greedy else beam_search
    if options.num_groups > 1:
        without_chance = diverse_beam_search
    return without_chance(
        step, max_lengths=max_lengths, start_id=start_id, eos_id=eos_id, pad_id=pad_id, options=options,
        prefixes=prefixes,
    )  # fmt: skip
