"""A checkpoint of a run, or the mean of several, as a bundle."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from heedful.errors import CheckpointError
from heedful.ops.lora import add_adapters, without_adapters
from heedful.storage.bundle import Bundle, load_bundle
from heedful.storage.torch_weights import load_weights
from heedful.training.averaging import average_weights
from heedful.training.checkpoint import is_complete


def bundle_of_checkpoints(run: Path, checkpoints: Sequence[Path]) -> Bundle:
    """Return the mean of checkpoints, with all but the weights from a bundle of the run; nothing is written.

    Raises:
        CheckpointError: one is damaged.
    """
    if damaged := next((path for path in checkpoints if not is_complete(path)), None):
        raise CheckpointError(f"{damaged}: truncated or altered (checksum differs); remove it, try again")
    bundle = load_bundle(run)
    if bundle.config.lora.rank:
        add_adapters(bundle.model, bundle.config.lora)
    load_weights(bundle.model, average_weights(checkpoints), checkpoints[-1])
    network = without_adapters(bundle.model)
    return replace(bundle, network=network, path=None, scores={}, calibration=None)
