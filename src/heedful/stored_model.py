"""A model as its file holds it: checked against its configuration, read without torch, built when needed."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.config import ModelConfig
from heedful.errors import BundleError
from heedful.parsing import shown
from heedful.safetensors_files import SafetensorsArrays, safetensors_shapes
from heedful.weight_format import Shape, embedding_names, weight_shapes

if TYPE_CHECKING:
    from heedful.model import Transformer


class StoredModel:
    """The weights of a model in a safetensors file, which stays open."""

    def __init__(self, file: Path, config: ModelConfig) -> None:
        """Compare the file with a configuration, by its header alone: nothing is read or built before.

        Raises:
            BundleError: it cannot be read, or does not belong to the configuration.
        """
        self.config = config
        self._file = file
        try:
            check_fits(weight_shapes(config), safetensors_shapes(file), file)
            self._arrays = SafetensorsArrays(file)
        except ValueError as error:
            raise BundleError(f"{file}: {error}; copy the bundle again") from None

    def weight(self, name: str) -> NDArray[np.float32]:
        """Return a copy of a weight by its name (`weight_format.py`).

        Raises:
            BundleError: it cannot be read any more, or no two tokens differ in it.
        """
        try:
            weight = self._arrays[name]
        except ValueError as error:
            raise BundleError(f"{self._file}: {error}; copy the bundle again") from None
        if name in embedding_names(self.config) and _is_constant(weight):
            raise BundleError(
                f"{self._file}: {name}: every value is {weight.flat[0]:g}, so that all tokens are one; "
                "this model was never trained, or its weights were lost; use another copy"
            )
        return weight

    @cached_property
    def model(self) -> "Transformer":
        """The model in torch, in evaluation mode, with copies of the weights."""
        from heedful.meta_device import model_from_arrays  # torch, for those who need it

        return model_from_arrays(self.config, self.weight)


def _is_constant(weight: NDArray[np.float32]) -> bool:
    first = weight.flat[0]
    return weight.size > 1 and bool((weight[0] == first).all()) and bool((weight == first).all())


def check_fits(expected: Mapping[str, Shape], stored: Mapping[str, Shape], origin: Path) -> None:
    """Compare names and shapes of weights.

    Raises:
        BundleError: a weight is missing, unknown, or of another shape.
    """
    if wrong := expected.keys() ^ stored.keys():
        name = min(wrong)
        kind = "missing" if name in expected else "unknown"
        raise BundleError(
            f"{origin}: weight {shown(name)} is {kind}; the file does not belong to its configuration"
        )
    for name, shape in expected.items():
        if shape != stored[name]:
            raise BundleError(
                f"{origin}: weight {name!r} has shape {stored[name]}, the configuration says {shape}"
            )
