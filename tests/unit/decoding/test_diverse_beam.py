import math
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from searches import searched
from step_tables import EOS, Table, TableStep, constrained, random_table, task_of

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import DiverseBeamSearch
from heedful.decoding.task import Hypothesis

Found = list[tuple[float, tuple[int, ...]]]  # ranks and tokens


def search(
    step: TableStep,
    max_lengths: list[int],
    options: SearchOptions,
    prefixes: list[list[int]] | None = None,
) -> list[list[Hypothesis]]:
    return searched(step, task_of(max_lengths, options, prefixes=prefixes))


def tokens_of(hypothesis: Hypothesis) -> tuple[int, ...]:
    return (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids


def written_out(
    table: Table, sentence: int, limit: int, options: SearchOptions, prefixes: list[list[int]]
) -> Found:
    """The algorithm for one sentence, token by token, without a thought of speed."""
    allowed = constrained(table, options, limit, prefixes)
    size = options.strategy.beam_size // options.strategy.num_groups
    groups: list[Found] = [[(0.0, ())] for _ in range(options.strategy.num_groups)]
    ended: list[Found] = [[] for _ in groups]
    for length in range(1, limit + 1):
        taken: Counter[int] = Counter()
        cost = 0.0 if length <= len(prefixes[sentence]) else options.strategy.diversity_penalty
        for g, live in enumerate(groups):
            extensions = [
                (total + value - cost * taken[token], (*tokens, token))
                for total, tokens in live
                for token, value in enumerate(allowed(sentence, tokens))
                if value > -math.inf
            ]
            extensions.sort(key=lambda each: -each[0])
            is_end = [tokens[-1] == EOS or length == limit for _, tokens in extensions]
            ended[g] += [
                (total / options.penalty(length), tokens)
                for (total, tokens), ends in list(zip(extensions, is_end, strict=True))[:size]
                if ends
            ]
            ended[g].sort(key=lambda each: -each[0])
            kept = min(size, options.n_best)
            del ended[g][kept:]
            bar = ended[g][kept - 1][0] if len(ended[g]) >= kept else -math.inf
            going_on = [each for each, ends in zip(extensions[: 2 * size], is_end, strict=False) if not ends]
            groups[g] = going_on[:size]
            is_decided = going_on and going_on[0][0] / options.penalty(limit) <= bar
            if is_decided or (size == 1 and ended[g]):
                groups[g] = []
            taken.update(tokens[-1] for _, tokens in groups[g])

    def score(tokens: tuple[int, ...]) -> float:
        own = [table(sentence, tokens[:t])[token] for t, token in enumerate(tokens)]
        return sum(own) / options.penalty(len(tokens))

    outputs = {tokens for group in ended for _, tokens in group}
    return sorted(((score(tokens), tokens) for tokens in outputs), reverse=True)[: options.n_best]


@settings(max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(5, 8),
    limits=st.lists(st.integers(1, 6), min_size=3, max_size=3),
    prefixes=st.lists(st.lists(st.integers(3, 4), max_size=2), min_size=3, max_size=3),
    shape=st.sampled_from([(2, 2), (4, 2), (6, 2), (8, 2), (6, 3), (4, 4)]),
    n_best=st.integers(1, 4),
    penalty=st.sampled_from([0.0, 0.3, 1.0, 20.0]),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_groups_find_what_the_algorithm_written_out_finds(
    seed: int,
    vocab_size: int,
    limits: list[int],
    prefixes: list[list[int]],
    shape: tuple[int, int],
    n_best: int,
    penalty: float,
    alpha: float,
) -> None:
    beam_size, num_groups = shape
    options = SearchOptions(
        strategy=DiverseBeamSearch(beam_size=beam_size, num_groups=num_groups, diversity_penalty=penalty),
        n_best=min(n_best, beam_size),
        length_penalty=alpha,
        min_length=seed % 3,
    )
    table = random_table(seed, vocab_size)
    found = search(TableStep(table, len(limits)), limits, options, prefixes)
    for b, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        expected = written_out(table, b, limit, options, prefixes)
        assert list(map(tokens_of, hypotheses)) == [tokens for _, tokens in expected]
        for hypothesis in hypotheses:
            tokens = tokens_of(hypothesis)
            own = [table(b, tokens[:t])[token] for t, token in enumerate(tokens)]
            assert list(hypothesis.token_log_probs) == own
            assert hypothesis.score == hypothesis.log_prob / options.penalty(len(tokens))
