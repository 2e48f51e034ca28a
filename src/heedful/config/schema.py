"""Every setting of heedful, in one place, with the paper's values as defaults.

A number from "Attention Is All You Need" carries its section. A value that cannot be is refused with the name
of its key: `model.num_heads=7 must divide model.d_model=512`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[int, Field(gt=0, lt=2**63)]
Depth = Annotated[int, Field(gt=0, le=1000)]
Width = Annotated[int, Field(gt=0, le=2**20)]  # sizes whose products are still sizes of a matrix
Heads = Annotated[int, Field(gt=0, le=2**16)]
VocabSize = Annotated[int, Field(ge=0, le=2**24)]  # ids up to there are exact in float32
Places = Annotated[int, Field(gt=0, le=2**24)]
Beam = Annotated[int, Field(gt=0, le=1000)]
Length = Annotated[int, Field(ge=0, le=1_000_000)]  # in tokens
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]


def _check_text(value: str) -> None:
    """Refuse what no file can be named and no TOML file can hold."""
    if "\0" in value:
        raise PydanticCustomError("nul", "must not hold a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "not_utf_8", "is not UTF-8; rename the file, or check the encoding"
        ) from None


def _check_id(key: str, value: int | None, side: str, vocab_size: int) -> None:
    """Refuse an id that a vocabulary does not have, as soon as its size is known."""
    if value is not None and 0 < vocab_size <= value:
        raise ValueError(f"{key}={value} must be below model.{side}_vocab_size={vocab_size}")


class Section(BaseModel):
    """A frozen group of settings; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_toml_means_it(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401
        """A whole number may stand for a float, `false` for None, a list or "a,b" for a tuple."""
        accepts = str(cls.model_fields[info.field_name or ""].annotation)
        if value is False and "None" in accepts:
            return None
        if isinstance(value, list) and "tuple" in accepts:
            return tuple(value)
        if isinstance(value, str):
            _check_text(value)
        if isinstance(value, str) and "tuple[str" in accepts:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return float(value) if type(value) is int and abs(value) < 2**63 and "float" in accepts else value

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return a validated copy with some values changed; it is still known which were never set."""
        return type(self).model_validate(self.model_dump(exclude_unset=True) | changes)


class ModelConfig(Section):
    """The architecture (paper, section 3). The defaults are the base model."""

    d_model: Width = 512  # 3.1
    num_heads: Heads = 8  # 3.2.2
    d_k: Width | None = None  # 3.2.2: size of a head's queries and keys; None: d_model / num_heads
    d_v: Width | None = None  # 3.2.2: size of a head's values; None: d_model / num_heads
    num_kv_heads: Heads | None = None  # not in the paper: query heads share these keys and values
    d_ff: Width = 2048  # 3.3
    num_encoder_layers: Depth = 6  # 3.1
    num_decoder_layers: Depth = 6  # 3.1
    dropout: Probability = 0.1  # 5.4: on each sub-layer's output and on the embedded input
    attention_dropout: Probability = 0.0  # not in the paper: on the attention weights
    activation_dropout: Probability = 0.0  # not in the paper: inside the feed-forward layer
    word_dropout: Probability = 0.0  # not in the paper: on whole token embeddings, source and target
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "relu"  # 3.3
    gated: bool = False  # not in the paper: a gate in the feed-forward layer (GLU)
    norm: Literal["post", "pre"] = "post"  # 3.1; "pre" adds a final norm to each stack
    norm_kind: Literal["layer", "rms"] = "layer"  # 3.1; "rms" neither centres nor shifts
    positions: Literal[
        "sinusoidal",  # 3.5
        "concatenated",  # the same sinusoids, sines first and cosines after them (Marian)
        "fairseq",  # concatenated, of other wavelengths, counted from 2 (fairseq, M2M100)
        "learned",  # Table 3, row E
        "rotary",  # none on the input; queries and keys are turned (RoPE)
        "alibi",  # none on the input; attention falls with distance (ALiBi)
        "relative",  # none on the input; a trained bias for each bucket of distances (T5)
    ] = "sinusoidal"
    max_positions: Places = 1024  # of learned positions; all others have no end
    relative_buckets: Annotated[int, Field(ge=4, le=2**16)] = 32  # of relative positions, as T5
    relative_max_distance: Places = 128  # from which on they share the last bucket
    tied: Literal["all", "target", "none"] = "all"  # 3.4: both embeddings and the pre-softmax matrix
    attention_bias: bool = True  # docs/decisions/0001-attention-bias.md
    feed_forward_bias: bool = True  # 3.3
    output_bias: bool = False  # 3.4: a linear transformation that is the shared matrix alone
    scale_embeddings: bool = True  # 3.4: by sqrt(d_model)
    embedding_norm: bool = False  # not in the paper: a layer norm on the embedded input of each stack
    final_norm: bool = False  # not in the paper: a layer norm after post-norm stacks; "pre" has one anyway
    layer_norm_eps: PositiveFloat = 1e-5
    decoder_start_id: Count | None = None  # the decoder's first input; None: the tokenizer's begin token
    src_vocab_size: VocabSize = 0  # 0: taken from the tokenizer
    tgt_vocab_size: VocabSize = 0
    src_pad_id: Count = 0
    tgt_pad_id: Count = 0

    @property
    def head_key_size(self) -> int:
        """d_k, resolved."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def head_value_size(self) -> int:
        """d_v, resolved."""
        return self.d_v or self.d_model // self.num_heads

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.d_k is None or self.d_v is None) and self.d_model % self.num_heads:
            raise ValueError(
                f"model.num_heads={self.num_heads} must divide model.d_model={self.d_model}, "
                "or model.d_k and model.d_v must both be given"
            )
        if self.positions in ("sinusoidal", "concatenated", "fairseq") and self.d_model % 2:
            raise ValueError(f"model.d_model={self.d_model} must be even for {self.positions} positions")
        if self.positions == "rotary" and self.head_key_size % 2:
            raise ValueError(f"model.d_k={self.head_key_size} must be even for rotary positions")
        if self.positions == "relative" and self.relative_max_distance <= self.relative_buckets // 2:
            raise ValueError(
                f"model.relative_max_distance={self.relative_max_distance} must be above half of "
                f"model.relative_buckets={self.relative_buckets}: so many have a bucket of their own"
            )
        if self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_kv_heads={self.num_kv_heads} must divide model.num_heads={self.num_heads}"
            )
        if self.tied == "all" and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                f'model.tied="all" needs one vocabulary, but model.src_vocab_size={self.src_vocab_size} '
                f'and model.tgt_vocab_size={self.tgt_vocab_size}; use model.tied="target" or "none"'
            )
        if self.tied == "all" and self.src_pad_id != self.tgt_pad_id:
            raise ValueError(
                f'model.tied="all" needs one padding id, but model.src_pad_id={self.src_pad_id} '
                f"and model.tgt_pad_id={self.tgt_pad_id}"
            )
        _check_id("model.decoder_start_id", self.decoder_start_id, "tgt", self.tgt_vocab_size)
        _check_id("model.src_pad_id", self.src_pad_id, "src", self.src_vocab_size)
        _check_id("model.tgt_pad_id", self.tgt_pad_id, "tgt", self.tgt_vocab_size)
        return self


class TokenizerConfig(Section):
    """How text is tokenised (5.1: a shared byte-pair vocabulary)."""

    kind: Literal["bpe", "unigram", "char", "word"] = "bpe"
    vocab_size: Positive = 8000  # an upper limit for "char" and "word"
    joint: bool = True  # one vocabulary for source and target
    sampling: Probability = 0.0  # subword sampling in training: BPE-dropout rate, unigram smoothing
    character_coverage: Annotated[float, Field(gt=0.9, le=1.0)] = 1.0
    normalization: Literal["nmt_nfkc", "identity"] = "nmt_nfkc"
    byte_fallback: bool = False


class DataConfig(Section):
    """Where the parallel text is."""

    src: str | None = None
    tgt: str | None = None
    valid_src: str | None = None
    valid_tgt: str | None = None
    pairs: str | None = None  # a .tsv or .jsonl file with source and target, instead of src and tgt
    valid_pairs: str | None = None
    src_key: str = "src"  # of a .jsonl line
    tgt_key: str = "tgt"
    max_length: Positive = 256  # of source and target in tokens, eos included; longer pairs are left out
    cache_dir: str | None = None
    allow_overlap: bool = False  # train although validation pairs are in the training text too

    @model_validator(mode="after")
    def _both_sides(self) -> Self:
        for first, second in (("src", "tgt"), ("valid_src", "valid_tgt")):
            if (getattr(self, first) is None) != (getattr(self, second) is None):
                raise ValueError(f"data.{first} and data.{second} must be given together")
        if self.src and self.pairs:
            raise ValueError("give data.src and data.tgt, or data.pairs, not both")
        if self.valid_src and self.valid_pairs:
            raise ValueError("give data.valid_src and data.valid_tgt, or data.valid_pairs, not both")
        return self


class BatchConfig(Section):
    """How pairs are grouped (5.1: by approximate length, about 25,000 source and 25,000 target tokens).

    `tokens` of "auto", or 0, are as many as fit into memory, but at most the paper's.
    """

    tokens: Count = 25_000  # rows x max(src_len, tgt_len), padding included, of one micro-batch
    ramp_from: Positive | None = None  # tokens in the first epoch; doubled with each, until `tokens`
    accumulation: Positive = 1  # micro-batches in one step
    bucket_width: Positive = 4  # lengths are rounded up to a multiple of this

    @field_validator("tokens", mode="before")
    @classmethod
    def _auto_is_zero(cls, value: object) -> object:
        return 0 if value == "auto" else value

    @model_validator(mode="after")
    def _ramp_rises(self) -> Self:
        if self.tokens and self.ramp_from is not None and self.ramp_from > self.tokens:
            raise ValueError(
                f"batch.ramp_from={self.ramp_from} must be at most batch.tokens={self.tokens}, where it ends"
            )
        return self


class OptimizerConfig(Section):
    """Adam (5.3), or Muon for the matrices of the layers and Adam for the rest."""

    name: Literal["adam", "muon"] = "adam"  # both at the schedule's rate; heedful/training/optimizer.py
    beta1: Probability = 0.9
    beta2: Probability = 0.98
    eps: PositiveFloat = 1e-9
    weight_decay: NonNegativeFloat = 0.0  # decoupled (AdamW) where not 0
    clip_norm: NonNegativeFloat = 0.0  # 0: no clipping, as the paper


class ScheduleConfig(Section):
    """The learning rate over the steps (5.3)."""

    name: Literal["paper", "inverse_sqrt", "linear", "cosine", "1-sqrt", "constant"] = "paper"
    warmup_steps: Count = 4000  # 5.3
    peak: PositiveFloat | None = None  # the highest rate of every schedule but "paper"
    scale: PositiveFloat = 1.0  # a factor on the paper's rate
    # "linear", "cosine", "1-sqrt": the last part of the run; below 1 they are warm-up-stable-decay (WSD)
    decay_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    floor: NonNegativeFloat = 0.0  # where the decay ends, as a share of the peak

    @model_validator(mode="after")
    def _has_a_peak(self) -> Self:
        if self.name != "paper" and self.peak is None:
            raise ValueError(f'schedule.name="{self.name}" needs schedule.peak')
        if self.name == "paper" and self.warmup_steps == 0:
            raise ValueError('schedule.name="paper" needs schedule.warmup_steps of at least 1')
        return self


class TrainConfig(Section):
    """How long, how exactly, and with what regularisation to train."""

    seed: Seed = 1
    max_steps: Positive | None = 100_000  # 5.2
    max_epochs: Positive | None = None
    max_minutes: PositiveFloat | None = (
        None  # of training; validation in between counts, the final one does not
    )
    label_smoothing: Probability = 0.1  # 5.4
    r_drop: NonNegativeFloat = 0.0  # R-Drop's α; above 0 each batch is passed twice, in twice the memory
    ema_decay: Probability = 0.0  # 0: no moving average of the weights
    average_checkpoints: Positive = 5  # 6.1; 1: the last weights as they are
    checkpoint_every_steps: Positive = 1500  # 6.1: every 10 minutes, at 0.4 seconds a step (5.2)
    checkpoint_every_minutes: PositiveFloat | None = 10.0  # since the last; for safety, not averaged
    keep_checkpoints: Positive = 5
    precision: Literal["auto", "float32", "bf16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compile: Literal["auto", True, False] = "auto"  # layers; "auto": on a GPU, where it works
    kernels: Literal["auto", "compiled", "torch"] = "auto"  # on a CPU: native kernels where available
    threads: Count = 0  # 0: as many as the machine has cores
    processes: Count = 0  # that share the threads and the work; 0: on a CPU one for each core
    init: str | None = None  # a bundle or run to continue from; it says architecture and tokenizers
    freeze: tuple[str, ...] = ()  # beginnings of weight names that stay as they are, such as "encoder."
    log_every_steps: Positive = 50

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if "" in self.freeze:
            raise ValueError("train.freeze: one of the names is empty, and all weights begin with that")
        if self.keep_checkpoints < self.average_checkpoints:
            raise ValueError(
                f"train.keep_checkpoints={self.keep_checkpoints} must be at least "
                f"train.average_checkpoints={self.average_checkpoints}"
            )
        return self


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al., 2021): W + (alpha / rank) B A, where only A and B are trained."""

    rank: Count = 0  # 0: all weights are trained
    alpha: PositiveFloat = 16.0
    dropout: Probability = 0.0  # on what enters A
    targets: tuple[str, ...] = ("query", "value")  # last names of the linear layers that are adapted


class ValidConfig(Section):
    """How a model is judged while it trains, and when to stop."""

    every_steps: Positive = 1000
    # of the time of a run that train.max_minutes alone limits: validates and writes a checkpoint after each,
    # instead of every_steps and train.checkpoint_every_steps; None: these hold there too
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] | None = 0.1
    metric: Literal["nll", "bleu", "chrf", "exact"] = "nll"  # what `best/` is best at
    decode_sentences: Count = 500  # of the validation set, decoded greedily for the other metrics; 0: none
    patience: Count = 0  # validations without a better value before training stops; 0: never

    @model_validator(mode="after")
    def _metric_is_measured(self) -> Self:
        if self.metric != "nll" and not self.decode_sentences:
            raise ValueError(f'valid.metric="{self.metric}" needs valid.decode_sentences above 0')
        return self


class LanguageConfig(Section):
    """Which languages a multilingual model translates; the tags are tokens of its vocabulary."""

    src_tag: str | None = None  # put before the source, for example "eng_Latn"
    tgt_tag: str | None = None  # forced as the first token of the output
    src_tag_position: Literal["first", "last"] = "first"  # "last": after the end token


class DecodeConfig(Section):
    """How the trained model is searched (6.1)."""

    beam_size: Beam = 4
    length_penalty: Annotated[float, Field(ge=0.0, le=30.0)] = 0.6  # a power of a length: a float holds it
    length_normalization: Literal["gnmt", "average"] = "gnmt"  # ((5 + length) / 6)^alpha, or length^alpha
    early_stopping: Literal["optimal", "estimate", "first"] = "optimal"
    max_length_offset: Length = 50  # output is at most input length + 50
    max_length: Annotated[Length, Field(gt=0)] | None = None  # and at most this, the end token included
    min_length: Length = 0  # the fewest tokens before the end
    forced_first_id: Count | None = None  # the first token of every output
    forced_last_id: Count | None = None  # the last token of an output as long as allowed
    suppressed_ids: tuple[Count, ...] | None = None  # never written; None: the begin and padding tokens
    renormalize: bool = False  # whether the probabilities of all others are scaled up to a sum of 1
    no_repeat_ngram_size: Count = 0  # no so many tokens in a row come twice; 0: they may
    repetition_penalty: PositiveFloat = 1.0  # above 1: what is written already is penalised
    n_best: Beam = 1
    batch_tokens: Positive = 4096


class Config(Section):
    """All settings of a run."""

    model: ModelConfig = ModelConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig = DataConfig()
    batch: BatchConfig = BatchConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    train: TrainConfig = TrainConfig()
    lora: LoraConfig = LoraConfig()
    valid: ValidConfig = ValidConfig()
    decode: DecodeConfig = DecodeConfig()
    languages: LanguageConfig = LanguageConfig()

    @model_validator(mode="after")
    def _sections_fit_together(self) -> Self:
        if self.model.tied == "all" and not self.tokenizer.joint:
            raise ValueError(
                'model.tied="all" shares one matrix between both sides and needs tokenizer.joint=true; '
                'use model.tied="target" or "none" with separate vocabularies'
            )
        if not (self.train.max_steps or self.train.max_epochs or self.train.max_minutes):
            raise ValueError("one of train.max_steps, train.max_epochs, train.max_minutes must be given")
        if self.lora.rank and self.train.init is None:
            raise ValueError(
                f"lora.rank={self.lora.rank} adapts a trained model: "
                "give --init BUNDLE (train.init), or lora.rank=0"
            )
        for key in ("forced_first_id", "forced_last_id", "suppressed_ids"):
            found = getattr(self.decode, key)
            for each in found if isinstance(found, tuple) else (found,):
                _check_id(f"decode.{key}", each, "tgt", self.model.tgt_vocab_size)
        return self
