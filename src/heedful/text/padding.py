"""Pad rows of ids to one length."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def pad(
    rows: Sequence[NDArray[np.integer] | Sequence[int]], pad_id: int, *, length_multiple: int = 1
) -> NDArray[np.int64]:
    """Return rows of ids as one array (B, L), filled on the right with `pad_id`.

    Args:
        rows: at least one; each may have another length.
        pad_id: of the vocabulary that the ids are of.
        length_multiple: L is rounded up to it.
    """
    longest = max(len(row) for row in rows)
    padded = np.full((len(rows), -(-longest // length_multiple) * length_multiple), pad_id, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded
