"""An adapter: low-rank changes of the linear layers of a base model (LoRA; Hu et al., 2021), in a small file.

    adapter.safetensors   A (rank, in) and B (out, rank) of each layer, as LAYER.lora_a and LAYER.lora_b; its
                          metadata are rank, alpha, targets, and the checksum of the base's weights

Fine-tuning with LoRA leaves it in the bundle, beside the merged weights. One base in memory serves many of
them: y = x W^T + b + (x A^T) (alpha / rank B)^T.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from heedful.errors import BundleError
from heedful.settings.parsing import shown
from heedful.settings.run import LoraConfig
from heedful.storage.bundle import Bundle
from heedful.storage.description import ADAPTER_FILE, WEIGHTS_FILE, read_description, resolve_bundle
from heedful.storage.weights_file import SafetensorsArrays, readable, weight_shapes

_DOWN, _UP = ".lora_a", ".lora_b"

Singles = NDArray[np.float32]


class Change(NamedTuple):
    """A low-rank change of a linear layer: y += (x down^T) up.

    Attributes:
        down: (rank, in).
        up: (rank, out), with its scale.
    """

    down: Singles
    up: Singles

    @classmethod
    def of(cls, a: Singles, b: Singles, scale: float) -> "Change":
        """Return the change of A (rank, in) and B (out, rank)."""
        return cls(np.ascontiguousarray(a), np.ascontiguousarray(np.float32(scale) * b.T))


@dataclass(frozen=True, eq=False)
class Adapter:
    """The changes of a base model's layers, read-only; equal only to itself.

    Attributes:
        changes: by the name of the layer, as "encoder.layers.0.self_attention.query".
        sha256: the checksum of its file.
    """

    changes: Mapping[str, Change]
    sha256: str

    @property
    def num_bytes(self) -> int:
        """The memory that it takes, besides the base."""
        return sum(change.down.nbytes + change.up.nbytes for change in self.changes.values())


def adapter_content(matrices: Mapping[str, Singles], lora: LoraConfig, *, base: str) -> bytes:
    """Return what ADAPTER_FILE has of a trained model.

    Args:
        matrices: `lora_a` and `lora_b` of each layer, by the names of a checkpoint.
        lora: the settings of the training.
        base: the checksum of the weights that were adapted.
    """
    facts = {
        "rank": str(lora.rank),
        "alpha": repr(lora.alpha),
        "targets": ",".join(lora.targets),
        "base": base,
    }
    return save({name: np.ascontiguousarray(matrix) for name, matrix in matrices.items()}, facts)


def read_adapter(path: Path, base: Bundle) -> Adapter:
    """Read the adapter of a run, a bundle or a file.

    Args:
        path: a run or a bundle that was fine-tuned with LoRA, or its file of the adapter alone.
        base: the model that it changes.

    Raises:
        BundleError: there is none, it is damaged, or of another base.
    """
    file = path if path.is_file() else resolve_bundle(path) / ADAPTER_FILE
    if not file.is_file():
        raise BundleError(f"{path}: has no {ADAPTER_FILE}: it was not fine-tuned with --set lora.rank=N")
    try:
        arrays = SafetensorsArrays(file)
        with readable(file) as named:
            stored: Any = safe_open(named, framework="np")
            facts = stored.metadata() or {}
        scale = float(facts["alpha"]) / int(facts["rank"])
    except (ValueError, KeyError) as error:
        raise BundleError(f"{file}: not an adapter ({error}); copy it again") from error
    if base.path is not None and facts.get("base") != read_description(base.path).sha256[WEIGHTS_FILE]:
        raise BundleError(f"{file}: was trained on another base than {base.path}; its model card names it")
    layers = [name.removesuffix(_DOWN) for name in arrays.shapes if name.endswith(_DOWN)]
    changes = {layer: Change.of(arrays[layer + _DOWN], arrays[layer + _UP], scale) for layer in layers}
    check_adapter(changes, base, file)
    return Adapter(changes, hashlib.sha256(file.read_bytes()).hexdigest())


def check_adapter(changes: Mapping[str, Change], base: Bundle, file: Path) -> None:
    """Compare the shapes of changes with the layers of a base; BundleError names one that does not fit."""
    shapes = weight_shapes(base.config.model)
    for layer, change in changes.items():
        changed, actual = (change.up.shape[1], change.down.shape[1]), shapes.get(f"{layer}.weight")
        if changed != actual or len(change.up) != len(change.down):
            what = "which it does not have" if actual is None else f"of shape {actual}, by {changed}"
            raise BundleError(
                f"{file}: changes {shown(layer)} of the base, {what}; give the adapter's own base"
            )
