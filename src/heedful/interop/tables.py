"""Tables of weights: the names of another system beside heedful's, and the engine that applies them.

A row has two names and may have a transform. It renames a module (its weight, and its bias if there is one)
or, if the right name ends in `.weight` or `.bias`, one tensor. Names with slashes have slashes for all dots.
Two names that end in a dot begin the names of the rows below them that are indented more:

    {stack}.layers.{i}.                     {stack}.layers.{i}.
        self_attn.{q,k,v,out}_proj          self_attention.{query,key,value,output}
        self_attn.in_proj_weight            self_attention.[query,key,value].weight
    lm_head|model.shared                    output
    final_logits_bias                       output.bias                              nonzero
    decoder.version                         -

- `{stack}` is encoder and decoder, `{i}` the number of a layer, `{n}` the same counted from 1, `{last}` the
  number of the last one.
- `{a,b}` makes a row for each item. The first list on the left belongs to the first on the right, and so on.
- `[a,b]` on the right: one tensor has the rows of several, in equal parts, or queries, keys and values by
  `num_heads` and `num_kv_heads` of the settings. On the left: several tensors are concatenated.
- `a|b` on the left: `b` is used if the file does not have `a`, for example because a matrix is shared.
- `-` on the right: the tensor on the left, by its full name or a pattern with `*`, is ignored.
- The third column names one of `transforms`, or `flat` (reshape to a vector), or `nonzero` (leave out a bias
  that is all zeros). A list in it belongs to the last list of the row. Rows have no comments.

`Table.facts` must state what weights cannot show: `norm`, `norm_kind`, `positions`, `gated`, `activation`,
`scale_embeddings`. Without one, the model gets the paper's value.

A row without its tensors is skipped; `Conversion.finish` says which weights are missing or left over. If two
rows have the same name on the right, the first one with all tensors in the file is used.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import chain, product
from typing import Any

import torch
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import (
    STACKS,
    Conversion,
    Imported,
    Positions,
    Settings,
    Tensors,
    move_positions,
    rows_of,
)
from heedful.interop.outer_modules import move_outer_modules

_LIST = re.compile(r"\{([^{}]*,[^{}]*)\}")
_NUMBER = re.compile(r"\{(i|n|last)\}")
_NOTHING = "-"
Names = tuple[str, ...]
_TABLES = {f"{stack}.embedding.positions.weight": stack for stack in STACKS}


@dataclass(frozen=True)
class Transform:
    """A computation on a tensor of another system.

    Attributes:
        forwards: turns their tensor into heedful's; returns None if the model has no such weight.
        backwards: turns heedful's tensor into theirs; None: the table is only for imports.
    """

    forwards: Callable[[Tensor], Tensor | None]
    backwards: Callable[[Tensor], Tensor] | None = None


AS_IS = Transform(lambda tensor: tensor, lambda tensor: tensor)
FLAT = Transform(lambda tensor: tensor.reshape(-1))
# A bias (1, V) of the logits, which most models do not have.
NONZERO = Transform(
    lambda bias: bias.reshape(-1) if torch.any(bias != 0) else None, lambda bias: bias.reshape(1, -1)
)
BOTH_TABLES = Positions()


@dataclass(frozen=True)
class Rule:
    """A row without lists; names may still have the number of a layer.

    Attributes:
        theirs: the other system's names: alternatives, each one or several tensors to concatenate.
        ours: heedful's names of the parts of that tensor.
        transform: the computation on each part.
    """

    theirs: tuple[Names, ...]
    ours: Names
    transform: Transform

    def filled(self, **numbers: object) -> "Rule":
        """Return the rule of one layer."""

        def fill(names: Names) -> Names:
            return tuple(name.format(**numbers) for name in names)

        return replace(self, theirs=tuple(map(fill, self.theirs)), ours=fill(self.ours))


@dataclass(frozen=True)
class Table:
    """The weights of one architecture in another system.

    Attributes:
        rows: the names, in the notation that this module describes.
        transforms: the computations by their names in the third column.
        positions: how the rows for `{stack}.embedding.positions.weight` are read.
        facts: the settings that all models of the architecture have, by key of `ModelConfig`.
        adapt: returns this table with what the tensors or settings of a checkpoint change.
        by_words: whether embeddings, positions and output are found by words in their names
            (`move_outer_modules`), not by rows.
        about: a sentence for the reference on what the weights cannot show.
    """

    rows: str
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    positions: Positions = BOTH_TABLES
    facts: Settings = field(default_factory=dict)
    adapt: "Callable[[Table, Conversion], Table] | None" = None
    by_words: bool = False
    about: str = ""

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rows without lists."""
        rules: list[Rule] = []
        for row in _rows(self.rows):
            try:
                rules += _rules(row, self.transforms)
            except (KeyError, IndexError, StopIteration, RuntimeError) as error:
                problem = "its lists differ in length, or its transform is unknown"
                raise InteropError(f"the row {' '.join(row)!r} of a table: {problem}") from error
        return tuple(rules)

    def read(self, conversion: Conversion, **facts: Any) -> Imported:  # noqa: ANN401
        """Convert a checkpoint.

        Args:
            conversion: the tensors of the checkpoint.
            **facts: further settings of the model.

        Raises:
            InteropError: a tensor is unknown, missing, or of a wrong shape.
            ConfigError: the settings are invalid.
        """
        table = self if self.adapt is None else self.adapt(self, conversion)
        table.move(conversion)
        if table.by_words:
            move_outer_modules(conversion, table.positions)
        return conversion.finish(**{**table.facts, **facts})

    def move(self, conversion: Conversion) -> None:
        """Move all tensors that the rows name, and drop those that have no effect. Raises as `read`."""
        names = {*conversion.left}
        count = cache(partial(num_parts, names))
        tables: dict[str, str] = {}
        used: set[str] = set()
        for rule in chain.from_iterable(_of_layers(rule, count) for rule in self.rules):
            ours, first = rule.ours[0], rule.theirs[0][0]
            there: Names = next(filter(names.issuperset, rule.theirs), ())
            if ours == _NOTHING:
                used.update(fnmatch.filter(names, first))
            elif ours in _TABLES:
                if there or self.positions.required:
                    tables.setdefault(_TABLES[ours], (*there, first)[0])
            elif there and ours not in conversion.moved:
                _move(conversion, there, rule)
                used.update(there)
            else:
                conversion.names.setdefault(ours, first)
        if not used:
            conversion.look(self.rules[0].filled(i=0, n=1, last=0).theirs[0][0])  # says that it is missing
        move_positions(conversion, tables, self.positions)
        for name in used:
            conversion.left.pop(name, None)

    def export(self, weights: Mapping[str, Tensor], num_layers: Mapping[str, int]) -> Tensors:
        """Return weights by the other system's names, the first if there are alternatives.

        Args:
            weights: the weights by heedful's names.
            num_layers: the numbers of layers of "encoder" and "decoder".
        """
        tensors: Tensors = {}
        for rule in self.rules:
            stack = rule.ours[0].partition(".")[0]
            for i in range(num_layers[stack] if "{i}" in rule.ours[0] else 1):
                each = rule.filled(i=i, n=i + 1)
                backwards = each.transform.backwards
                if backwards is not None and weights.keys() >= {*each.ours}:
                    parts = [backwards(weights[name]) for name in each.ours]
                    tensors.setdefault(each.theirs[0][0], parts[0] if len(parts) == 1 else torch.cat(parts))
        return tensors


def _rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the columns of each row with their beginnings, once for each stack if they name `{stack}`."""
    begin, start, depth = "", "", 0
    for line in filter(str.strip, text.splitlines()):
        columns = line.split()
        if len(columns) not in (2, 3):
            raise InteropError(f"the row {line.strip()!r} of a table must have two or three columns")
        theirs, ours, transform = (*columns, "as_is")[:3]
        indent = len(line) - len(line.lstrip())
        if indent <= depth:
            begin, start = "", ""
        if ours.endswith("."):
            begin, start, depth = theirs, ours, indent
            continue
        theirs = "|".join(begin + name for name in theirs.split("|"))
        ours = ours if ours == _NOTHING else start + ours
        for stack in STACKS if "{stack}" in theirs else ("",):
            yield theirs.replace("{stack}", stack), ours.replace("{stack}", stack), transform


def _rules(row: tuple[str, str, str], transforms: Mapping[str, Transform]) -> Iterator[Rule]:
    """Yield a rule for each item of a row's lists, and for weight and bias if it names a module."""
    theirs, ours, transform = row
    known = {"as_is": AS_IS, "flat": FLAT, "nonzero": NONZERO, **transforms}
    sizes = [len(text.split(",")) for text in _LIST.findall(theirs if ours == _NOTHING else ours)]
    dot = "/" if "/" in theirs else "."
    for items in product(*map(range, sizes)):
        target = _with_items(ours, items)
        is_module = not target.endswith((".weight", ".bias", _NOTHING))
        for kind in (".weight", ".bias") if is_module else ("",):
            names = [_with_items(name, items) + kind.replace(".", dot) for name in theirs.split("|")]
            yield Rule(
                tuple(map(_parts, names)),
                _parts(target + kind),
                known[_with_items(transform, items[-1:])],
            )


def _with_items(text: str, items: Sequence[int]) -> str:
    """Return a name with an item in the place of each list."""
    numbers = iter(items)
    return _LIST.sub(lambda match: match[1].split(",")[next(numbers)], text)


def _parts(text: str) -> Names:
    """Return a name for each item between brackets."""
    before, bracket, rest = text.partition("[")
    items, _, after = rest.partition("]")
    return tuple(f"{before}{item}{after}" for item in items.split(",")) if bracket else (text,)


def _of_layers(rule: Rule, count: Callable[[str], int]) -> Iterator[Rule]:
    """Yield the rule of each layer, with the number of layers by the beginning of their names."""
    place = _NUMBER.search(rule.theirs[0][0])
    if place is None:
        yield rule
        return
    num_layers = max(1, count(rule.theirs[0][0][: place.start()]))
    if place[0] == "{last}":
        yield rule.filled(last=num_layers - 1)
    else:
        yield from (rule.filled(i=i, n=i + 1) for i in range(num_layers))


def num_parts(names: Iterable[str], prefix: str) -> int:
    """Return how many numbers follow a prefix in names; in a whole model they follow each other."""
    number = re.compile(rf"^{re.escape(prefix)}([0-9]{{1,6}})[./_]", re.MULTILINE)
    return len(set(number.findall("\n".join(names))))


def _move(conversion: Conversion, names: Sequence[str], rule: Rule) -> None:
    """Set heedful's weights of a rule from tensors of the file."""
    tensors = list(map(conversion.look, names))
    conversion.require(
        len({tensor.shape for tensor in tensors}) == 1,
        f"{names[0]!r} and {names[-1]!r} have different shapes",
    )
    whole = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
    if len(rule.ours) == 1:
        conversion.put(rule.ours[0], rule.transform.forwards(whole), origin=names[0])
        return
    heads = [_num_heads(conversion, ours) for ours in rule.ours]
    size, rest = divmod(len(whole), sum(heads))
    conversion.require(rest == 0, f"the {len(whole)} rows of {names[0]!r} are not {sum(heads)} equal parts")
    first = 0
    for ours, num_heads in zip(rule.ours, heads, strict=True):
        part = rows_of(whole, first, size * num_heads)
        conversion.put(ours, rule.transform.forwards(part), origin=names[0])
        first += size * num_heads


def _num_heads(conversion: Conversion, ours: str) -> int:
    """Return the heads of a projection, if queries have more of them than keys and values; else 1."""
    if conversion.settings.get("num_kv_heads") is None:
        return 1
    return conversion.required("num_heads" if ".query." in ours else "num_kv_heads")
