"""Decoding token by token with a cache gives the numbers of the whole decoder, step by step."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from searches import searched, searched_by_beam, searched_greedily
from torch import Tensor

from heedful.decoding.backends.torch import ModelStep, TorchTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import SearchTask
from heedful.model.transformer import Memory, Transformer
from heedful.settings.model import ModelConfig

PAD, BOS, EOS = 0, 2, 3
VOCAB_SIZE = 17


def task_of(max_lengths: list[int], options: SearchOptions) -> SearchTask:
    return SearchTask(max_lengths=max_lengths, start_id=BOS, eos_id=EOS, pad_id=PAD, options=options)


class FullStep:
    """The step function without a cache: it feeds every prefix anew."""

    def __init__(self, model: Transformer, src: Tensor) -> None:
        self.model = model
        self.memory = model.encode(src)
        self.prefixes = torch.empty(len(src), 0, dtype=torch.int64)

    def __call__(self, last_ids: NDArray[np.int64]) -> TorchTokens:
        self.prefixes = torch.cat([self.prefixes, torch.as_tensor(last_ids)[:, None]], dim=1)
        states = self.model.decode(self.prefixes, self.memory)
        return TorchTokens(self.model.project(states)[:, -1].log_softmax(dim=-1))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self.prefixes = self.prefixes[rows]
        self.memory = Memory(self.memory.states[rows], self.memory.mask[rows])


class BothSteps:
    """Asks the cached and the full step at once, and compares."""

    def __init__(self, model: Transformer, src: Tensor) -> None:
        self.cached, self.full = ModelStep(model, src), FullStep(model, src)
        self.row_counts: list[int] = []
        self.largest_difference = 0.0

    def __call__(self, last_ids: NDArray[np.int64]) -> TorchTokens:
        tokens = self.cached(last_ids)
        cached, full = tokens.log_probs(), self.full(last_ids).log_probs()
        self.row_counts.append(len(last_ids))
        self.largest_difference = max(self.largest_difference, float((cached - full).abs().max()))
        return tokens

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self.cached.reorder(rows)
        self.full.reorder(rows)


def tiny_model(**changes: object) -> Transformer:
    settings = {
        "d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "src_vocab_size": VOCAB_SIZE, "tgt_vocab_size": VOCAB_SIZE,
    }  # fmt: skip
    torch.manual_seed(5)
    model = Transformer.from_config(ModelConfig(**{**settings, **changes}))  # type: ignore[arg-type]
    return model.double().eval()


def padded_sources() -> Tensor:
    torch.manual_seed(6)
    src = torch.randint(4, VOCAB_SIZE, (5, 7))
    for row, length in enumerate((7, 2, 5, 1, 7)):
        src[row, length - 1] = EOS
        src[row, length:] = PAD
    return src


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "activation": "gelu"},
        {"positions": "learned", "max_positions": 40, "tied": "none"},
        {"d_k": 5, "d_v": 7, "attention_bias": False},
    ],
)
@pytest.mark.parametrize(
    ("search", "beam_size"),
    [(searched_greedily, 1), (searched_by_beam, 1), (searched_by_beam, 3), (searched_by_beam, 5)],
)
def test_cached_decoding_equals_full_decoding_at_each_step_of_a_search(
    changes: dict[str, object], search: Callable[..., object], beam_size: int
) -> None:
    with torch.inference_mode():
        step = BothSteps(tiny_model(**changes), padded_sources())
        options = SearchOptions(strategy=BeamSearch(beam_size=beam_size), n_best=beam_size)
        found = search(step, task_of([20, 6, 11, 1, 30], options))
    assert step.largest_difference < 1e-10
    assert step.row_counts[0] == 5
    assert step.row_counts[-1] < max(step.row_counts)  # sentences left the batch
    assert len(found) == 5  # type: ignore[arg-type]


def test_neighbours_and_padding_change_no_search_result() -> None:
    model, src = tiny_model(), padded_sources()
    options = SearchOptions(strategy=BeamSearch(beam_size=4), n_best=4)
    with torch.inference_mode():
        together = searched(ModelStep(model, src), task_of([12] * 5, options))
        for row, hypotheses in enumerate(together):
            length = int((src[row] != PAD).sum())
            alone = ModelStep(model, src[row : row + 1, :length])
            [found] = searched(alone, task_of([12], options))
            assert [hypothesis.ids for hypothesis in found] == [hypothesis.ids for hypothesis in hypotheses]
            scores = [hypothesis.score for hypothesis in hypotheses]
            assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, abs=1e-10)
