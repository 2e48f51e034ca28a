"""Adapters of a bundle with random matrices, and the bundles that they would be merged into."""

from dataclasses import replace
from pathlib import Path

import torch

from heedful.ops.lora import adapter_matrices, add_adapters, without_adapters
from heedful.settings.run import LoraConfig
from heedful.storage.adapter import adapter_content
from heedful.storage.bundle import Bundle, load_bundle
from heedful.storage.description import WEIGHTS_FILE, file_sha256


def save_adapter(base: Path, file: Path, *, seed: int, size: float = 1.0) -> Bundle:
    """Write the adapter, and return the merged model."""
    bundle = load_bundle(base)
    torch.manual_seed(seed)
    lora = LoraConfig(rank=3, alpha=6.0, targets=("query", "value", "output", "inner"))
    add_adapters(bundle.model, lora)
    matrices = adapter_matrices(bundle.model)
    for name, matrix in matrices.items():
        if name.endswith("lora_b"):
            matrix.normal_(std=size * len(matrix) ** -0.5)
    arrays = {name: matrix.numpy() for name, matrix in matrices.items()}
    file.write_bytes(adapter_content(arrays, lora, base=file_sha256(base / WEIGHTS_FILE)))
    return replace(bundle, network=without_adapters(bundle.model), path=None)
