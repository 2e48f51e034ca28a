"""A LoRA adapter of PEFT for a model of transformers, as an adapter of the bundle imported from it."""

from collections.abc import Mapping
from pathlib import Path

from heedful.errors import InteropError
from heedful.interop.huggingface.adapters import lora_modules
from heedful.interop.layouts import FAMILIES
from heedful.interop.tables import Table, Transform
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.storage.adapter import Adapter, Change, check_adapter
from heedful.storage.bundle import Bundle
from heedful.storage.description import file_sha256


def read_peft(path: Path, base: Bundle) -> Adapter:
    """Read the directory of PEFT; its names and those of the bundle are in the tables of the imports.

    Args:
        path: the directory.
        base: the bundle that was imported from the adapter's base.

    Raises:
        InteropError: it is not LoRA, or changes what is no linear layer of the encoder or the decoder.
        BundleError: it is of another base.
    """
    found = lora_modules(path)
    remedy = f"merge it: heedful import {path} --base BASE -o BUNDLE"
    for name in found.others:
        raise InteropError(f"{found.file}: {shown(name)} was trained as a whole, not by LoRA; {remedy}")
    tables = [family.weights for family in FAMILIES.values() if family.weights.adapt is None]
    of_tables = [_linear_layers(table, base.config.model) for table in tables]
    names = {f"{module}.weight": matrices for module, matrices in found.modules.items()}
    layers = max(of_tables, key=lambda known: len(known.keys() & names.keys()))
    changes: dict[str, Change] = {}
    for name, matrices in names.items():
        if name not in layers:
            raise InteropError(
                f"{found.file}: {shown(name)} is no linear layer that can be changed; {remedy}"
            )
        ours, transform = layers[name]
        up = transform.forwards(matrices.up.float())
        assert up is not None
        changes[ours] = Change.of(matrices.down.float().numpy(), up.numpy(), matrices.scale)
    check_adapter(changes, base, found.file)
    return Adapter(changes, file_sha256(found.file))


def _linear_layers(table: Table, config: ModelConfig) -> Mapping[str, tuple[str, Transform]]:
    """Return heedful's layers by their names in a table, with what is done to the outputs of each."""
    depths = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    layers: dict[str, tuple[str, Transform]] = {}
    for rule in table.rules:
        stack, _, rest = rule.ours[0].partition(".layers.{i}.")
        if len(rule.ours) > 1 or not rest.endswith(".weight"):
            continue
        for number in range(depths[stack]):
            filled = rule.filled(i=number, n=number + 1)
            layer = filled.ours[0].removesuffix(".weight")
            layers |= {names[0]: (layer, rule.transform) for names in filled.theirs if len(names) == 1}
    return layers
