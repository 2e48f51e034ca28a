"""Random models as ONNX Runtime computes them, step by step, and texts for them."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from option_models import SRC_PAD, SRC_VOCAB, TGT_PAD, TGT_VOCAB, option_model
from torch import Tensor

from heedful.interop.onnx.runtime import OnnxBackend
from heedful.settings.run import Config, TokenizerConfig
from heedful.storage.bundle import Bundle
from heedful.text import TokenizerPair
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

SRC_WORDS = ["[UNK]", "r1", "[SOS]", "[EOS]", "[PAD]", *(f"r{i}" for i in range(5, SRC_VOCAB))]
TGT_WORDS = ["<unk>", "<pad>", "<s>", "</s>", *(f"t{i}" for i in range(4, TGT_VOCAB))]
BOS = 2


def random_bundle(*, sections: dict[str, Any] | None = None, **changes: Any) -> Bundle:  # noqa: ANN401
    """A model of options in float32; source and target have vocabularies and special tokens of their own."""
    assert (SRC_WORDS[SRC_PAD], TGT_WORDS[TGT_PAD]) == ("[PAD]", "<pad>")
    model = option_model(**changes).float()
    tokenizers = TokenizerPair(tokenizer_from_words(SRC_WORDS), tokenizer_from_words(TGT_WORDS))
    config = Config(
        model=model.config, tokenizer=TokenizerConfig(kind="word", joint=False), **(sections or {})
    )
    return Bundle(config, tokenizers, model)


def random_texts(count: int, longest: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(SRC_WORDS[5:], k=draw.randint(1, longest))) for _ in range(count)]


def random_ids(rows: int, src_length: int, tgt_length: int) -> tuple[Tensor, Tensor]:
    """Source ids, of which the last row is half padding, and target ids that begin with the begin token."""
    generator = torch.Generator().manual_seed(1000 * rows + src_length)
    src = torch.randint(5, SRC_VOCAB, (rows, src_length), generator=generator)
    if rows > 1:
        src[-1, (src_length + 1) // 2 :] = SRC_PAD
    tgt = torch.randint(5, TGT_VOCAB, (rows, tgt_length), generator=generator)
    tgt[:, 0] = BOS
    return src, tgt


def backend_of(directory: Path, src_pad_id: int) -> OnnxBackend:
    """On one thread: those of such small models wait more than they compute."""
    return OnnxBackend.load(directory, src_pad_id=src_pad_id, threads=1)


def stepwise_log_probs(directory: Path, src: Tensor, tgt_in: Tensor) -> NDArray[np.float32]:
    """(B, T, V), one position after the other."""
    # A source ends in its padding, which the backend adds again.
    sources = [[i for i in row if i != SRC_PAD] for row in src.tolist()]
    with backend_of(directory, SRC_PAD).step(sources) as step:
        log_probs = [step(ids).log_probs() for ids in tgt_in.numpy().T]
    return np.stack(log_probs, axis=1)
