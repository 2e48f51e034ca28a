"""A small model of many languages with random weights, and NLLB's tokenizer and special tokens."""

from functools import cache

import torch
from small_tokenizers import nllb_pair

from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, DecodeConfig, LanguageConfig
from heedful.storage.bundle import Bundle


@cache
def nllb_like(*, positions: str = "fairseq", max_positions: int = 1024) -> Bundle:
    """The model itself, from English to German unless told otherwise; do not change it."""
    pair = nllb_pair()
    size = pair.src.vocab_size
    sizes = ModelConfig.model_validate(
        {
            "d_model": 32, "num_heads": 2, "d_ff": 64, "num_encoder_layers": 2, "num_decoder_layers": 2,
            "dropout": 0.0, "norm": "pre", "positions": positions, "max_positions": max_positions,
            "decoder_start_id": pair.tgt.eos_id, "src_vocab_size": size, "tgt_vocab_size": size,
            "src_pad_id": pair.src.pad_id, "tgt_pad_id": pair.tgt.pad_id,
        }
    )  # fmt: skip
    config = Config(
        model=sizes,
        languages=LanguageConfig(src_tag="eng_Latn", tgt_tag="deu_Latn"),
        decode=DecodeConfig(beam_size=3, max_length_offset=6),
    )
    torch.manual_seed(5)
    model = Transformer.from_config(sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that outputs differ
            parameter.mul_(5.0)
    return Bundle(config, pair, model)
