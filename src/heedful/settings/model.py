"""The settings of a model's architecture, with the paper's base model as defaults."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from heedful.settings.options import Count
from heedful.settings.plugins import PartName
from heedful.settings.section import Depth, Heads, NumPositions, Probability, Section, VocabSize, Width

# Of the sinusoids with d_model / 2 - 1 steps between wavelengths: the number of a sequence's first position.
SINUSOID_OFFSETS = {"marian": 0, "opennmt-tf": 1, "fairseq": 2}
# Values of `ModelConfig.tied`: source and target have one embedding; the target's is the output's matrix too.
SHARED_EMBEDDINGS, SHARED_OUTPUT = ("all", "embeddings"), ("all", "target")


Cap = Annotated[float, Field(gt=0.0, le=1e6)]
RotaryBase = Annotated[float, Field(ge=1.0, le=1e9)]


def id_rule(key: str, value: int | None, text: str, vocab_size: int) -> tuple[bool, str]:
    """Return whether an id is outside of a vocabulary with a known size, and what to say then."""
    is_outside = value is not None and 0 < vocab_size <= value
    return is_outside, f"{key}={value} must be below model.{text}_vocab_size={vocab_size}"


class ModelConfig(Section):
    """The architecture (paper, section 3). The defaults are the base model.

    >>> config = ModelConfig(src_vocab_size=37_000, tgt_vocab_size=37_000)
    >>> config.num_heads, config.head_key_size
    (8, 64)
    >>> small = config.replace(d_model=256, num_heads=4)
    """

    d_model: Width = Field(512, description="Width of the model: the size of every token's vector (3.1).")
    num_heads: Heads = Field(8, description="Attention heads (3.2.2).")
    d_k: Width | None = Field(
        None, description="Size of a head's queries and keys (3.2.2); none: d_model / num_heads."
    )
    d_v: Width | None = Field(None, description="Size of a head's values (3.2.2); none: d_model / num_heads.")
    num_kv_heads: Heads | None = Field(
        None,
        description="Heads of keys and values that query heads share (grouped-query attention, not in the "
        "paper); none: one for each query head.",
    )
    query_norm: bool = Field(
        default=False,
        description="Normalise each head's queries and keys by an RMSNorm (QK-norm, not in the paper).",
    )
    attention_cap: Cap | None = Field(
        None,
        description="Keep scores of attention between -cap and cap: cap * tanh(s / cap) (not in the paper); "
        "none: no limit.",
    )
    output_cap: Cap | None = Field(
        None, description="The same for the logits of the pre-softmax transformation (not in the paper)."
    )
    attention: PartName | None = Field(
        None,
        description="Class of a plugin instead of multi-head attention (3.2.2), such as mine:Linear; none: "
        "the paper's.",
    )
    d_ff: Width = Field(2048, description="Size of the feed-forward network's inner layer (3.3).")
    num_encoder_layers: Depth = Field(6, description="Layers of the encoder (3.1).")
    num_decoder_layers: Depth = Field(6, description="Layers of the decoder (3.1).")
    decoder_unit: Literal["attention", "ssru", "merged"] = Field(
        "attention",
        description="How the decoder sees its earlier outputs: self-attention (3.1), a simpler simple "
        "recurrent unit (ssru, as in Marian's students): its cost does not grow with the length; or merged, "
        "one attention over the source and the earlier outputs (T5Gemma 2), with query_norm.",
    )
    dropout: Probability = Field(
        0.1, description="Dropout on each sub-layer's output and on the embedded input (5.4)."
    )
    attention_dropout: Probability = Field(
        0.0, description="Dropout on the attention weights (not in the paper)."
    )
    activation_dropout: Probability = Field(
        0.0, description="Dropout inside the feed-forward layer (not in the paper)."
    )
    word_dropout: Probability = Field(
        0.0, description="Dropout of whole token embeddings, source and target (not in the paper)."
    )
    feed_forward: PartName | None = Field(
        None, description="Class of a plugin instead of the feed-forward layer (3.3); none: the paper's."
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] | PartName = Field(
        "relu", description="Activation function of the feed-forward layer (3.3), also of a plugin."
    )
    gated: bool = Field(
        default=False, description="Add a gate to the feed-forward layer (GLU, not in the paper)."
    )
    norm: Literal["post", "pre", "both"] = Field(
        "post",
        description="Layer normalisation after each residual connection (post, 3.1), before each sub-layer "
        "and at the end of each stack (pre), or before and after each sub-layer and at the end (both).",
    )
    norm_kind: Literal["layer", "rms"] | PartName = Field(
        "layer",
        description="Layer normalisation (3.1), RMSNorm, which neither centres nor shifts, or a class of a "
        "plugin.",
    )
    positions: (
        Literal[
            "sinusoidal",
            "concatenated",
            "marian",
            "opennmt-tf",
            "fairseq",
            "learned",
            "rotary",
            "alibi",
            "relative",
        ]
        | PartName
    ) = Field(
        "sinusoidal",
        description="Positional encoding: sinusoidal (3.5); concatenated, the same with sines first and "
        "cosines after them (transformers' MarianMT); marian, concatenated with other wavelengths (Marian "
        "itself, OpenNMT-py's SinusoidalConcat); opennmt-tf, marian's counted from 1 (OpenNMT-tf, "
        "CTranslate2's default); fairseq, marian's counted from 2 (fairseq, FSMT, M2M100); learned (Table 3, "
        "row E); rotary queries and keys (RoPE); alibi, attention that falls with distance (ALiBi); "
        "relative, a learned bias for each bucket of distances (T5); or a class of a plugin.",
    )
    max_positions: NumPositions = Field(
        1024, description="Number of learned positions; the other encodings have no limit."
    )
    relative_buckets: Annotated[int, Field(ge=4, le=2**16)] = Field(
        32, description="Buckets of relative positions, as in T5."
    )
    relative_max_distance: NumPositions = Field(
        128, description="Relative positions at this distance or more share the last bucket."
    )
    relative_per_layer: bool = Field(
        default=False,
        description="Give each layer its own relative biases (UMT5); otherwise the layers of a stack share "
        "them (T5).",
    )
    rotary_base: RotaryBase = Field(10_000.0, description="Base of the angles of rotary positions.")
    rotary_scale: RotaryBase = Field(
        1.0,
        description="Rotary positions are divided by this, for sequences longer than the trained ones; those "
        "of windowed layers are not.",
    )
    full_attention_every: Depth = Field(
        1,
        description="With rotary positions, each N-th layer's self-attention sees the whole sequence, and "
        "the other layers a window; 1: all see the whole.",
    )
    encoder_window: tuple[Count, Count] | None = Field(
        None,
        description="Tokens before and after its own that a windowed encoder layer attends to, "
        "such as [128, 128]; none: all.",
    )
    decoder_window: Count | None = Field(
        None, description="Tokens before its own that a windowed decoder layer attends to; none: all."
    )
    rotary_window_base: RotaryBase | None = Field(
        None, description="Base of the angles of windowed layers; none: rotary_base."
    )
    tied: Literal["all", "target", "embeddings", "none"] = Field(
        "all",
        description="Matrices that are shared: both embeddings and the pre-softmax transformation (all, "
        "3.4), the target embedding and that transformation (target), both embeddings (embeddings), or none.",
    )
    attention_bias: bool = Field(
        default=True,
        description="Give the projections of attention a bias (docs/decisions/0001-attention-bias.md).",
    )
    feed_forward_bias: bool = Field(default=True, description="Give the feed-forward layers a bias (3.3).")
    output_bias: bool = Field(
        default=False, description="Give the pre-softmax transformation a bias; the paper has none (3.4)."
    )
    scale_embeddings: bool = Field(
        default=True, description="Multiply embeddings by the root of d_model (3.4)."
    )
    embedding_norm: bool | Literal["encoder"] = Field(
        default=False,
        description="Normalise the embedded input of each stack, or of the encoder alone (not in the paper).",
    )
    final_norm: bool = Field(
        default=False,
        description="Normalise the output of post-norm stacks (not in the paper); other stacks always do.",
    )
    # A large one hides all values from the layers after it.
    layer_norm_eps: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1e-5, description="Number added to the variance in normalisation."
    )
    decoder_start_id: Count | None = Field(
        None, description="The decoder's first input id; none: the tokenizer's begin token."
    )
    alignment_layer: Depth | None = Field(
        None,
        description="Decoder layer with cross-attention that was trained to align words (guided alignment, "
        "not in the paper); none: no layer was, and alignments come from the last layer but one.",
    )
    alignment_heads: Heads = Field(
        1, description="Heads of alignment_layer that were trained to align words: its first ones."
    )
    src_vocab_size: VocabSize = Field(0, description="Size of the source vocabulary; 0: the tokenizer's.")
    tgt_vocab_size: VocabSize = Field(0, description="Size of the target vocabulary; 0: the tokenizer's.")
    src_pad_id: Count = Field(0, description="Padding id of the source; training takes the tokenizer's.")
    tgt_pad_id: Count = Field(0, description="Padding id of the target; training takes the tokenizer's.")

    @property
    def head_key_size(self) -> int:
        """d_k, resolved."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def head_value_size(self) -> int:
        """d_v, resolved."""
        return self.d_v or self.d_model // self.num_heads

    @property
    def plugged(self) -> dict[str, str]:
        """The parts of plugins, `PLUGIN:NAME` by the setting that names each; only torch computes them."""
        names = ("attention", "feed_forward", "activation", "norm_kind", "positions")
        values = {f"model.{name}": getattr(self, name) for name in names}
        return {key: value for key, value in values.items() if value and ":" in value}

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        shared = self.tied in SHARED_EMBEDDINGS
        yield from (
            (
                (self.d_k is None or self.d_v is None) and self.d_model % self.num_heads,
                f"model.num_heads={self.num_heads} must divide model.d_model={self.d_model}, "
                "or model.d_k and model.d_v must both be set",
            ),
            (
                self.positions in ("sinusoidal", "concatenated", *SINUSOID_OFFSETS) and self.d_model % 2,
                f"model.d_model={self.d_model} must be even for {self.positions} positions",
            ),
            (
                self.positions == "rotary" and self.head_key_size % 2,
                f"model.d_k={self.head_key_size} must be even for rotary positions",
            ),
            (
                self.positions == "relative" and self.relative_max_distance <= self.relative_buckets // 2,
                f"model.relative_max_distance={self.relative_max_distance} must be above half of "
                f"model.relative_buckets={self.relative_buckets}: shorter distances have one bucket each",
            ),
            (
                self.full_attention_every > 1 and self.positions != "rotary",
                f"model.full_attention_every={self.full_attention_every} needs model.positions=rotary",
            ),
            (
                self.full_attention_every == 1 and (self.encoder_window, self.decoder_window) != (None, None),
                "model.encoder_window and decoder_window need model.full_attention_every above 1",
            ),
            (
                self.decoder_unit == "merged" and not self.query_norm,
                'model.decoder_unit="merged" needs model.query_norm=true',
            ),
            (
                self.num_kv_heads and self.num_heads % self.num_kv_heads,
                f"model.num_kv_heads={self.num_kv_heads} must divide model.num_heads={self.num_heads}",
            ),
            (
                shared and self.src_vocab_size != self.tgt_vocab_size,
                f'model.tied="{self.tied}" needs one vocabulary, but model.src_vocab_size='
                f"{self.src_vocab_size} and model.tgt_vocab_size={self.tgt_vocab_size}; "
                'use model.tied="target" or "none"',
            ),
            (
                shared and self.src_pad_id != self.tgt_pad_id,
                f'model.tied="{self.tied}" needs one padding id, but model.src_pad_id={self.src_pad_id} '
                f"and model.tgt_pad_id={self.tgt_pad_id}",
            ),
            (
                (self.alignment_layer or 0) > self.num_decoder_layers,
                f"model.alignment_layer={self.alignment_layer} is above model.num_decoder_layers="
                f"{self.num_decoder_layers}",
            ),
            (
                self.alignment_layer and self.alignment_heads > self.num_heads,
                f"model.alignment_heads={self.alignment_heads} is above model.num_heads={self.num_heads}",
            ),
            id_rule("model.decoder_start_id", self.decoder_start_id, "tgt", self.tgt_vocab_size),
            id_rule("model.src_pad_id", self.src_pad_id, "src", self.src_vocab_size),
            id_rule("model.tgt_pad_id", self.tgt_pad_id, "tgt", self.tgt_vocab_size),
        )
