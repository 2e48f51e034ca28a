"""The outputs of a model for sources given as a tensor of ids."""

import sys
from typing import Unpack

import torch
from torch import Tensor

from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.generator import Generator
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.protocol import Strategy
from heedful.decoding.task import Source
from heedful.errors import InputError
from heedful.model.transformer import Transformer, check_ids, check_vocabulary
from heedful.settings.arguments import checked
from heedful.settings.keywords import StrategySettings
from heedful.text.tokenizer import pad
from heedful.text.training import BOS_ID, EOS_ID


@checked
def generate(
    model: Transformer,
    src: Tensor,
    *,
    strategy: Strategy | None = None,
    bos_id: int | None = None,
    eos_id: int | None = None,
    **search: Unpack[StrategySettings],
) -> Tensor:
    """Search the outputs of sources: see `Transformer.generate`.

    Args:
        model: a model on the same device as `src`.
        src: int64 ids (B, S).
        bos_id: the decoder's first input.
        eos_id: the end token.
        strategy: the algorithm; None: `BeamSearch`.
        search: settings of the strategy, and of all strategies.
    """
    config, options = model.config, SearchOptions(strategy=strategy, **search)
    if options.n_best > 1:
        raise InputError(f"n_best={options.n_best}: one output of each source is generated; leave it out")
    if bos_id is None:
        bos_id = BOS_ID if config.decoder_start_id is None else config.decoder_start_id
    eos_id = EOS_ID if eos_id is None else eos_id
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        check_vocabulary(name, torch.tensor([token]), config.tgt_vocab_size)
    generator = Generator(
        backend=TorchBackend([model], "float32"),
        start_id=bos_id,
        eos_id=eos_id,
        pad_id=config.tgt_pad_id,
        vocab_size=config.tgt_vocab_size,
        batch_tokens=sys.maxsize,
    )
    longest = config.max_positions if config.positions == "learned" else None
    rows = _rows(src, config.src_pad_id)
    check_vocabulary("src", src, config.src_vocab_size)
    sources = [Source.of(ids, options, longest=longest) for ids in rows]
    outputs: list[list[int]] = []
    for n_best in generator.search(sources, options):
        best = n_best[0] if n_best else None
        outputs.append([*best.ids, *[generator.eos_id] * best.finished] if best else [])
    return torch.from_numpy(pad(outputs, config.tgt_pad_id)).to(src.device)


def _rows(src: Tensor, pad_id: int) -> list[list[int]]:
    """Return the ids of each row without its padding."""
    check_ids("src", src)
    is_token = src != pad_id
    if (~is_token[:, :-1] & is_token[:, 1:]).any():
        raise InputError(f"src has the id {pad_id} before the end of a row: it is padding, and not a symbol")
    return [row[:length] for row, length in zip(src.tolist(), is_token.sum(dim=1).tolist(), strict=True)]
