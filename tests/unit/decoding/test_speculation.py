import math
from itertools import pairwise

import pytest
from step_tables import EOS, PAD, SpeculativeTableStep, TableStep, probability_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import Sampling, SearchOptions
from heedful.decoding.search import search
from heedful.decoding.speculation import Lookup
from heedful.errors import InputError

SOURCE = list(range(3, 23))


def copying(_sentence: int, prefix: tuple[int, ...]) -> list[float]:
    """What copies SOURCE token by token, whatever was written in its place before."""
    wanted = SOURCE[len(prefix)] if len(prefix) < len(SOURCE) else EOS
    return [math.log(0.9 if i == wanted else 0.1 / 22) for i in range(23)]


def searched(step: TableStep, **changes: object) -> list[Hypothesis]:
    settings: dict[str, object] = {"max_lengths": [60], "sources": [SOURCE], "prefixes": None}
    options = {name: value for name, value in changes.items() if name not in settings}
    settings |= {name: value for name, value in changes.items() if name in settings}
    asked = SearchOptions(beam_size=1, **options)  # type: ignore[arg-type]
    found = search(step, task_of(options=asked, **settings))  # type: ignore[arg-type]
    return [hypothesis for [hypothesis] in found]


@pytest.mark.parametrize(("most", "steps"), [(0, 21), (1, 12), (4, 6), (18, 3), (99, 3)])
def test_a_copy_takes_fewer_steps(most: int, steps: int) -> None:
    step = SpeculativeTableStep(copying, 1) if most else TableStep(copying, 1)
    [found] = searched(step, speculate=most)
    assert found.ids == tuple(SOURCE)
    assert len(step.row_counts) == steps


def test_wrong_guesses_cost_rows_and_no_steps() -> None:
    step = SpeculativeTableStep(copying, 1)
    misleading = [each for pair in pairwise(SOURCE) for each in (*pair, PAD)]
    [found] = searched(step, speculate=3, sources=[misleading])
    assert found.ids == tuple(SOURCE)
    assert len(step.row_counts) == 21
    assert max(step.row_counts) == 4


def test_limits_hold_in_the_middle_of_a_guess() -> None:
    for limit in range(1, 22):
        step = SpeculativeTableStep(copying, 1)
        [found] = searched(step, speculate=6, max_lengths=[limit])
        assert (found.ids, found.finished) == (tuple(SOURCE[:limit]), limit == 21)
        assert max(step.row_counts) <= limit
        [forced] = searched(
            SpeculativeTableStep(copying, 1), speculate=6, max_lengths=[limit], forced_last_id=EOS
        )
        assert (forced.ids, forced.finished) == (tuple(SOURCE[: limit - 1]), True)


def test_an_end_is_held_back_in_the_middle_of_a_guess() -> None:
    # After 3 4 the model ends, and source and output have gone on with 5 before: guessed as well.
    table = probability_table(
        {(3, 4, 5, 3, 4)[:n]: {(3, 4, 5, 3, 4)[n]: 1.0} for n in range(5)}
        | {(3, 4, 5, 3, 4): {EOS: 0.9, 5: 0.1}, (3, 4, 5, 3, 4, 5): {EOS: 1.0}},
        6,
    )
    for min_length, ids in ((0, (3, 4, 5, 3, 4)), (6, (3, 4, 5, 3, 4, 5))):
        [found] = searched(SpeculativeTableStep(table, 1), speculate=4, sources=[[]], min_length=min_length)
        assert found.ids == ids
        assert found.finished


def test_suppressed_tokens_are_guessed_in_vain() -> None:
    [found] = searched(SpeculativeTableStep(copying, 1), speculate=4, suppressed_ids=(7,))
    [wanted] = searched(TableStep(copying, 1), suppressed_ids=(7,))
    assert found == wanted
    assert 7 not in found.ids
    assert len(found.ids) == 20


def test_a_prefix_is_fed_in_one_step() -> None:
    step = SpeculativeTableStep(copying, 1)
    [found] = searched(step, speculate=1, sources=[[]], prefixes=[SOURCE[:9]], max_lengths=[12])
    assert found.ids == tuple(SOURCE[:12])
    assert step.row_counts == [10, 1, 1]


def test_outputs_of_different_lengths_are_searched_together() -> None:
    def table(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        return copying(sentence, (*SOURCE[: 5 * sentence], *prefix))  # others copy the end of SOURCE

    sources, limits = [SOURCE, SOURCE[::-1], [], SOURCE], [60, 30, 60, 4]
    step, plain = SpeculativeTableStep(table, 4), TableStep(table, 4)
    found = searched(step, speculate=3, sources=sources, max_lengths=limits)
    assert found == searched(plain, sources=sources, max_lengths=limits)
    assert [each.ids for each in found] == [tuple(SOURCE[k:]) for k in (0, 5, 10)] + [tuple(SOURCE[15:19])]
    assert len(plain.row_counts) == 21
    assert len(step.row_counts) < 21
    assert searched(SpeculativeTableStep(table, 0), speculate=3, sources=[], max_lengths=[]) == []


def test_what_came_next_is_looked_up_by_the_latest_two_tokens() -> None:
    lookup = Lookup([5, 6, 7, 5, 6, 8, 9])
    assert lookup.after_the_latest(3) == []
    lookup.read([6])
    assert lookup.after_the_latest(3) == []
    lookup.read([5, 6])
    assert lookup.after_the_latest(1) == [8]
    assert lookup.after_the_latest(3) == [8, 9, 6]
    lookup.read([9, 5, 6])
    assert lookup.after_the_latest(3) == [9, 5, 6]
    assert Lookup([]).after_the_latest(3) == Lookup([4]).after_the_latest(3) == []


def test_guesses_need_greedy_search_and_a_step_that_checks_them() -> None:
    greedy = {"beam_size": 1}
    for others in ({"beam_size": 2}, greedy | {"sampling": Sampling()}, greedy | {"coverage_penalty": 0.2}):
        with pytest.raises(InputError, match="speculate=3: is for greedy search alone"):
            SearchOptions(speculate=3, **others)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="speculate=-1"):
        SearchOptions(beam_size=1, speculate=-1)
    with pytest.raises(InputError, match="speculate=3: only the compiled engine"):
        searched(TableStep(copying, 1), speculate=3)


def test_impossible_and_damaged_continuations_are_reported() -> None:
    with pytest.raises(InputError, match="no possible continuation"):
        searched(SpeculativeTableStep(copying, 1), speculate=3, suppressed_ids=tuple(range(23)))
    with pytest.raises(InputError, match="not numbers"):
        searched(SpeculativeTableStep(lambda _b, _ids: [math.nan] * 23, 1), speculate=3)
