import math

import pytest
import torch
from small_models import small_model
from step_tables import TableStep, random_table, task_of
from tolerances import FLOAT32, assert_close, close

from heedful.decoding.backends.torch import ForcedStep, ModelStep
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import score_outputs
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.errors import NotNumbersError
from heedful.model.transformer import Transformer

PAD, BOS, EOS = 0, 2, 3
SRC = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]])


def score(
    outputs: list[list[int]], *, limits: tuple[int, int] = (9, 9), model: Transformer | None = None,
    **options: object,
) -> list[Hypothesis]:  # fmt: skip
    asked = SearchOptions(**options)  # type: ignore[arg-type]
    task = SearchTask(max_lengths=limits, start_id=BOS, eos_id=EOS, pad_id=PAD, options=asked)
    with torch.inference_mode():
        step = ForcedStep(model or small_model().eval(), SRC, outputs, start_id=BOS)
        return score_outputs(step, outputs, task)


def test_a_log_probability_is_the_models_own() -> None:
    model = small_model().eval()
    outputs = [[8, 8, 5, EOS], [4, EOS]]
    for row, found in enumerate(score(outputs, length_penalty=0.6)):
        length = int((SRC[row] != PAD).sum())
        logits = model(SRC[row : row + 1, :length], torch.tensor([[BOS, *outputs[row][:-1]]]))
        wanted = logits.log_softmax(dim=-1)[0, range(len(outputs[row])), outputs[row]].tolist()
        assert found.token_log_probs == close(wanted, FLOAT32.MODEL)
        assert found.log_prob == sum(found.token_log_probs)
        assert found.score == found.log_prob / ((5 + len(wanted)) / 6) ** 0.6
        assert (list(found.ids), found.finished) == (outputs[row][:-1], True)


def test_an_output_without_its_end_token_is_a_cut_one() -> None:
    whole, cut = score([[8, 8, EOS], [4, 5]])
    assert (whole.finished, cut.finished) == (True, False)
    assert (cut.ids, len(cut.token_log_probs)) == ((4, 5), 2)


def test_what_a_search_may_not_write_is_impossible() -> None:
    first, second = score([[4, BOS, EOS], [4, 5, EOS]], suppressed_ids=(BOS, 5))
    for found in (first, second):
        assert (found.token_log_probs[1], found.log_prob, found.score) == (-math.inf,) * 3
        assert all(value > -math.inf for value in found.token_log_probs[::2])
    assert [found.log_prob > -math.inf for found in score([[4, 5, EOS], [4, EOS]], min_length=2)] == [
        True,
        False,
    ]


def test_the_last_token_is_forced_where_the_output_ends_at_its_limit_and_nowhere_else() -> None:
    outputs = [[8, 4, 5, EOS], [4, 5, 8, EOS]]
    free = score(outputs)
    at_limit, beyond_limit = score(outputs, limits=(4, 2), forced_last_id=EOS)
    assert at_limit.token_log_probs == (*free[0].token_log_probs[:-1], 0.0)
    assert beyond_limit == free[1]
    assert score(outputs, limits=(9, 9), forced_last_id=EOS) == free
    assert score(outputs, limits=(4, 4), forced_last_id=8)[0].token_log_probs[-1] == -math.inf


def test_few_places_are_projected_at_a_time_and_none_where_an_output_has_ended() -> None:
    model = small_model(d_model=2, num_heads=1, tgt_vocab_size=70_000, tied="none").eval()
    rows: list[int] = []
    model.output.register_forward_hook(lambda _module, _inputs, logits: rows.append(len(logits)))
    outputs = [[5] * 149 + [EOS], [6] * 9 + [EOS]]
    found = score(outputs, model=model)
    # 70,000 log-probabilities fit 59 times into the piece, so 29 places of two rows, then 59 of one.
    assert rows == [64, 64, 64, 64]  # 58, 59, 59, 3, and what fills them up
    alone = score([[7, EOS], outputs[1]], model=model)
    assert found[1].token_log_probs == close(alone[1].token_log_probs, FLOAT32.MODEL)


def test_rows_of_a_forced_step_may_be_repeated_dropped_and_moved() -> None:
    model, outputs = small_model().eval(), [[8, 8, 5, 6, EOS], [4, 9, EOS, 1, 1]]
    with torch.inference_mode():
        forced, wanted = ForcedStep(model, SRC, outputs, start_id=BOS), ModelStep(model, SRC)
        of_rows, fed = torch.arange(2), torch.tensor([BOS, BOS])
        for place, rows in enumerate(([1, 0, 1], [2, 1], [0, 0, 1], [1])):
            assert_close(forced(fed).log_probs(), wanted(fed).log_probs(), FLOAT32.MODEL)
            for step in (forced, wanted):
                step.reorder(torch.tensor(rows))
            of_rows = of_rows[torch.tensor(rows)]
            fed = torch.tensor(outputs)[of_rows, place]
        assert_close(forced(fed).log_probs(), wanted(fed).log_probs(), FLOAT32.MODEL)


def test_any_step_function_will_do_and_outputs_that_end_leave_it() -> None:
    step = TableStep(random_table(3, 7), 3)
    outputs = [[3, 4, 5, 2], [2], [6, 2]]
    found = score_outputs(step, outputs, task_of([9, 9, 9], SearchOptions()))
    table = random_table(3, 7)
    for sentence, (output, hypothesis) in enumerate(zip(outputs, found, strict=True)):
        looked_up = [table(sentence, tuple(output[:place]))[i] for place, i in enumerate(output)]
        assert list(hypothesis.token_log_probs) == looked_up
    assert step.row_counts == [3, 2, 1, 1]


def test_log_probabilities_that_are_no_numbers_are_reported() -> None:
    model = small_model().eval()
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    with pytest.raises(NotNumbersError):
        score([[8, EOS], [4, EOS]], model=model)
