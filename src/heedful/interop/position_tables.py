"""Tables of positions: the paper's sinusoids need none, anything else comes along as it is."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from heedful.interop.conversion import Conversion
from heedful.nn.positions import sinusoids

# Sinusoids that were computed through logarithms in float32 are off by more from position 30 or so on.
_TOLERANCE = 2e-6


def move_positions(
    conversion: Conversion,
    tables: Mapping[str, str],
    *,
    fixed: bool = False,
    formula: Callable[[int, int], Tensor] = sinusoids,
) -> None:
    """Give each stack its positions.

    Tables that equal the sinusoids are dropped: the model computes them, without end. All others become
    learned positions. Where two differ in length, the shorter is continued with zeros.

    Args:
        conversion: where the tables are taken from.
        tables: by stack, "encoder" and "decoder", the name of a tensor (L, D), (1, L, D) or (L, 1, D); a
            stack without one has the other's; without any, positions are sinusoids.
        fixed: whether the tables were computed, not learned; `model.positions=sinusoidal` may drop those.
        formula: the sinusoids, of a length and d_model; the paper's, unless said otherwise.

    Raises:
        InteropError: the vectors of two tables have different sizes.
    """
    found = {name: _flat(conversion.take(name)) for name in dict.fromkeys(tables.values())}
    wanted = fixed and conversion.settings.get("positions") == "sinusoidal"
    if wanted or all(_equal(table, formula) for table in found.values()):
        return
    if len({table.shape[1] for table in found.values()}) > 1:
        raise conversion.error(f"the vectors of {' and '.join(map(repr, found))} have different sizes")
    longest = max(len(table) for table in found.values())
    for stack, other in (("encoder", "decoder"), ("decoder", "encoder")):
        name = tables[stack if stack in tables else other]
        table = found[name]
        zeros = table.new_zeros(longest - len(table), table.shape[1])
        conversion.put(f"{stack}.embedding.positions.weight", torch.cat([table, zeros]), origin=name)


def _flat(table: Tensor) -> Tensor:
    return table.reshape(-1, table.shape[-1])


def _equal(table: Tensor, formula: Callable[[int, int], Tensor]) -> bool:
    length, d_model = table.shape
    return d_model % 2 == 0 and bool((table - formula(length, d_model)).abs().max() <= _TOLERANCE)
