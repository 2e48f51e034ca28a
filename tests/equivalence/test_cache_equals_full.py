"""Decoding token by token with a cache gives the numbers of the whole decoder, step by step."""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from option_models import EVERY, RELATIVE, SRC_VOCAB, TGT_VOCAB, option_inputs, option_model
from searches import searched, searched_by_beam, searched_greedily
from tolerances import FLOAT64, assert_close, close
from torch import Tensor

from heedful.decoding.backends.torch import ModelStep, TorchTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import SearchTask
from heedful.model.attention import Memory
from heedful.model.transformer import Transformer
from heedful.ops.attention import AttentionImplementation, attention_implementation
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
        logits = self.model.decode(self.prefixes, self.memory)
        return TorchTokens(logits[:, -1].log_softmax(dim=-1))

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
    assert step.largest_difference == close(0.0, FLOAT64.MODEL)
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
            assert [hypothesis.score for hypothesis in found] == close(scores, FLOAT64.SENTENCE)


STEPS = 23  # more than the cache has room for at first, and further than relative positions tell apart
MOVES = {2: [2, 0, 0, 1], 5: [3, 3, 1], 6: [2, 1, 0], 17: [1, 1, 1, 0, 2], 20: [4]}


def assert_steps_equal_the_whole(model: Transformer, steps: int = STEPS) -> None:
    """While rows are repeated, dropped and moved, as a beam does."""
    src, _ = option_inputs()
    with torch.no_grad():
        memory = model.encode(src)
        cache = model.start_cache(memory)
        prefixes = torch.empty(len(src), 0, dtype=torch.int64)
        for step in range(steps):
            ids = torch.randint(0, TGT_VOCAB, (len(prefixes),))
            prefixes = torch.cat([prefixes, ids[:, None]], dim=1)
            found = model.decode_step(ids, cache)
            wanted = model.decode(prefixes, memory)[:, -1]
            assert_close(found, wanted, FLOAT64.MODEL)
            assert cache.length == step + 1
            if step in MOVES:
                rows = torch.tensor(MOVES[step])
                cache.reorder(rows)
                prefixes, memory = prefixes[rows], Memory(memory.states[rows], memory.mask[rows])


@pytest.mark.parametrize("name", EVERY)
def test_each_step_equals_the_full_decoder_while_rows_are_repeated_dropped_and_moved(name: str) -> None:
    assert_steps_equal_the_whole(option_model(**EVERY[name]))


def some(key: str) -> Any:  # noqa: ANN401
    """Any value that the schema names, apart from parts of plugins."""
    kinds = get_args(ModelConfig.model_fields[key].annotation)
    return st.sampled_from(get_args(kinds[0]) or kinds)


@settings(max_examples=25, derandomize=True)
@given(
    positions=some("positions"), norm=some("norm"), norm_kind=some("norm_kind"),
    activation=some("activation"), gated=st.booleans(), final_norm=st.booleans(),
    embedding_norm=st.booleans(), num_kv_heads=st.sampled_from([None, 1, 2, 4]), d_k=st.sampled_from([2, 6]),
    d_v=st.sampled_from([None, 3]), attention_bias=st.booleans(), feed_forward_bias=st.booleans(),
)  # fmt: skip
def test_each_step_equals_the_full_decoder_with_any_combination(**changes: Any) -> None:  # noqa: ANN401
    assert_steps_equal_the_whole(option_model(**(RELATIVE | changes)), steps=7)


@pytest.mark.parametrize("name", EVERY)
def test_a_beam_of_one_source_may_branch_and_drop_its_rows(name: str) -> None:
    """Rows that share a sentence: the source side is not copied, the past is."""
    model = option_model(**EVERY[name])
    src = torch.randint(5, SRC_VOCAB, (1, 5)).expand(3, 5)
    with torch.no_grad():
        memory = model.encode(src)
        cache = model.start_cache(memory)
        prefixes = torch.empty(3, 0, dtype=torch.int64)
        for rows in ([0, 1, 2], [2, 2, 0], [1, 0, 0], [0, 0, 0]):
            prefixes = torch.cat([prefixes[rows], torch.randint(5, TGT_VOCAB, (3, 1))], dim=1)
            cache.reorder(torch.tensor(rows))
            found = model.decode_step(prefixes[:, -1], cache)
            wanted = model.decode(prefixes, memory)[:, -1]
            assert_close(found, wanted, FLOAT64.MODEL)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", EVERY)
def test_several_positions_at_a_time_give_what_the_whole_decoder_gives(
    name: str, implementation: AttentionImplementation
) -> None:
    """A prefix that is known is fed as one piece: none of its positions sees a later one."""
    model = option_model(**EVERY[name])
    src, _ = option_inputs()
    tgt_in = torch.randint(0, TGT_VOCAB, (len(src), 41))
    with torch.no_grad(), attention_implementation(model, implementation):
        memory = model.encode(src)
        cache = model.start_cache(memory)
        chunks = tgt_in.split([2, 1, 30, 8], dim=1)
        found = torch.cat([model.decoder(chunk, memory, cache=cache) for chunk in chunks], dim=1)
        assert_close(found, model.decoder(tgt_in, memory), FLOAT64.MODEL)
