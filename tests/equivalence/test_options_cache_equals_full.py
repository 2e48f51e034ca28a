"""Decoding step by step gives what the whole decoder gives, with every option and any combination of them."""

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from option_models import EVERY, RELATIVE, SRC_VOCAB, TGT_VOCAB, option_inputs, option_model

from heedful.model.transformer import Memory, Transformer
from heedful.ops.attention import AttentionImplementation, attention_implementation
from heedful.settings.model import ModelConfig

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
            wanted = model.project(model.decode(prefixes, memory))[:, -1]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
            assert cache.length == step + 1
            if step in MOVES:
                rows = torch.tensor(MOVES[step])
                cache.reorder(rows)
                prefixes, memory = prefixes[rows], Memory(memory.states[rows], memory.mask[rows])


@pytest.mark.parametrize("name", EVERY)
def test_each_step_equals_the_full_decoder_while_rows_are_repeated_dropped_and_moved(name: str) -> None:
    assert_steps_equal_the_whole(option_model(**EVERY[name]))


def some(key: str) -> Any:  # noqa: ANN401
    """Any value that the schema names."""
    return st.sampled_from(get_args(ModelConfig.model_fields[key].annotation))


@settings(max_examples=25, deadline=None, derandomize=True)
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
            wanted = model.project(model.decode(prefixes, memory))[:, -1]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


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
        torch.testing.assert_close(found, model.decode(tgt_in, memory), rtol=1e-10, atol=1e-10)
