"""Checkpoints of other systems, and their conversion to the configuration and weights of a heedful model.

Reading a file executes no code.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map_only

from heedful.errors import InteropError
from heedful.model.positions import sinusoids
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import is_whole, short
from heedful.settings.run import Config
from heedful.storage.torch_weights import HALF, check_tensors, meta_model, read_pickled, read_safetensors

Settings = Mapping[str, Any]  # by key, as in a file of JSON
Values = dict[str, Any]  # settings that are still put together
Tensors = dict[str, Tensor]  # by name
STACKS = ("encoder", "decoder")
NEVER = -1e4  # as a logit: probability 0, and still finite in half precision
_MISSING = "the weight {!r} is missing; is it another --layout, or part of a model?"
TOKENS = {stack: f"{stack}.embedding.tokens.weight" for stack in STACKS}


def _compute(
    cls: type["DeferredTensor"],
    func: Callable[..., object],
    types: object,
    args: tuple[object, ...],
    kwargs: Mapping[str, object] | None,
) -> object:
    """Return the result of an operation on the numbers of deferred tensors; of some rows, only theirs."""
    match args:
        case (DeferredTensor() as whole, 0, int(start), int(stop)) if func is torch.ops.aten.slice.Tensor:
            part = whole.rows(start, min(stop, len(whole))) if start >= 0 else None
            if part is not None:
                return part
    args, kwargs = tree_map_only(cls, cls._numbers, (args, dict(kwargs or {})))
    return func(*args, **kwargs)


def _shown(tensor: Tensor, **_: object) -> str:
    return f"{type(tensor).__name__}({tuple(tensor.shape)})"


class DeferredTensor(Tensor):
    """A float32 tensor that each operation on it makes from a stored one.

    So half-precision or quantised weights stay in a mapped file until they are written, one at a time.
    """

    __torch_function__: Any = torch._C._disabled_torch_function_impl  # results are plain tensors
    __torch_dispatch__: Any = classmethod(_compute)
    __repr__: Any = _shown

    def __new__(cls, stored: Tensor, decode: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Self:
        """Make a tensor of that shape without numbers."""
        return Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=torch.float32)

    def __init__(self, stored: Tensor, decode: Callable[[Tensor], Tensor], shape: Sequence[int]) -> None:
        """Wrap a tensor.

        Args:
            stored: what is in the file; it may be deferred itself.
            decode: returns the float32 numbers; equal decoders return the same for equal tensors. A method
                `rows(stored, start, stop)` returns some of the rows, or None if that needs all of them.
            shape: the shape of the result.
        """
        super().__init__()
        self.stored, self.decode = stored, decode

    def _numbers(self) -> Tensor:
        stored = self.stored
        return self.decode(stored._numbers() if isinstance(stored, DeferredTensor) else stored)

    def rows(self, start: int, stop: int) -> Tensor | None:
        """Return some rows; None if they are not made of the same rows of the stored tensor."""
        if self.decode is Tensor.float or isinstance(self.decode, _Times):
            return self.decode(self.stored[start:stop])
        decode: Any = self.decode
        return decode.rows(self.stored, start, stop) if hasattr(decode, "rows") else None


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal; deferred ones only if they are made alike of equal tensors."""
    if one is other:
        return True
    if isinstance(one, DeferredTensor) and isinstance(other, DeferredTensor):
        is_alike = one.decode == other.decode and one.shape == other.shape
        return is_alike and same_numbers(one.stored, other.stored)
    is_deferred = isinstance(one, DeferredTensor) or isinstance(other, DeferredTensor)
    return not is_deferred and one.dtype == other.dtype and torch.equal(one, other)


def in_float32(tensor: Tensor) -> Tensor:
    """Return a tensor as it is, or one of half precision in float32, converted when it is used."""
    return DeferredTensor(tensor, Tensor.float, tensor.shape) if tensor.dtype in HALF else tensor.detach()


@dataclass(frozen=True)
class _Times:
    factor: float

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor * self.factor


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """Return a tensor times a number, computed when it is used."""
    return DeferredTensor(tensor, _Times(factor), tensor.shape)


@dataclass(frozen=True)
class _Rows:
    """Decodes rows of a tensor from `first` on, and adds rows of one value after them."""

    first: int
    count: int
    num_added: int
    fill: float

    def __call__(self, tensor: Tensor) -> Tensor:
        return self.rows(tensor, 0, self.count + self.num_added)

    def rows(self, stored: Tensor, start: int, stop: int) -> Tensor:
        """Return rows from `start` to before `stop`."""
        part = stored[self.first + min(start, self.count) : self.first + min(stop, self.count)]
        if stop <= self.count:
            return part
        return torch.cat([part, part.new_full((stop - start - len(part), *part.shape[1:]), self.fill)])


def rows_of(tensor: Tensor, first: int, count: int, *, num_added: int = 0, fill: float = 0.0) -> Tensor:
    """Return rows of a tensor, and added rows of one value after them, read when they are used."""
    return DeferredTensor(
        tensor, _Rows(first, count, num_added, fill), (count + num_added, *tensor.shape[1:])
    )


def add_tokens(weights: Tensors, *, src: int, tgt: int) -> None:
    """Add rows of zeros for missing tokens to embeddings and output; the output never writes these tokens.

    Args:
        weights: the weights by heedful's names, changed in place; shared matrices may be missing.
        src: the number of tokens of the source.
        tgt: the number of tokens of the target.
    """
    counts = {TOKENS["encoder"]: src} | dict.fromkeys((TOKENS["decoder"], "output.weight"), tgt)
    if tgt and "output.weight" in weights:
        weights.setdefault("output.bias", torch.zeros(len(weights["output.weight"])))
    for name, count in counts.items():
        if count and name in weights:
            weights[name] = rows_of(weights[name], 0, len(weights[name]), num_added=count)
    if tgt:
        bias = weights["output.bias"]
        weights["output.bias"] = rows_of(bias, 0, len(bias), num_added=tgt, fill=NEVER)


@dataclass(frozen=True)
class Imported:
    """An imported model: its configuration, and its weights by the names of a bundle."""

    config: ModelConfig
    weights: Tensors


class Conversion:
    """The tensors of a checkpoint, and the weights of heedful's model that they become.

    A table moves the tensors; `finish` infers the configuration from their shapes.

    Attributes:
        left: the tensors that were not moved yet, in the order of the file.
        moved: the weights by heedful's names.
        names: the checkpoint's names by heedful's, also of weights that were looked for.
        settings: the settings that the files or the user state, by key of `ModelConfig`.
        beside: the other contents of the checkpoint.
        origin: the file or directory.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        *,
        layout: str,
        origin: Path,
        settings: Settings,
        beside: Settings | None = None,
    ) -> None:
        self.left = dict(tensors)
        self.moved: Tensors = {}
        self.names: dict[str, str] = {}
        self.settings = dict(settings)
        self.beside = dict(beside or {})
        self.origin = origin
        self._layout = layout

    def error(self, problem: str) -> InteropError:
        """Return an exception that names the file and the layout."""
        return InteropError(f"{self.origin}: as layout {self._layout!r}, {problem}")

    def require(self, is_right: bool, problem: str) -> None:  # noqa: FBT001
        """Raise the exception of `error` unless a condition holds."""
        if not is_right:
            raise self.error(problem)

    def look(self, name: str) -> Tensor:
        """Return a tensor without using it.

        Raises:
            InteropError: it is missing, empty, a scalar, or of integers.
        """
        self.require(name in self.left, _MISSING.format(name))
        tensor = self.left[name]
        is_usable = tensor.ndim > 0 and tensor.numel() > 0 and tensor.is_floating_point()
        kind = f"of shape {tuple(tensor.shape)} and {tensor.dtype}"
        self.require(is_usable, f"the weight {name!r} is {kind}; it must be a vector or matrix of floats")
        return tensor

    def take(self, name: str) -> Tensor:
        """Remove and return a tensor. Raises as `look`."""
        tensor = self.look(name)
        del self.left[name]
        return tensor

    def put(self, ours: str, tensor: Tensor | None, *, origin: str) -> None:
        """Set a weight, if the model has it; `origin` is its name in the checkpoint."""
        if tensor is not None:
            self.moved[ours], self.names[ours] = tensor, origin

    def required(self, key: str) -> int:
        """Return a setting that cannot be inferred from the weights; InteropError if nothing states it."""
        value: Any = self.settings.get(key)
        self.require(
            is_whole(value, least=1), f"the weights do not say what model.{key} is; give --set model.{key}=N"
        )
        return int(value)

    def finish(self, **facts: Any) -> Imported:  # noqa: ANN401
        """Check that all tensors were used and have consistent shapes; return the model.

        Dropout that no file states is 0: fine-tuning keeps it, and a model that was trained without it would
        lose much of what it knows in the first steps.

        Args:
            **facts: settings of every model of the layout; the user's have priority.

        Raises:
            InteropError: a tensor is unknown, missing or of a wrong shape; the first is named.
            ConfigError: the settings are invalid.
        """
        self.require(not self.left, f"the weight {next(iter(self.left), '')!r} is unknown")
        norm = self.settings.get("norm", facts.get("norm", "post"))
        read = {"positions": facts.get("positions", "sinusoidal")} | self._sizes() | self._parts()
        read["final_norm"] &= norm == "post"
        if "num_heads" in facts:
            read["num_heads"] = facts["num_heads"]
        for key, value in read.items():
            stated = self.settings.get(key, value)
            self.require(
                stated == value,
                f"model.{key}={short(str(stated))} contradicts the weights: it is {value}",
            )
        num_heads = read.get("num_heads") or self.required("num_heads")
        num_kv_heads = self.settings.get("num_kv_heads") or facts.get("num_kv_heads") or num_heads
        self.require(
            is_whole(num_kv_heads, least=1),
            f"model.num_kv_heads={short(str(num_kv_heads))} is not a number of heads",
        )
        heads = self._head_sizes(num_heads, num_kv_heads, read["d_model"])
        model: Any = {"dropout": 0.0} | facts | heads | self.settings | read
        config = Config(model=model).model
        return Imported(config, self._fitting(config))

    def _sizes(self) -> Values:
        src, tgt = (self._weight(name, ndim=2).shape for name in TOKENS.values())
        d_ff = self._weight("encoder.layers.0.feed_forward.inner.weight", ndim=2).shape[0]
        sizes = {"d_model": src[1], "d_ff": d_ff, "src_vocab_size": src[0], "tgt_vocab_size": tgt[0]}
        for stack in STACKS:
            layers = re.findall(rf"\b{stack}\.layers\.([0-9]+)", " ".join(self.moved))
            sizes[f"num_{stack}_layers"] = len(set(layers))
        table = "encoder.embedding.positions.weight"
        if table not in self.moved:
            return sizes
        return sizes | {"positions": "learned", "max_positions": self._weight(table, ndim=2).shape[0]}

    def _parts(self) -> Values:
        """Return which biases and norms there are, and which matrices are tied: equal ones."""
        names = " ".join(self.moved)
        src, tgt, output = (self._weight(name, ndim=2) for name in (*TOKENS.values(), "output.weight"))
        one_pad = self.settings.get("src_pad_id", 0) == self.settings.get("tgt_pad_id", 0)
        ties = {(True, True): "all", (True, False): "embeddings", (False, True): "target"}
        return {
            "attention_bias": re.search(r"attention\.(query|key|value|output)\.bias", names) is not None,
            "feed_forward_bias": re.search(r"feed_forward\.(inner|outer)\.bias", names) is not None,
            "output_bias": "output.bias" in self.moved,
            "final_norm": ".final_norm." in names,
            "embedding_norm": "encoder.embedding.norm." in names
            and ("decoder.embedding.norm." in names or "encoder"),
            "tied": ties.get((one_pad and same_numbers(src, tgt), same_numbers(output, tgt)), "none"),
        }

    def _head_sizes(self, num_heads: int, num_kv_heads: int, d_model: int) -> dict[str, int]:
        sizes = {}
        for key, part, heads in (("d_k", "query", num_heads), ("d_v", "value", num_kv_heads)):
            name = f"encoder.layers.0.self_attention.{part}.weight"
            rows = self._weight(name, ndim=2).shape[0]
            self.require(
                rows % heads == 0,
                f"the {rows} rows of {self.names[name]!r} cannot be divided by model.num_heads={heads}",
            )
            if rows // heads * num_heads != d_model:
                sizes[key] = rows // heads
        return sizes

    def _weight(self, ours: str, *, ndim: int | None = None) -> Tensor:
        """Return a weight; InteropError if it is missing or has another number of dimensions."""
        name = self.names.get(ours, ours)
        self.require(ours in self.moved, _MISSING.format(name))
        tensor = self.moved[ours]
        self.require(
            ndim in (None, tensor.ndim), f"the weight {name!r} must be a matrix, not {tuple(tensor.shape)}"
        )
        return tensor

    def _fitting(self, config: ModelConfig) -> Tensors:
        """Return the weights of a model of this configuration, shared ones once.

        Biases are 0 if no module of their kind has one.
        """
        shapes = {n: p.shape for n, p in meta_model(config).named_parameters()}
        biased = {_kind(name) for name in self.moved if name.endswith(".bias")}
        weights: Tensors = {}
        for ours, shape in shapes.items():
            if ours.endswith(".bias") and _kind(ours) not in biased:
                weights[ours] = torch.zeros(shape)
                continue
            weights[ours] = tensor = self._weight(ours)
            problem = f"has shape {tuple(tensor.shape)}, but the others need {tuple(shape)}"
            self.require(tensor.shape == shape, f"the weight {self.names.get(ours)!r} {problem}")
        others = self.moved.keys() - shapes.keys() - {TOKENS["decoder"], "output.weight"}
        name = min(map(self.names.__getitem__, others), default="")
        self.require(not others, f"the weight {name!r} is not part of a model of these settings")
        return weights


def _kind(bias: str) -> str:
    """Return the group of a bias: norms, or a module in all layers. A group has all its biases or none."""
    return "norm" if "norm." in bias else re.sub(r"\.[0-9]+\.", ".", bias)


# Sinusoids computed through logarithms in float32 have larger errors from position 30 or so on.
_TOLERANCE = 2e-6
ANGLE_ROUNDING = 3e-7  # of a float32 angle, for each position: its wavelength has a relative error


@dataclass(frozen=True)
class Positions:
    """How tables of positions are read; they are (L, D), (1, L, D) or (L, 1, D).

    Tables that equal the sinusoids are dropped, because the model computes them. Others become learned
    positions, and a shorter one is padded with zeros.

    Attributes:
        learned: whether tables are never dropped, and are cut to the shorter one.
        fixed: whether tables were computed. Then a stack without one uses the other's, and
            `model.positions=sinusoidal` drops any table.
        required: whether both tables must be in the file.
        formula: the sinusoids of a length and d_model, by default the paper's.
        rounding: the difference that an angle may have for each position, such as `ANGLE_ROUNDING`.
        unused: the number of first rows that no position has.
    """

    learned: bool = False
    fixed: bool = False
    required: bool = True
    formula: Callable[[int, int], Tensor] = sinusoids
    rounding: float = 0.0
    unused: int = 0


def move_positions(conversion: Conversion, tables: Mapping[str, str], positions: Positions) -> None:
    """Move the position tables of both stacks.

    Args:
        conversion: the checkpoint.
        tables: the name of a tensor by stack, "encoder" and "decoder"; without any, positions are sinusoids.
        positions: how tables are read.

    Raises:
        InteropError: the vectors of two tables have different sizes.
    """
    by_name: Tensors = {}
    for name in tables.values():
        if name not in by_name:
            table = conversion.take(name)
            by_name[name] = table.reshape(-1, table.shape[-1])[positions.unused :]
    use_formula = positions.fixed and conversion.settings.get("positions") == "sinusoidal"
    is_computed = use_formula or all(is_formula(table, positions) for table in by_name.values())
    if is_computed and not positions.learned:
        return
    if positions.fixed:
        tables = dict.fromkeys(STACKS, next(iter(by_name))) | dict(tables)
    names = " and ".join(map(repr, by_name))
    conversion.require(
        len({table.shape[1] for table in by_name.values()}) <= 1,
        f"the vectors of {names} have different sizes",
    )
    length = (min if positions.learned else max)(map(len, by_name.values()), default=0)
    for stack, name in tables.items():
        table = by_name[name]
        added = length - len(table)
        conversion.put(f"{stack}.embedding.positions.weight", pad(table, (0, 0, 0, added)), origin=name)


def is_formula(table: Tensor, positions: Positions) -> bool:
    """Return whether a table (L, D) has the sinusoids of `positions`."""
    length, d_model = table.shape
    if d_model % 2:
        return False
    tolerance = _TOLERANCE + positions.rounding * torch.arange(length)[:, None]
    return bool(((table - positions.formula(length, d_model)).abs() <= tolerance).all())


# Keys of the state dict in files that have more than that.
_WRAPPERS = ("model", "state_dict", "model_state_dict", "net", "weights")
_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile
_RESAVE = "save the weights alone, with torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file.

    Attributes:
        tensors: the weights by name.
        beside: the other contents by key, for example the arguments of the training script.
    """

    tensors: Tensors
    beside: Settings = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file written by `torch.save` or safetensors.

    The file may be a state dict, or a dict with one under a key such as "model" or "state_dict". Half
    precision becomes float32.

    Raises:
        InteropError: there is no such file, reading it would execute code, it has no weights, or its tensors
            are larger than the file.
    """
    if not path.is_file():
        raise InteropError(f"{path}: no such file; give the file that torch.save wrote")
    try:
        contents = read_safetensors(path) if path.suffix == ".safetensors" else read_pickled(path)
        state_dict = _state_dict(contents)
        check_tensors(state_dict)
    except ValueError as error:
        raise InteropError(f"{path}: {error}; {_RESAVE}") from error
    tensors: Tensors = {name: in_float32(tensor) for name, tensor in state_dict.items()}
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    beside = contents if isinstance(contents, Mapping) and state_dict is not contents else {}
    return Checkpoint(tensors, beside)


def _state_dict(contents: object) -> Settings:
    if not isinstance(contents, Mapping) or not contents:
        raise ValueError(f"holds no weights but a {type(contents).__name__}")
    for key in _WRAPPERS:
        inner = contents.get(key)
        if isinstance(inner, Mapping) and inner:
            return inner
    return contents
