"""Read the LoRA adapter (Hu et al., 2021) that PEFT saved; merge it into the weights of its base: W + s B A.

A directory of PEFT has adapter_config.json and the matrices of the adapted modules; the base model is another
directory. What PEFT computes in another way than by this formula is refused by name.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import DeferredTensor, Tensors, read_checkpoint, same_numbers
from heedful.interop.keys import allowed, split
from heedful.interop.vocabulary import TypedSettings, first_file, read_settings
from heedful.settings.parsing import shown

ADAPTER_FILE = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_OF_LORA = re.compile(r"(.+)\.lora_(embedding_)?([AB])(\.weight)?")
_FIXED = allowed(
    """
    "LORA"                                peft_type
    true|"gaussian"|"eva"|"orthogonal"    init_lora_weights
    """  # others change the base too
)
# Keys that are read, and keys that say how the adapter was trained or found.
_KNOWN = split(
    """
    alpha_pattern auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config
    exclude_modules inference_mode layers_pattern layers_to_transform loftq_config lora_alpha lora_dropout
    lora_ga_config megatron_core modules_to_save peft_version qalora_group_size r rank_pattern revision
    runtime_config target_modules task_type use_rslora
    """
)
# Matrices that others may share; a merge would change those too.
_SHARED = re.compile(r"(^|\.)(shared|embed_tokens|lm_head|output_projection)\.weight$")


def base_of(adapter: Path) -> str:
    """Return the name of the base model that an adapter was trained for, a path or an id of the hub.

    Raises:
        InteropError: adapter_config.json cannot be read, or names none.
    """
    config = _config(adapter)
    if not (name := config.text("base_model_name_or_path")):
        raise config.error("base_model_name_or_path", " names no base model; give --base DIR")
    return name


def merge_adapter(tensors: Mapping[str, Tensor], adapter: Path) -> Tensors:
    """Return the tensors of a base model with an adapter merged into them.

    Args:
        tensors: the base model's tensors by transformers' names.
        adapter: the directory of PEFT.

    Raises:
        InteropError: the adapter is of another method than LoRA, or of another base.
    """
    found = lora_modules(adapter)
    merged = {**tensors, **found.others}
    changed = {name: tuple(tensor.shape) for name, tensor in found.others.items()}
    for module, matrices in found.modules.items():
        name, down, up = f"{module}.weight", matrices.down, matrices.up
        changed[name] = (down.shape[1], len(up)) if matrices.is_turned else (len(up), down.shape[1])
        merged[name] = DeferredTensor(merged.get(name, up), matrices.merged, changed[name])
    for name, shape in changed.items():
        if problem := _problem(tensors, name, shape):
            raise InteropError(f"{found.file}: the weight {shown(name)} {problem}; merge it with PEFT")
    return merged


@dataclass(frozen=True, eq=False)
class LoraMatrices:
    """The change of a module: scale B A of a matrix, or its transpose of an embedding.

    Attributes:
        down: A, (rank, in).
        up: B, (out, rank).
        scale: the factor.
        is_turned: whether the module is an embedding.
    """

    down: Tensor
    up: Tensor
    scale: float
    is_turned: bool

    def merged(self, weight: Tensor) -> Tensor:
        """Return the changed weight."""
        change = self.up.float() @ self.down.float()
        return weight.float() + self.scale * (change.T if self.is_turned else change)


@dataclass(frozen=True, eq=False)
class LoraModules:
    """What an adapter changes, by transformers' names.

    Attributes:
        file: the file of the weights.
        modules: the changes of modules.
        others: biases, and weights of modules that were trained as a whole.
    """

    file: Path
    modules: Mapping[str, LoraMatrices]
    others: Tensors


def lora_modules(adapter: Path) -> LoraModules:
    """Read the directory of PEFT.

    Raises:
        InteropError: the adapter is of another method than LoRA, or is not whole.
    """
    config = _config(adapter)
    config.check(_FIXED, _KNOWN)
    file = first_file(adapter, _WEIGHTS)
    if file is None:
        raise InteropError(f"{adapter}: there is neither {' nor '.join(_WEIGHTS)}; copy the whole directory")
    lora: dict[tuple[str, bool], Tensors] = {}
    others: Tensors = {}
    for key, tensor in read_checkpoint(file).tensors.items():
        name = key.removeprefix(_PREFIX).replace(".base_layer.", ".")
        if match := _OF_LORA.fullmatch(name):
            lora.setdefault((match[1], match[2] is not None), {})[match[3]] = tensor
        else:
            others[name] = tensor
    modules: dict[str, LoraMatrices] = {}
    for (module, is_turned), parts in lora.items():
        down, up = parts.get("A"), parts.get("B")
        if down is None or up is None or down.ndim != 2 or up.ndim != 2:
            raise InteropError(f"{file}: the module {shown(module)} has no two matrices A and B")
        modules[module] = LoraMatrices(down, up, _scale(config, module, len(down)), is_turned)
    return LoraModules(file, modules, others)


def _scale(config: TypedSettings, module: str, rank: int) -> float:
    """Return lora_alpha by the rank, or by its root; alpha may differ by module."""
    patterns = config.settings("alpha_pattern")
    key = next((each for each in patterns if re.match(rf"(.*\.)?({each})$", module)), None)
    alpha = config.number("lora_alpha") if key is None else TypedSettings(patterns, config.file).number(key)
    root = config.values.get("use_rslora") is True
    return (8.0 if alpha is None else alpha) / (math.sqrt(rank) if root else rank)


def _problem(base: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> str | None:
    """Return why a weight of the base cannot be changed."""
    weight = base.get(name)
    if weight is None or tuple(weight.shape) != shape:
        return f"has shape {shape}, in the base {None if weight is None else tuple(weight.shape)}"
    shared = list(filter(_SHARED.search, base))
    if name in shared and any(same_numbers(weight, base[other]) for other in shared if other != name):
        return "is shared with others, which would change too"
    return None


def _config(adapter: Path) -> TypedSettings:
    """Return the settings that are not empty."""
    settings = read_settings(adapter / ADAPTER_FILE)
    is_set = {key: value for key, value in settings.items() if value not in (None, False, [], {})}
    return TypedSettings(is_set, adapter / ADAPTER_FILE)
