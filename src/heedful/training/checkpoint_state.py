"""The contents of a checkpoint's state.pt, checked before any of it is restored."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch

from heedful.parsing import is_whole, shown
from heedful.weight_files import check_tensors, read_pickled

# Fields of `Progress` whose key in the file is another word.
STORED_AS = {
    "validated_by": "judged_by",
    "validated_step": "judged_step",
    "validated_scores": "judged_scores",
    "rollbacks": "setbacks",
    "regular_checkpoints": "milestones",
}


class Dataclass(Protocol):
    """Any object with fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True)
class CheckpointState:
    """The content of state.pt; the optimiser's part is checked by `optimizer_state`."""

    fingerprint: str
    progress: dict[str, Any]
    optimizer: object


def read_state(path: Path, *, like: Dataclass) -> CheckpointState:
    """Read state.pt.

    Args:
        path: of the file.
        like: an example of the progress, for the types; the saved one may lack fields or have others.

    Raises:
        ValueError: the file holds something else.
    """
    state = read_pickled(path)
    if not isinstance(state, dict):
        raise ValueError("holds no training state")
    fingerprint, saved = state.get("fingerprint"), state.get("progress")
    if not isinstance(fingerprint, str) or not isinstance(saved, dict):
        raise ValueError("holds no training progress")
    keys = {field.name: STORED_AS.get(field.name, field.name) for field in fields(like)}
    progress = {name: saved[key] for name, key in keys.items() if key in saved}
    for name, value in progress.items():
        if not _is_like(value, getattr(like, name)):
            raise ValueError(f"progress.{keys[name]} is {shown(value)}")
    return CheckpointState(fingerprint, progress, state.get("optimizer"))


def optimizer_state(saved: object, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state dict for `optimizer.load_state_dict`: saved moments and rates, its own settings.

    Raises:
        ValueError: the saved state is of another optimiser, or of other weights.
    """
    saved = saved if isinstance(saved, dict) else {}
    groups, state = saved.get("param_groups"), saved.get("state")
    if not isinstance(state, dict) or not isinstance(groups, list):
        raise ValueError("holds no state of an optimiser")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError("holds the state of another optimiser")
    checked: list[dict[str, Any]] = []
    first = 0
    for group, own in zip(groups, optimizer.param_groups, strict=True):
        numbers = [*range(first, first + len(own["params"]))]
        first += len(numbers)
        rate, of_group = (group.get(key) for key in ("lr", "params")) if isinstance(group, dict) else (0, 0)
        if not (isinstance(rate, float | int) and _are_whole(of_group) and of_group == numbers):
            raise ValueError("holds the state of an optimiser of other weights")
        for i, weight in zip(numbers, own["params"], strict=True):
            if i in state:
                _check_moments(i, state[i], weight, is_adam="betas" in own)
        checked.append(own | {"params": numbers, "lr": rate})
    if not state.keys() <= {*range(first)}:
        raise ValueError("holds the state of an optimiser of more weights")
    return {"param_groups": checked, "state": state}


def _is_like(value: object, example: object) -> bool:
    """Return whether a value has the type of the example and is not NaN or below -1."""
    match example:
        case int():
            return is_whole(value, least=-1)
        case float():
            return isinstance(value, float | int) and not math.isnan(value)
        case str():
            return isinstance(value, str)
        case dict():
            return isinstance(value, dict) and all(
                isinstance(name, str) and isinstance(score, float | int) for name, score in value.items()
            )
        case tuple():
            return isinstance(value, tuple) and (
                _are_whole([*value]) or all(isinstance(each, str) for each in value)
            )
    return False


def _are_whole(value: object) -> bool:
    return isinstance(value, list) and all(is_whole(each) for each in value)


def _check_moments(i: int, moments: object, weight: torch.Tensor, *, is_adam: bool) -> None:
    """Check that the saved moments of a weight are this optimiser's, with the right shapes."""
    shapes = dict.fromkeys(("exp_avg", "exp_avg_sq") if is_adam else ("momentum_buffer",), weight.shape)
    if is_adam:
        shapes["step"] = torch.Size()
    if not isinstance(moments, dict) or moments.keys() != shapes.keys():
        raise ValueError(f"the optimiser state of weight {i} is {shown(moments)}")
    check_tensors(moments)
    for name, tensor in moments.items():
        if tensor.shape != shapes[name] or not tensor.is_floating_point():
            raise ValueError(f"the optimiser state of weight {i} has {name} of shape {tuple(tensor.shape)}")
