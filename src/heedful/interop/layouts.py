"""The layouts that weights may come in, by name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import InteropError, suggestion
from heedful.interop import (
    abhishek_thread,
    adeveloperdiary,
    annotated,
    jadore,
    kaggle_notebook,
    nptel_lecture,
    torch_transformer,
)
from heedful.interop.conversion import Conversion, Imported

LAYOUTS: dict[str, Callable[[Conversion], Imported]] = {
    "abhishek-thread": abhishek_thread.read,
    "nptel-lecture": nptel_lecture.read,
    "kaggle-notebook": kaggle_notebook.read,
    "adeveloperdiary": adeveloperdiary.read,
    "jadore": jadore.read,
    "jadore-prj": jadore.read_prj,
    "torch": torch_transformer.read,
    "annotated": annotated.read,
}


def read_layout(
    layout: str,
    tensors: Mapping[str, Tensor],
    *,
    settings: Mapping[str, Any] | None = None,
    origin: Path | str = "weights",
) -> Imported:
    """Turn the tensors of a checkpoint into a configuration and weights with the same outputs.

    Args:
        layout: one of `LAYOUTS`.
        tensors: by the checkpoint's names; they are not changed.
        settings: what the weights do not say, for example `{"num_heads": 8}`; the keys of `ModelConfig`.
        origin: the file, for error messages.

    Raises:
        InteropError: no such layout, or a tensor that is unknown, missing or of a wrong shape.
        ConfigError: settings that cannot be.
    """
    if layout not in LAYOUTS:
        raise InteropError(f"layout {layout!r} does not exist{suggestion(layout, LAYOUTS)}")
    return LAYOUTS[layout](Conversion(tensors, layout=layout, origin=Path(origin), settings=settings or {}))
