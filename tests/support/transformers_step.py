"""A random Marian of transformers, and the step function that lets heedful search over it."""

import functools

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.backends.torch import TorchTokens

VOCAB_SIZE, NUM_SENTENCES = 29, 101
EOS, BOS, START, PAD = 0, 3, 28, 28


@functools.cache
def random_model() -> transformers.MarianMTModel:
    """Marian, tiny; the end token is made so probable that outputs end anywhere before the limit."""
    config = transformers.MarianConfig(
        vocab_size=VOCAB_SIZE, d_model=12, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20, max_position_embeddings=16,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=START, forced_eos_token_id=None,
        scale_embedding=True, tie_word_embeddings=False, init_std=0.6,
    )  # fmt: skip
    torch.manual_seed(23)
    model = transformers.MarianMTModel(config).double().eval()
    model.final_logits_bias[0, EOS] = 3.0
    return model


@functools.cache
def random_sources() -> tuple[Tensor, Tensor]:
    torch.manual_seed(19)
    src = torch.randint(1, PAD, (NUM_SENTENCES, 7))
    mask = torch.arange(7) < torch.randint(2, 8, (NUM_SENTENCES, 1))
    return src.masked_fill(~mask, PAD), mask.long()


class TransformersStep:
    """The step function of their model; it feeds every prefix anew."""

    def __init__(self) -> None:
        src, self.mask = random_sources()
        self.states = random_model().get_encoder()(src, attention_mask=self.mask).last_hidden_state
        self.prefixes = torch.empty(NUM_SENTENCES, 0, dtype=torch.int64)

    def __call__(self, last_ids: NDArray[np.int64]) -> TorchTokens:
        self.prefixes = torch.cat([self.prefixes, torch.from_numpy(last_ids)[:, None]], dim=1)
        logits = random_model()(
            encoder_outputs=(self.states,), attention_mask=self.mask, decoder_input_ids=self.prefixes,
            use_cache=False,
        ).logits  # fmt: skip
        return TorchTokens(logits[:, -1].float().log_softmax(dim=-1))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self.states, self.mask, self.prefixes = self.states[rows], self.mask[rows], self.prefixes[rows]
