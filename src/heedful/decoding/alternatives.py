"""Outputs that part right after a prefix."""

from collections.abc import Sequence
from dataclasses import replace

from heedful.decoding.beam import BeamSearch
from heedful.decoding.generator import Generator
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.inputs import num_before_prefix
from heedful.decoding.options import SearchOptions


def search_alternatives(
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]],
    *,
    count: int,
    options: SearchOptions,
    generator: Generator,
    eos_id: int,
) -> list[list[Hypothesis]]:
    """Search one output for each of the `count` most probable tokens after the prefix of each source.

    Args:
        sources: as the encoder reads them.
        prefixes: for each source the ids that its outputs begin with.
        count: of alternatives, at least 1.
        options: of the search after that token, for one output.
        generator: what searches.
        eos_id: the end token.

    Returns:
        For each source its alternatives, that with the most probable token first.
    """
    num_before = num_before_prefix(options)
    # All end at the same position, so it makes no difference when a beam ends early; any engine has "first".
    beam = BeamSearch(beam_size=count, early_stopping="first")
    fork = replace(options, strategy=beam, n_best=count, forced_last_id=None, coverage_penalty=0.0)
    one_more = [num_before + len(ids) + 1 for ids in prefixes]
    forks = generator(sources, options=fork, prefixes=prefixes, max_lengths=one_more)
    starts = [
        (i, [*each.ids[num_before:], *[eos_id] * each.finished])
        for i, hypotheses in enumerate(forks)
        for each in hypotheses
    ]
    ends = generator([sources[i] for i, _ in starts], options=options, prefixes=[ids for _, ids in starts])
    alternatives: list[list[Hypothesis]] = [[] for _ in sources]
    for (i, _), hypotheses in zip(starts, ends, strict=True):
        alternatives[i] += hypotheses
    return alternatives
