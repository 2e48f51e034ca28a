"""Convert the weights of a model to MarianMT's.

Marian's sinusoids have all sines before all cosines, the paper's alternate. Permuting the dimensions of the
residual stream, in all weights that read or write it, converts one model to the other: attention and layer
norms do not depend on their order.
"""

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import InteropError
from heedful.interop.conversion import STACKS
from heedful.interop.fairseq.names import layer_modules
from heedful.model import Transformer

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "swish": "swish"}
_EPS = 1e-5  # fixed in Marian
# Last parts of names: matrices whose columns, and matrices whose rows, are the residual stream.
_READERS = ("query", "key", "value", "inner", "tokens")
_WRITERS = ("output", "outer")


def refuse_what_marian_lacks(config: ModelConfig) -> None:
    """Check that MarianMT supports a model.

    Raises:
        InteropError: it does not support a setting.
    """
    size = config.d_model // config.num_heads
    lacking = {
        f'model.norm="{config.norm}"': config.norm != "post",
        f'model.norm_kind="{config.norm_kind}"': config.norm_kind != "layer",
        f'model.positions="{config.positions}"': config.positions not in ("sinusoidal", "concatenated"),
        f"model.num_kv_heads={config.num_kv_heads}": config.num_kv_heads not in (None, config.num_heads),
        f"model.d_k={config.d_k}": config.head_key_size != size or config.d_model % config.num_heads,
        f"model.d_v={config.d_v}": config.head_value_size != size or config.d_model % config.num_heads,
        "model.gated=true": config.gated,
        "model.embedding_norm=true": config.embedding_norm,
        "model.final_norm=true": config.final_norm,
        f"model.layer_norm_eps={config.layer_norm_eps}": config.layer_norm_eps != _EPS,
    }
    for setting, is_lacking in lacking.items():
        if is_lacking:
            raise InteropError(
                f"--to marian: MarianMT does not support {setting}; use --to ctranslate2 or onnx"
            )


def marian_tensors(model: Transformer) -> dict[str, Tensor]:
    """Return the tensors of a model by the names of MarianMTModel, a shared matrix once.

    Missing biases become zeros.
    """
    config = model.config
    weights = {name: parameter.detach().float() for name, parameter in model.named_parameters()}
    if config.positions == "sinusoidal":
        order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
        weights = {name: _reordered(name, weight, order) for name, weight in weights.items()}
    names = {"encoder.embedding.tokens": "model.encoder.embed_tokens"}
    names |= {"decoder.embedding.tokens": "model.decoder.embed_tokens", "output": "lm_head"}
    if config.tied == "all":
        names["encoder.embedding.tokens"] = "model.shared"
    tensors = {
        f"{names[ours]}.weight": weights[f"{ours}.weight"] for ours in names if f"{ours}.weight" in weights
    }
    bias = weights.get("output.bias", torch.zeros(config.tgt_vocab_size))
    tensors["final_logits_bias"] = bias.reshape(1, -1)
    for stack in STACKS:
        for i in range(getattr(config, f"num_{stack}_layers")):
            for theirs, ours in layer_modules(stack, i):
                weight = weights[f"{ours}.weight"]
                tensors[f"model.{theirs}.weight"] = weight
                tensors[f"model.{theirs}.bias"] = weights.get(f"{ours}.bias", torch.zeros(len(weight)))
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _reordered(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """Return a weight or bias for a residual stream with its dimensions in another order."""
    module, _, kind = name.rpartition(".")
    part = module.rpartition(".")[2]
    if module == "output" or part in _READERS:
        return weight[:, order] if kind == "weight" else weight
    assert part in _WRITERS or part.endswith("_norm"), name
    return weight[order]
