"""Arrays of log-probabilities: numpy's, or a backend's own, such as torch's on any device.

Searches compute with both through the array API standard, and import neither torch nor anything like it.
"""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray

Array = Any  # numpy's, or another of the standard: https://data-apis.org/array-api


def namespace(array: Array) -> Any:  # noqa: ANN401  a module
    """Return the module of functions for this kind of array."""
    return array_namespace(array)


def like(values: NDArray[np.generic], array: Array) -> Array:
    """Return values of the CPU as an array of the same kind, on the same device."""
    return array_namespace(array).asarray(values, device=device(array))


def on_host(array: Array) -> NDArray[Any]:
    """Return an array as numpy's, on the CPU."""
    return np.asarray(to_device(array, "cpu"))


def copy_of(array: Array) -> Array:
    """Return a copy, to be written to."""
    return array_namespace(array).asarray(array, copy=True)


def kth_largest(array: Array, k: int) -> Array:
    """Return the k-th largest number of each row, (rows, 1)."""
    if hasattr(array, "topk"):  # torch's, which is faster than a sort
        return array.topk(k).values[:, -1:]
    return np.partition(array, -k, axis=-1)[:, -k, None]


def softmax(array: Array) -> Array:
    """Return the softmax of each row."""
    if hasattr(array, "softmax"):
        return array.softmax(-1)
    with np.errstate(invalid="ignore"):  # where all are -inf, NaN
        exponentials = np.exp(array - array.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)


def log_softmax(array: Array) -> Array:
    """Return the logarithm of the softmax of each row."""
    if hasattr(array, "log_softmax"):
        return array.log_softmax(-1)
    with np.errstate(invalid="ignore"):
        return array - logsumexp(array)


def logsumexp(array: Array, axis: int = -1) -> Array:
    """Return log(sum(exp(x))) over an axis, which stays with the size 1; -inf where there is nothing else."""
    xp = array_namespace(array)
    greatest = xp.max(array, axis=axis, keepdims=True)
    greatest = xp.where(xp.isinf(greatest), xp.zeros_like(greatest), greatest)
    with np.errstate(divide="ignore"):
        return greatest + xp.log(xp.sum(xp.exp(array - greatest), axis=axis, keepdims=True))
