"""Merge the LoRA adapter (Hu et al., 2021) that PEFT saved into the weights of its base: W + scale B A.

A directory of PEFT has adapter_config.json and the matrices of the adapted modules; the base model is another
directory. What PEFT computes in another way than by this formula is refused by name.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import DeferredTensor, read_checkpoint, same_numbers
from heedful.settings.parsing import parse_json, read_limited, shown

ADAPTER_FILE = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_OF_LORA = re.compile(r"(.+)\.lora_(embedding_)?([AB])(\.weight)?")
# Keys that say how the adapter was trained or found, and those that are read.
_KNOWN = frozenset(
    (
        "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config",
        "ensure_weight_tying", "eva_config", "exclude_modules", "inference_mode", "init_lora_weights",
        "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha", "lora_dropout",
        "lora_ga_config", "megatron_core", "modules_to_save", "peft_type", "peft_version",
        "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules",
        "task_type", "use_rslora",
    )
)  # fmt: skip
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")  # others change the base too
# Matrices that others may share; a merge would change those too.
_SHARED = re.compile(r"(^|\.)(shared|embed_tokens|lm_head|output_projection)\.weight$")


def base_of(adapter: Path) -> str:
    """Return the name of the base model that an adapter was trained for, a path or an id of the hub.

    Raises:
        InteropError: adapter_config.json cannot be read, or names none.
    """
    name = _config(adapter).get("base_model_name_or_path")
    if not isinstance(name, str) or not name:
        raise _error(adapter, "it names no base model; give --base DIR")
    return name


def merge_adapter(tensors: Mapping[str, Tensor], adapter: Path) -> dict[str, Tensor]:
    """Return the tensors of a base model with an adapter merged into them.

    Args:
        tensors: of the base, by the names of transformers.
        adapter: the directory of PEFT.

    Raises:
        InteropError: the adapter is of another method than LoRA, or of another base.
    """
    config = _config(adapter)
    _check_config(adapter, config)
    file = next((name for name in _WEIGHTS if (adapter / name).is_file()), None)
    if file is None:
        raise _error(adapter, f"there is neither {' nor '.join(_WEIGHTS)}; copy the whole directory")
    merged = dict(tensors)
    lora: dict[tuple[str, bool], dict[str, Tensor]] = {}
    for key, tensor in read_checkpoint(adapter / file).tensors.items():
        name = key.removeprefix(_PREFIX).replace(".base_layer.", ".")
        if match := _OF_LORA.fullmatch(name):
            lora.setdefault((match[1], match[2] is not None), {})[match[3]] = tensor
        else:  # a bias, or a module that was trained as a whole
            _check_target(adapter, tensors, name, tuple(tensor.shape))
            merged[name] = tensor
    for (module, is_turned), parts in lora.items():
        if parts.keys() != {"A", "B"} or any(part.ndim != len(parts) for part in parts.values()):
            raise _error(adapter, f"the module {shown(module)} has no two matrices A and B")
        down, up = parts["A"], parts["B"]
        shape = (len(up), down.shape[1])
        name = f"{module}.weight"
        _check_target(adapter, tensors, name, shape[::-1] if is_turned else shape)
        decode = _Merge(down, up, _scale(adapter, config, module, len(down)), is_turned)
        merged[name] = DeferredTensor(merged[name], decode, merged[name].shape)
    return merged


@dataclass(frozen=True, eq=False)
class _Merge:
    """Adds scale B A to a matrix, or its transpose to an embedding."""

    down: Tensor
    up: Tensor
    scale: float
    is_turned: bool

    def __call__(self, weight: Tensor) -> Tensor:
        change = self.up.float() @ self.down.float()
        return weight.float() + self.scale * (change.T if self.is_turned else change)


def _scale(adapter: Path, config: Mapping[str, Any], module: str, rank: int) -> float:
    """Return lora_alpha by the rank, or by its root; alpha may differ by module."""
    alpha = config.get("lora_alpha", 8)
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            alpha = value
            break
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise _error(adapter, f"lora_alpha={shown(alpha)} is not a number")
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") is True else rank)


def _check_target(adapter: Path, base: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> None:
    """Refuse a weight that the base does not have, has in another shape, or shares with another one."""
    weight = base.get(name)
    if weight is None or tuple(weight.shape) != shape:
        problem = "does not have" if weight is None else f"has as {tuple(weight.shape)}, not {shape}"
        raise _error(
            adapter, f"it changes the weight {shown(name)}, which the base {problem}; merge it with PEFT"
        )
    others = (each for each in base if each != name and _SHARED.search(each))
    if _SHARED.search(name) and any(same_numbers(weight, base[each]) for each in others):
        raise _error(adapter, f"it changes the weight {shown(name)}, which others share; merge it with PEFT")


def _check_config(adapter: Path, config: Mapping[str, Any]) -> None:
    kind = config.get("peft_type")
    if kind != "LORA":
        raise _error(adapter, f"peft_type={shown(kind)} is not supported, only LORA is; merge it with PEFT")
    for key, value in config.items():
        if key not in _KNOWN and value not in (None, False, [], {}):
            raise _error(adapter, f"{shown(key)} is set, which is not supported; merge it with PEFT")
    if config.get("init_lora_weights") not in _PLAIN_STARTS:
        start = shown(config["init_lora_weights"])
        raise _error(adapter, f"init_lora_weights={start} changes the base too; merge it with PEFT")
    if not isinstance(config.get("alpha_pattern") or {}, dict):
        raise _error(adapter, "alpha_pattern is not an object")


def _config(adapter: Path) -> dict[str, Any]:
    try:
        config = parse_json(read_limited(adapter / ADAPTER_FILE))
    except OSError as error:
        raise _error(adapter, str(error.strerror)) from error
    except ValueError as error:
        raise _error(adapter, str(error)) from None
    if not isinstance(config, dict):
        raise _error(adapter, "not an object of settings")
    return config


def _error(adapter: Path, problem: str) -> InteropError:
    return InteropError(f"{adapter / ADAPTER_FILE}: {problem}")
