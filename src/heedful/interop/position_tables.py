"""Position tables: those of sinusoids are dropped, others become learned positions."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from heedful.interop.conversion import Conversion
from heedful.nn.positions import sinusoids

# Sinusoids computed through logarithms in float32 have larger errors from position 30 or so on.
_TOLERANCE = 2e-6


def move_positions(
    conversion: Conversion,
    tables: Mapping[str, str],
    *,
    fixed: bool = False,
    formula: Callable[[int, int], Tensor] = sinusoids,
) -> None:
    """Move the position tables of both stacks.

    Tables that equal the sinusoids are dropped, since the model computes them. All others become learned
    positions; if two differ in length, the shorter is padded with zeros.

    Args:
        conversion: of the tensors.
        tables: by stack, "encoder" and "decoder", the name of a tensor (L, D), (1, L, D) or (L, 1, D); a
            stack without one uses the other's; without any, positions are sinusoids.
        fixed: whether the tables were computed, not learned; `model.positions=sinusoidal` may drop those.
        formula: the sinusoids of a length and d_model, by default the paper's.

    Raises:
        InteropError: the vectors of two tables have different sizes.
    """
    tables_by_name = {name: _flat(conversion.take(name)) for name in dict.fromkeys(tables.values())}
    use_formula = fixed and conversion.settings.get("positions") == "sinusoidal"
    if use_formula or all(_equal(table, formula) for table in tables_by_name.values()):
        return
    if len({table.shape[1] for table in tables_by_name.values()}) > 1:
        raise conversion.error(
            f"the vectors of {' and '.join(map(repr, tables_by_name))} have different sizes"
        )
    longest = max(len(table) for table in tables_by_name.values())
    for stack, other in (("encoder", "decoder"), ("decoder", "encoder")):
        name = tables[stack if stack in tables else other]
        table = tables_by_name[name]
        zeros = table.new_zeros(longest - len(table), table.shape[1])
        conversion.put(f"{stack}.embedding.positions.weight", torch.cat([table, zeros]), origin=name)


def _flat(table: Tensor) -> Tensor:
    return table.reshape(-1, table.shape[-1])


def _equal(table: Tensor, formula: Callable[[int, int], Tensor]) -> bool:
    length, d_model = table.shape
    return d_model % 2 == 0 and bool((table - formula(length, d_model)).abs().max() <= _TOLERANCE)
