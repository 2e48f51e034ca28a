"""Adam, with the paper's constants (5.3); or Muon for the matrices of the layers, and Adam for the rest.

`choose_trained_weights` says which weights the optimiser gets.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError, suggestion
from heedful.model.transformer import Transformer
from heedful.ops.kernels import torch_dtype
from heedful.ops.lora import add_adapters, inner_linear_layers
from heedful.settings import plugins
from heedful.settings.options import TrainingPrecision
from heedful.settings.run import Config, OptimizerConfig

# p(x) = a x + b x³ + c x⁵, one after the other, each the best for what the one before leaves (Amsel et al.,
# 2025, "The Polar Express"); test_muon.py computes them again.
_OPTIMAL = (
    (8.219101105846393, -23.40195672053617, 17.1581989432209),
    (4.00487605914897, -2.9223467745083926, 0.5491185267263446),
    (3.5235614361928356, -2.6398035290594555, 0.5272128341911069),
    (2.511527166352731, -1.852448356083007, 0.4388326355802107),
)
_SAFETY = 1.01  # how far rounding may lift a singular value above the interval of a polynomial
COEFFICIENTS = (*((a / _SAFETY, b / _SAFETY**3, c / _SAFETY**5) for a, b, c in _OPTIMAL[:-1]), _OPTIMAL[-1])
_BLOCK = 128  # rows of the smallest blocks of a symmetric product; smaller ones cost more than they save


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al., 2024) with Nesterov momentum and decoupled weight decay, for matrices only.

    Each matrix moves by lr · 0.2 · sqrt(max(rows, columns)) times the orthogonal update, so that its elements
    move about as far as under Adam and one learning rate serves both (Liu et al., 2025, "Muon is scalable for
    LLM training"). Groups have `lr`, `momentum`, `weight_decay` and `precision` (see `orthogonalise`).
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        for group in self.param_groups:
            for weights in _together(group["params"]):
                self._update(weights, group)

    def _update(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """Update weights of one shape."""
        rate, momentum = group["lr"], group["momentum"]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        averages = [self.state[weight]["momentum_buffer"] for weight in weights]
        torch._foreach_lerp_(averages, gradients, 1.0 - momentum)
        updates = torch._foreach_lerp(gradients, averages, momentum)
        directions = _orthogonalise_each(updates, group["precision"])
        torch._foreach_mul_(weights, 1.0 - rate * group["weight_decay"])
        torch._foreach_add_(weights, directions, alpha=-rate * 0.2 * math.sqrt(max(weights[0].shape)))


def _together(weights: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the weights that have a gradient: on a GPU those of one shape together, otherwise one by one.

    A GPU multiplies the matrices of all layers by one kernel; a CPU does not gain, and needs less memory.
    """
    ready = [weight for weight in weights if weight.grad is not None]
    if not all(weight.is_cuda and type(weight.data) is Tensor for weight in ready):  # CPU, or sharded
        return [[weight] for weight in ready]
    of_shape: dict[torch.Size, list[Tensor]] = {}
    for weight in ready:
        of_shape.setdefault(weight.shape, []).append(weight)
    return list(of_shape.values())


def _orthogonalise_each(matrices: Sequence[Tensor], precision: TrainingPrecision) -> list[Tensor]:
    """Return `orthogonalise` of matrices of one shape, each sharded as the matrix is."""
    if len(matrices) > 1:
        return list(orthogonalise(torch.stack(tuple(matrices)), precision).unbind())
    return [_orthogonalise_whole(matrices[0], precision)]


def orthogonalise(matrix: Tensor, precision: TrainingPrecision) -> Tensor:
    """Return nearly U Vᵀ of a matrix U S Vᵀ: (..., M, N), of the matrix's type. A zero matrix stays zero.

    Args:
        matrix: one matrix, or several; singular values above 0.003 of the matrix's norm become 0.77 to
            1.22 in float32. In bf16 they become at most 1.25, and small ones are less exact.
        precision: the precision of the matrix multiplications.
    """
    rows, columns = matrix.shape[-2:]
    x = matrix.mT if rows > columns else matrix
    norms = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True)
    x = (x / (_SAFETY * norms).clamp_min(1e-7)).to(torch_dtype(precision))
    # The Gram matrix of a wide one is much smaller; its powers need the digits of float32.
    is_wide = x.shape[-1] >= 2 * x.shape[-2] and precision == "float32"
    x = (_by_gram_matrix(x) if is_wide else _by_steps(x)).to(matrix.dtype)
    return x.mT if rows > columns else x


def _orthogonalise_whole(matrix: Tensor, precision: TrainingPrecision) -> Tensor:
    """Return `orthogonalise` of a matrix, sharded as that is: if it is, each rank computes all of it."""
    if not hasattr(matrix, "full_tensor"):
        return orthogonalise(matrix, precision)
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(matrix, DTensor)
    whole = orthogonalise(matrix.full_tensor(), precision)
    replicated = DTensor.from_local(whole, matrix.device_mesh, [Replicate()])
    return replicated.redistribute(placements=matrix.placements)


def num_multiplications(matrix: Tensor, precision: TrainingPrecision) -> int:
    """Return the number of multiplications in `orthogonalise` for such a matrix."""
    rows, columns = sorted(matrix.shape)
    first, other = (_num_computed(rows) * inner for inner in (columns, rows))  # of symmetric products
    last, steps = rows * rows * columns, len(COEFFICIENTS)
    if columns >= 2 * rows and precision == "float32":
        return first + (4 * steps - 3) * other + last
    return steps * (first + other + last)


def _by_steps(x: Tensor) -> Tensor:
    """Apply the polynomials: x becomes (a + b A + c A²) x, where A = x xᵀ."""
    add_product = torch.addmm if x.dim() == 2 else torch.baddbmm
    for a, b, c in COEFFICIENTS:
        gram = _symmetric(x, x.mT)
        x = add_product(x, _symmetric(gram, gram).mul_(c).add_(gram, alpha=b), x, beta=a)
    return x


def _by_gram_matrix(x: Tensor) -> Tensor:
    """Apply the same polynomials, all but the last matrix multiplication on A = x xᵀ alone.

    With Q = a + b A + c A², a step maps x to Q x and A to Q A Q, so x is multiplied by the product of all Qs.
    They are polynomials of one matrix, so their products are symmetric.
    """
    gram, product = _symmetric(x, x.mT), None
    for number, (a, b, c) in enumerate(COEFFICIENTS, start=1):
        q = _symmetric(gram, gram).mul_(c).add_(gram, alpha=b)
        q.diagonal(dim1=-2, dim2=-1).add_(a)
        product = q if product is None else _symmetric(q, product)
        if number < len(COEFFICIENTS):
            gram = _symmetric(_symmetric(q, gram), q)
    assert product is not None
    return product @ x


def _symmetric(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right, (..., M, N) by (..., N, M), which must be symmetric: a CPU computes half of it."""
    if left.is_cuda or left.dim() > 2:  # one large multiplication takes less time than several small ones
        return left @ right
    result = left.new_empty(left.shape[0], left.shape[0])
    _fill_symmetric(result, left, right)
    return result


def _num_computed(size: int) -> int:
    """Return how many elements of a symmetric product are computed; the others are copied."""
    if size < 2 * _BLOCK:
        return size * size
    half = size // 2
    return _num_computed(half) + _num_computed(size - half) + half * (size - half)


def _fill_symmetric(result: Tensor, left: Tensor, right: Tensor) -> None:
    size = len(result)
    if size < 2 * _BLOCK:
        torch.mm(left, right, out=result)
        return
    half = size // 2
    _fill_symmetric(result[:half, :half], left[:half], right[:, :half])
    _fill_symmetric(result[half:, half:], left[half:], right[:, half:])
    torch.mm(left[:half], right[:, half:], out=result[:half, half:])
    result[half:, :half] = result[:half, half:].T


Groups = list[dict[str, Any]]

_MULTIPLICATIONS = 25  # per Adam update of one number, in equal time: 0.03 and 0.8 ns on an AVX2 core


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, *, precision: TrainingPrecision
) -> torch.optim.Optimizer:
    """Return the optimiser of the trained weights; each step sets its learning rate.

    - adam: all weights, in one fused kernel (5.3).
    - muon: `Muon` for the matrices of the linear layers in encoder and decoder; Adam for embeddings,
      pre-softmax matrix, positions, norms and biases.

    Weight decay is decoupled (AdamW) and excludes biases and norms.
    """
    inner: set[Tensor] = set()
    if config.name == "muon":
        for layer in inner_linear_layers(model).values():
            inner.update(layer.parameters(recurse=False))
    orthogonalised: list[Tensor] = []
    matrices: list[Tensor] = []
    vectors: list[Tensor] = []
    for weight in trained_weights(model).values():
        if weight.dim() <= 1:
            vectors.append(weight)
        elif weight in inner:
            orthogonalised.append(weight)
        else:
            matrices.append(weight)
    adam = {"lr": 0.0, "betas": (config.beta1, config.beta2), "eps": config.eps}
    groups: Groups = [
        {"params": matrices, "weight_decay": config.weight_decay} | adam,
        {"params": vectors, "weight_decay": 0.0} | adam,
    ]
    if ":" in config.name:
        return _plugged(config.name, groups)
    if config.name == "adam":
        kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
        return kind(groups, fused=True)
    orthogonal = {
        "params": orthogonalised,
        "weight_decay": config.weight_decay,
        "lr": 0.0,
        "momentum": 0.95,
        "precision": precision,
    }
    return MuonAndAdam([orthogonal, *groups])


def _plugged(name: str, groups: Groups) -> torch.optim.Optimizer:
    kind: Any = plugins.plugin_part(name, "optimizer.name")
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise ConfigError(f"optimizer.name={name}: must be a class of optimisers (torch.optim.Optimizer)")
    plugins.check_arguments(kind, f"optimizer.name={name}", "groups")

    build: Callable[[Groups], torch.optim.Optimizer] = kind

    def tried(groups: Groups) -> torch.optim.Optimizer:
        weight = nn.Parameter(torch.zeros(2, 2))
        weight.grad = torch.ones(2, 2)
        build([group | {"params": [weight]} for group in groups[:1]]).step()
        return build(groups)

    checked = plugins.PluginFunction(
        tried,
        f"optimizer.name={name}",
        "groups",
        returns="an optimiser of them",
        is_right=lambda made, _: isinstance(made, torch.optim.Optimizer),
    )
    optimizer: torch.optim.Optimizer = checked([group for group in groups if group["params"]])
    return optimizer


def is_plugged(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a plugin defines an optimiser: its state may have any form."""
    return type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW, MuonAndAdam)


class MuonAndAdam(torch.optim.Optimizer):
    """Muon for the groups that have a momentum, torch's AdamW for those that have betas.

    Groups and state have torch's usual form, so saving, loading and sharing work as for any optimiser.
    """

    def __init__(self, groups: Groups) -> None:
        muon, adam = _muons_and_adams(groups)
        self._parts = Muon(muon), torch.optim.AdamW(adam, fused=True)  # they fill in defaults
        super().__init__(groups, {})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all weights once."""
        for part, groups in zip(self._parts, _muons_and_adams(self.param_groups), strict=True):
            part.param_groups, part.state = groups, self.state  # loading may have replaced them
            part.step(closure)


def _muons_and_adams(groups: Groups) -> tuple[Groups, Groups]:
    return [g for g in groups if "momentum" in g], [g for g in groups if "betas" in g]


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load the state of each weight from a checkpoint; the settings stay as configured."""
    settings = [{name: group[name] for name in group if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, settings, strict=True):
        group.update(own | {"lr": group["lr"]})


def optimizer_of_shard(optimizer: torch.optim.Optimizer, shard: Sequence[Tensor]) -> torch.optim.Optimizer:
    """Return an optimiser over some of another's weights, with the same settings and shared state."""
    if is_plugged(optimizer):
        return optimizer  # one rank updates all weights
    chosen = {*shard}
    groups = [
        group | {"params": [weight for weight in group["params"] if weight in chosen]}
        for group in optimizer.param_groups
    ]
    kind: Callable[[Groups], torch.optim.Optimizer] = type(optimizer)
    part = kind(groups)
    for weight in shard:
        part.state[weight] = optimizer.state[weight]
    return part


def fill_state(optimizer: torch.optim.Optimizer) -> None:
    """Initialise the state of each weight that has none, as its first step would.

    The moments are an expanded scalar zero, which takes no memory until they get a buffer.
    """
    for weight, group in optimized_weights(optimizer).items():
        if not optimizer.state[weight]:
            for name, shape in state_shapes(weight, group).items():
                dtype = torch.float32 if name == "step" else weight.dtype
                optimizer.state[weight][name] = weight.new_zeros((), dtype=dtype).expand(shape)


def state_shapes(weight: Tensor, group: Mapping[str, Any]) -> dict[str, torch.Size]:
    """Return the names and shapes of a weight's state in its group, which is Adam's or Muon's."""
    if "betas" in group:
        return {"exp_avg": weight.shape, "exp_avg_sq": weight.shape, "step": torch.Size()}
    return {"momentum_buffer": weight.shape}


def update_costs(optimizer: torch.optim.Optimizer) -> dict[Tensor, int]:
    """Return the cost of updating each weight, in units of Adam updating one number."""
    costs = {}
    for weight, group in optimized_weights(optimizer).items():
        costs[weight] = weight.numel()
        if "momentum" in group:
            costs[weight] += num_multiplications(weight, group["precision"]) // _MULTIPLICATIONS
    return costs


def optimized_weights(optimizer: torch.optim.Optimizer) -> dict[Tensor, dict[str, Any]]:
    """Return the weights of an optimiser in its order, with their groups."""
    return {weight: group for group in optimizer.param_groups for weight in group["params"]}


def choose_trained_weights(model: Transformer, config: Config) -> None:
    """Add the configured adapters and set `requires_grad` of frozen weights to False.

    The optimiser gets only the others; checkpoints and averages hold all weights. A shared matrix is frozen
    if one of its names is.
    """
    if config.lora.rank:
        add_adapters(model, config.lora)
    for prefix in config.train.freeze:
        _freeze(model, prefix)
    if not trained_weights(model):
        raise ConfigError(
            "no weight is left to train: give train.freeze fewer prefixes, or lora.targets more layers"
        )


def _freeze(model: Transformer, prefix: str) -> None:
    weights = dict(model.named_parameters(remove_duplicate=False))
    frozen = [weight for name, weight in weights.items() if name.startswith(prefix)]
    if not frozen:
        parts = {".".join([*name.split(".")[:2], ""]) for name in weights if name.count(".") > 1}
        known = sorted({name.split(".")[0] + "." for name in weights} | parts)
        raise ConfigError(f"train.freeze: no weight's name begins with {prefix!r}{suggestion(prefix, known)}")
    for weight in frozen:
        weight.requires_grad = False


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that training changes, by name; a shared matrix has one."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def num_trained(model: Transformer) -> int:
    """Return the number of trained parameters; a shared matrix counts once."""
    return sum(weight.numel() for weight in trained_weights(model).values())
