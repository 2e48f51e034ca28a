"""The Transformer (paper, Figure 1): an encoder, a decoder, and the matrix that turns states into logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedful.assembly import decoder_layers, encoder_layers, final_norm, initialise, input_embedding
from heedful.config import ModelConfig
from heedful.nn.cache import DecoderCache, LayerCache
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.masks import padding_mask


@dataclass(frozen=True)
class Memory:
    """What the decoder knows of the source: the encoder's states (B, S, D) and their mask (B, 1, 1, S)."""

    states: Tensor
    mask: Tensor


class Encoder(nn.Module):
    """A stack of N identical layers over the embedded source (3.1)."""

    def __init__(self, embedding: InputEmbedding, layers: list[EncoderLayer], final_norm: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm  # the identity, unless the layers normalise first or it is asked for

    def forward(self, src: Tensor, mask: Tensor) -> Tensor:
        """Encode ids (B, S) to states (B, S, D)."""
        x = self.embedding(src)
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """A stack of N identical layers over the embedded target, attending to the encoder's output (3.1)."""

    def __init__(self, embedding: InputEmbedding, layers: list[DecoderLayer], final_norm: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(self, tgt_in: Tensor, memory: Memory) -> Tensor:
        """Turn ids (B, T) into states (B, T, D), all positions at once; none sees a later one."""
        x = self.embedding(tgt_in)
        for layer in self.layers:
            x = layer(x, memory.states, memory.mask)
        return self.final_norm(x)  # type: ignore[no-any-return]

    def start_cache(self, memory: Memory) -> DecoderCache:
        """Project the memory for every layer, once, before decoding token by token."""
        layers = [
            LayerCache(*layer.cross_attention.keys_and_values(memory.states)) for layer in self._layers()
        ]
        return DecoderCache(layers, memory.mask)

    def step(self, ids: Tensor, cache: DecoderCache) -> Tensor:
        """Feed one more id to each row, (B,), and return the newest states (B, D)."""
        x = self.embedding(ids[:, None], start=cache.length)
        for layer, layer_cache in zip(self._layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, cache.memory_mask)
        cache.length += 1
        return self.final_norm(x)[:, 0]  # type: ignore[no-any-return]

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class Transformer(nn.Module):
    """The whole model: logits for the next token at each target position, given the source."""

    def __init__(self, encoder: Encoder, decoder: Decoder, output: nn.Linear, config: ModelConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.config = config

    @classmethod
    def from_config(cls, config: ModelConfig) -> Self:
        """Build a model with fresh weights, drawn from torch's global generator.

        The paper says nothing of initialisation. All matrices, embeddings included, are drawn from
        N(0, 0.02²), as BERT's: where the sub-layers begin small, a post-norm stack learns about twice as fast
        as from Glorot's (docs/log.md).
        """
        d_model = config.d_model
        tgt_tokens = nn.Embedding(config.tgt_vocab_size, d_model)
        src_tokens = tgt_tokens if config.tied == "all" else nn.Embedding(config.src_vocab_size, d_model)
        encoder = Encoder(input_embedding(config, src_tokens), encoder_layers(config), final_norm(config))
        decoder = Decoder(input_embedding(config, tgt_tokens), decoder_layers(config), final_norm(config))
        output = nn.Linear(d_model, config.tgt_vocab_size, bias=config.output_bias)
        if config.tied != "none":
            output.weight = tgt_tokens.weight  # 3.4
        model = cls(encoder, decoder, output, config)
        model.apply(initialise)
        return model

    @classmethod
    def outline(cls, config: ModelConfig) -> Self:
        """Build a model of weights that have names and shapes, but no values yet; `assign` gives them."""
        with torch.device("meta"), _NothingDrawn():
            model = cls.from_config(config)
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):  # tables that grow, empty at first
                setattr(module, name, torch.empty_like(buffer, device="cpu"))
        return model

    def assign(self, weights: Mapping[str, Tensor]) -> None:
        """Make these tensors the weights themselves, by their names; a shared matrix stays shared."""
        names = {id(parameter): name for name, parameter in self.named_parameters()}
        assigned = {name: nn.Parameter(weights[name]) for name in names.values()}
        for name, parameter in list(self.named_parameters(remove_duplicate=False)):
            module, _, last = name.rpartition(".")
            setattr(self.get_submodule(module), last, assigned[names[id(parameter)]])

    @property
    def num_parameters(self) -> int:
        """How many numbers the weights are; a shared matrix counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return logits (B, T, V) for source ids (B, S) and right-shifted target ids (B, T), padded right."""
        return self.project(self.decode(tgt_in, self.encode(src)))

    def encode(self, src: Tensor) -> Memory:
        """Read source ids (B, S), padded on the right with `src_pad_id`."""
        mask = padding_mask(src, self.config.src_pad_id)
        return Memory(self.encoder(src, mask), mask)

    def decode(self, tgt_in: Tensor, memory: Memory) -> Tensor:
        """Return the decoder's states (B, T, D) for right-shifted target ids (B, T).

        Target padding needs no mask: it stands on the right, where no real position can look.
        """
        return self.decoder(tgt_in, memory)  # type: ignore[no-any-return]

    def project(self, states: Tensor) -> Tensor:
        """Turn states (..., D) into logits (..., V) over the target vocabulary (3.4)."""
        return self.output(states)  # type: ignore[no-any-return]

    def start_cache(self, memory: Memory) -> DecoderCache:
        """Begin decoding token by token."""
        return self.decoder.start_cache(memory)

    def decode_step(self, ids: Tensor, cache: DecoderCache) -> Tensor:
        """Feed the newest id of each row (B,) and return the logits (B, V) of what comes next."""
        return self.project(self.decoder.step(ids, cache))


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name, a shared one once, without building all layers.

    It takes the same time however many there are: those after the second are like the second.
    """
    sides = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    few = config.replace(**{f"num_{side}_layers": min(2, count) for side, count in sides.items()})
    shapes = {name: tuple(each.shape) for name, each in Transformer.outline(few).named_parameters()}
    for side, count in sides.items():
        second = f"{side}.layers.1."
        like_second = {name.removeprefix(second): shapes[name] for name in shapes if name.startswith(second)}
        for i in range(2, count):
            shapes |= {f"{side}.layers.{i}.{name}": shape for name, shape in like_second.items()}
    return shapes


class _NothingDrawn(TorchFunctionMode):
    """Leaves out what draws random numbers: on the meta device it would change nothing, and take seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """See torch's documentation."""
        kwargs = kwargs or {}
        if func.__name__ in {"normal_", "uniform_", "kaiming_uniform_"}:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
