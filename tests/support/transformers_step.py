"""A random Marian of transformers, and the step function that lets heedful search over it."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from searches import searched
from tolerances import FLOAT32, close
from torch import Tensor

from heedful.decoding.backends.torch import TorchTokens
from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import Hypothesis, SearchTask

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


Search = Callable[[StepFunction, SearchTask], list[list[Hypothesis]]]


def searched_here(
    options: SearchOptions,
    search: Search = searched,
    *,
    limit: int,
    start_id: int = START,
    prefixes: list[list[int]] | None = None,
    sources: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """What heedful's search finds over their model, for each sentence."""
    task = SearchTask(
        max_lengths=[limit] * NUM_SENTENCES, start_id=start_id, eos_id=EOS, pad_id=PAD, options=options,
        prefixes=prefixes, sources=sources,
    )  # fmt: skip
    with torch.inference_mode():
        return search(TransformersStep(), task)


def generated(
    options: SearchOptions,
    *,
    num_beams: int | None = None,
    model: transformers.MarianMTModel | None = None,
    prefix: Sequence[int] = (),
    processors: Sequence[transformers.LogitsProcessor] = (),
    start_id: int = START,
    **settings: Any,  # noqa: ANN401
) -> tuple[list[list[int]], list[float] | None]:
    """What their search finds: padded outputs, and their scores, if this search of theirs has any."""
    config = transformers.GenerationConfig(
        num_beams=num_beams or options.strategy.beam_size, num_return_sequences=num_beams or options.n_best,
        do_sample=False, use_cache=False, length_penalty=options.length_penalty, eos_token_id=EOS,
        pad_token_id=PAD, decoder_start_token_id=start_id, return_dict_in_generate=True, output_scores=True,
        **settings,
    )  # fmt: skip
    src, mask = random_sources()
    found = (model or random_model()).generate(
        src,
        attention_mask=mask,
        generation_config=config,
        decoder_input_ids=torch.tensor([[start_id, *prefix]]).expand(NUM_SENTENCES, -1),
        logits_processor=transformers.LogitsProcessorList(processors),
    )
    scores = found.get("sequences_scores")
    return found.sequences[:, 1:].tolist(), None if scores is None else scores.tolist()


def assert_same(
    found: Sequence[Hypothesis], theirs: tuple[list[list[int]], list[float] | None], *, but: int = 0
) -> None:
    """The outputs are equal, and the scores, of which the first tokens are no part."""
    sequences, scores = theirs
    tokens = [[*each.ids, EOS] if each.finished else list(each.ids) for each in found]
    assert [ids + [PAD] * (len(sequences[0]) - len(ids)) for ids in tokens] == sequences
    if scores is not None:
        ours = [sum(each.token_log_probs[but:]) if but else each.score for each in found]
        assert ours == close(scores, FLOAT32.SENTENCE)
