"""Copies of a checkpoint in which two tensors of one shape have changed places: an importer must notice."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any


def swaps(tensors: Mapping[str, Any], *, but: str = "$^") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was swapped, and the tensors; those of equal numbers and names that match `but` stay."""
    names = [name for name in tensors if not re.search(but, name)]
    names.sort(key=lambda name: (tuple(tensors[name].shape), name))
    for one, other in pairwise(names):
        a, b = tensors[one], tensors[other]
        if a.shape == b.shape and not (a == b).all():
            yield f"{one} and {other}", {**tensors, one: b, other: a}
