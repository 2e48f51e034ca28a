"""`decode_step` gives at each step the logits of `decode` over the whole prefix, for every kind of model."""

from typing import Any

import pytest
import torch

from heedful.model.transformer import Memory, Transformer
from heedful.settings.model import ModelConfig

B, S, STEPS, V = 3, 7, 37, 19  # more steps than the cache has room for at first
MOVES = {2: [2, 0, 0, 1], 5: [3, 3, 1], 6: [2, 1, 0], 17: [1, 1, 1, 0, 2], 30: [4], 33: [0, 0]}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("sizes", [{}, {"d_k": 5, "d_v": 3}])
def test_each_step_equals_the_full_decoder_while_rows_are_repeated_dropped_and_moved(
    norm: str, positions: str, sizes: dict[str, Any]
) -> None:
    torch.manual_seed(29)
    config = ModelConfig(
        d_model=22, num_heads=2, d_ff=13, num_encoder_layers=1, num_decoder_layers=2, norm=norm,
        positions=positions, max_positions=STEPS, src_vocab_size=V, tgt_vocab_size=V, **sizes,
    )  # fmt: skip
    model = Transformer.from_config(config).double().eval()
    src = torch.randint(4, V, (B, S))
    src[1, 3:] = src[2, 1:] = config.src_pad_id
    with torch.no_grad():
        memory = model.encode(src)
        cache = model.start_cache(memory)
        prefixes = torch.empty(B, 0, dtype=torch.int64)
        for step in range(STEPS):
            ids = torch.randint(0, V, (prefixes.shape[0],))
            prefixes = torch.cat([prefixes, ids[:, None]], dim=1)
            found = model.decode_step(ids, cache)
            wanted = model.project(model.decode(prefixes, memory))[:, -1]
            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
            assert cache.length == step + 1
            if step in MOVES:
                rows = torch.tensor(MOVES[step])
                cache.reorder(rows)
                prefixes = prefixes[rows]
                memory = Memory(memory.states[rows], memory.mask[rows])
            assert cache.memory_mask.shape[0] == prefixes.shape[0]
