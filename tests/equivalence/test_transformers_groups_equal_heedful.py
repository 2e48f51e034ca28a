"""Diverse beam search, put together from transformers' beam search, one group after the other.

transformers gave up its own. But its beam search takes logits processors, which see all live beams: this one
notes what a group goes on with, and makes it costly for the groups after it.
"""

import pytest
import torch
import transformers
from torch import Tensor
from transformers_step import EOS, NUM_SENTENCES, PAD, VOCAB_SIZE, generated, searched_here

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import DiverseBeamSearch

LIMIT = 8


class Diversity(transformers.LogitsProcessor):
    """Lets earlier groups' tokens of each place cost something, and notes what this group's beams are."""

    def __init__(self, size: int, penalty: float) -> None:
        self.size, self.penalty = size, penalty
        self.earlier = torch.zeros(LIMIT, NUM_SENTENCES, VOCAB_SIZE)
        self.own = torch.zeros(LIMIT, NUM_SENTENCES, VOCAB_SIZE)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        place = input_ids.shape[1] - 1
        if place:
            chosen = input_ids[:, -1].view(NUM_SENTENCES, self.size)
            self.own[place - 1].scatter_add_(1, chosen, torch.ones_like(chosen, dtype=torch.float32))
        return scores - self.penalty * self.earlier[place].repeat_interleave(self.size, dim=0)

    def next_group(self) -> None:
        self.earlier, self.own = self.earlier + self.own, torch.zeros_like(self.own)


def theirs(options: SearchOptions) -> list[list[tuple[float, list[int]]]]:
    """Of each sentence the different outputs of all groups and their scores, best first."""
    size = options.strategy.beam_size // options.strategy.num_groups
    diversity = Diversity(size, options.strategy.diversity_penalty)
    found: list[dict[tuple[int, ...], float]] = [{} for _ in range(NUM_SENTENCES)]
    for _ in range(options.strategy.num_groups):
        sequences, scores = generated(
            options, num_beams=size, processors=[diversity], early_stopping="never", max_new_tokens=LIMIT,
            min_new_tokens=LIMIT, forced_eos_token_id=EOS, bad_words_ids=[[PAD]],
        )  # fmt: skip
        assert scores is not None
        for row, (ids, score) in enumerate(zip(sequences, scores, strict=True)):
            outputs = found[row // size]
            outputs[tuple(ids)] = max(score, outputs.get(tuple(ids), score))
        diversity.next_group()
    return [sorted(((score, list(ids)) for ids, score in each.items()), reverse=True) for each in found]


@pytest.mark.parametrize(("beam_size", "num_groups"), [(4, 2), (6, 3)])
@pytest.mark.parametrize("penalty", [0.4, 1.5])
def test_groups_are_beams_that_avoid_what_those_before_them_write(
    beam_size: int, num_groups: int, penalty: float
) -> None:
    options = SearchOptions(
        strategy=DiverseBeamSearch(beam_size=beam_size, num_groups=num_groups, diversity_penalty=penalty),
        n_best=beam_size,
        length_penalty=1.0,
        length_normalization="power",
        min_length=LIMIT,
        forced_last_id=EOS,
    )
    found = searched_here(options, limit=LIMIT)
    expected = theirs(options)
    assert [sorted([*each.ids, EOS] for each in one) for one in found] == [
        sorted(ids for _, ids in one) for one in expected
    ]
    for scores in ([each.score for each in one] for one in found):
        assert scores == sorted(scores, reverse=True)
    assert sum(len(one) == beam_size for one in found) > NUM_SENTENCES / 2
