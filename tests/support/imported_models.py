"""Random models of other systems, what they compute, and what is made of their weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from fairseq_system import Fairseq
from prenorm_systems import Annotated, Diary, TorchTranslator, log_space_table
from published_systems import PAD, AbhishekThread, Jadore, Lecture, sinusoid_table
from torch import Tensor, nn

from heedful.interop.layouts import read_layout
from heedful.model.transformer import Transformer
from heedful.storage.torch_weights import load_weights

SRC_VOCAB, TGT_VOCAB = 17, 19
SRC_LENGTHS, TGT_LENGTHS = (7, 2, 4), (3, 5, 4)
D_MODEL, NUM_HEADS, D_FF, NUM_LAYERS = 12, 3, 20, 2
_SIZES = (SRC_VOCAB, TGT_VOCAB, D_MODEL, NUM_HEADS, D_FF, NUM_LAYERS)


@dataclass(frozen=True)
class System:
    """A layout, a random model that has it, and what its weights do not say."""

    layout: str
    build: Callable[[], nn.Module]
    settings: Mapping[str, Any] = field(default_factory=lambda: {"num_heads": NUM_HEADS})


def _lecture(shared: bool) -> nn.Module:
    return Lecture(
        SRC_VOCAB, TGT_VOCAB, D_MODEL, NUM_HEADS, NUM_LAYERS, expansion=4, max_length=11, shared=shared
    )


def _jadore(scaled: str, share_source: bool = False) -> nn.Module:
    src_vocab = TGT_VOCAB if share_source else SRC_VOCAB
    return Jadore(src_vocab, TGT_VOCAB, D_MODEL, D_FF, NUM_LAYERS, NUM_HEADS, 5, 7, scaled, share_source)


def _cosine_over_sine(length: int) -> Tensor:
    """The listing of adeveloperdiary: the sines are overwritten."""
    table = log_space_table(length, D_MODEL)
    table[:, 0::2] = table[:, 1::2]
    return table


_OF_FAIRSEQ = {"num_heads": NUM_HEADS, "src_pad_id": PAD, "tgt_pad_id": PAD}
SYSTEMS: dict[str, System] = {
    "abhishek-thread": System(
        "abhishek-thread", lambda: AbhishekThread(*_SIZES, src_length=11, tgt_length=7), {}
    ),
    "nptel-lecture": System("nptel-lecture", lambda: _lecture(shared=False)),
    "kaggle-notebook": System("kaggle-notebook", lambda: _lecture(shared=True), {}),
    "adeveloperdiary": System("adeveloperdiary", lambda: Diary(*_SIZES, log_space_table(40, D_MODEL))),
    "adeveloperdiary, as listed": System("adeveloperdiary", lambda: Diary(*_SIZES, _cosine_over_sine(40))),
    "jadore, emb": System(
        "jadore", lambda: _jadore("emb"), {"num_heads": NUM_HEADS, "scale_embeddings": True}
    ),
    "jadore, neither": System(
        "jadore", lambda: _jadore("neither", True), {"num_heads": NUM_HEADS, "scale_embeddings": False}
    ),
    "jadore, prj": System("jadore-prj", lambda: _jadore("prj", share_source=True)),
    "torch": System("torch", lambda: TorchTranslator(*_SIZES, log_space_table(40, D_MODEL))),
    "torch, pre-norm": System(
        "torch",
        lambda: TorchTranslator(*_SIZES, sinusoid_table(40, D_MODEL), norm_first=True),
        {"num_heads": NUM_HEADS, "norm": "pre"},
    ),
    "torch, no biases": System(
        "torch", lambda: TorchTranslator(*_SIZES, sinusoid_table(40, D_MODEL), bias=False)
    ),
    "annotated": System("annotated", lambda: Annotated(*_SIZES, log_space_table(5000, D_MODEL))),
    "fairseq": System("fairseq", lambda: Fairseq(*_SIZES, pre_norm=False), _OF_FAIRSEQ),
    "fairseq, pre-norm": System(
        "fairseq",
        lambda: Fairseq(*_SIZES, pre_norm=True),
        _OF_FAIRSEQ | {"activation": "gelu", "scale_embeddings": False},
    ),
}


def random_model(system: System, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Every parameter is random, gains and biases of norms too."""
    torch.manual_seed(71)
    model = system.build()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            is_gain = name.endswith(("alpha", "a_2")) or ("norm" in name and name.endswith("weight"))
            parameter.copy_(1.0 + 0.2 * noise if is_gain else 0.5 * noise)
    return model.to(dtype).eval()


def batch() -> tuple[Tensor, Tensor]:
    """Ids of several lengths, (3, 7) and (3, 5), padded on the right."""
    torch.manual_seed(73)
    rows = len(SRC_LENGTHS)
    src, tgt_in = torch.randint(1, SRC_VOCAB, (rows, 7)), torch.randint(1, TGT_VOCAB, (rows, 5))
    for row, (s, t) in enumerate(zip(SRC_LENGTHS, TGT_LENGTHS, strict=True)):
        src[row, s:], tgt_in[row, t:] = PAD, PAD
    return src, tgt_in


def real_logits(model: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The logits at every position that holds a token."""
    src, tgt_in = batch()
    return model(src, tgt_in).detach()[tgt_in != PAD]


def imported(
    system: System, tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32
) -> Transformer:
    """The model of this package with those weights."""
    found = read_layout(system.layout, tensors, settings=system.settings)
    model = Transformer.from_config(found.config).to(dtype)
    load_weights(model, found.weights, Path("weights"))
    return model.eval()
