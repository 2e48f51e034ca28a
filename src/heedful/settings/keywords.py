"""Settings by their bare names, as keyword arguments of `heedful.train`, `Transformer` and searches.

They are the keys of the sections of `Config` (`settings/run.py`), held against them by a test. A key that two
sections have, such as dropout, has no bare name, apart from the files `src` and `tgt`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from heedful.settings.options import BleuTokenizer, Device, EarlyStopping, LengthNormalization

Texts: TypeAlias = Path | str | Sequence[str]  # a file, or its lines
Part: TypeAlias = str | Callable[..., Any]  # a name, PLUGIN:NAME, or a class or function of a module


class _Architecture(TypedDict, total=False):
    d_model: int
    num_heads: int
    d_k: int | None
    d_v: int | None
    num_kv_heads: int | None
    query_norm: bool
    attention_cap: float | None
    output_cap: float | None
    attention: Part | None
    d_ff: int
    num_encoder_layers: int
    num_decoder_layers: int
    decoder_unit: Literal["attention", "ssru", "merged"]
    attention_dropout: float
    activation_dropout: float
    word_dropout: float
    feed_forward: Part | None
    activation: Part
    gated: bool
    norm: Literal["post", "pre", "both"]
    norm_kind: Part
    positions: Part
    max_positions: int
    relative_buckets: int
    relative_max_distance: int
    relative_per_layer: bool
    rotary_base: float
    rotary_scale: float
    full_attention_every: int
    encoder_window: tuple[int, int] | None
    decoder_window: int | None
    rotary_window_base: float | None
    tied: Literal["all", "target", "embeddings", "none"]
    attention_bias: bool
    feed_forward_bias: bool
    output_bias: bool
    scale_embeddings: bool
    embedding_norm: bool | Literal["encoder"]
    final_norm: bool
    layer_norm_eps: float
    decoder_start_id: int | None
    alignment_layer: int | None
    alignment_heads: int
    src_vocab_size: int
    tgt_vocab_size: int
    src_pad_id: int
    tgt_pad_id: int


class ModelSettings(_Architecture, total=False):
    """The fields of `ModelConfig`."""

    dropout: float


class _Search(TypedDict, total=False):
    length_penalty: float
    length_normalization: LengthNormalization
    max_length_ratio: float | None
    max_length_offset: int
    min_length: int
    max_source_tokens: int | None
    forced_first_id: int | None
    forced_last_id: int | None
    suppressed_ids: Sequence[int] | None
    renormalize: bool
    no_repeat_ngram_size: int
    encoder_no_repeat_ngram_size: int
    repetition_penalty: float
    replace_unknown: bool
    n_best: int
    beam_size: int
    early_stopping: EarlyStopping


class StrategySettings(_Search, total=False):
    """The fields of `SharedOptions` and the settings of strategies, as keyword arguments of a function."""

    # of all strategies
    coverage_penalty: float
    max_length: int | None
    threads: int | None
    cancelled: Callable[[], bool] | None
    # of beams
    num_groups: int
    diversity_penalty: float
    # of sampling and of minimum Bayes risk
    temperature: float
    top_k: int | None
    top_p: float
    min_p: float
    epsilon: float
    seed: int
    samples: int


class TrainingSettings(_Architecture, _Search, total=False):
    """Settings of a training that only one section of the configuration has."""

    # tokenizer:
    kind: Literal["bpe", "unigram", "char", "word", "byte"]
    vocab_size: int
    joint: bool
    sampling: float
    character_coverage: float
    normalization: Literal["identity", "nmt_nfkc"]
    keep_spaces: bool
    byte_fallback: bool
    source_eos: bool
    bundle: Path | str | None
    # data:
    src: Texts | None
    tgt: Texts | None
    valid_src: Texts | None
    valid_tgt: Texts | None
    pairs: Path | str | Sequence[tuple[str, str]] | None
    valid_pairs: Path | str | Sequence[tuple[str, str]] | None
    src_key: str
    tgt_key: str
    corpora: Sequence[Mapping[str, object]]
    temperature: float
    cache_dir: Path | str | None
    filters: Sequence[str]
    allow_overlap: bool
    # batch:
    tokens: int | Literal["auto"]
    ramp_from: int | None
    accumulation: int
    sampler: Part | None
    bucket_width: int
    # optimizer:
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float
    # schedule:
    warmup_steps: int
    warmup_fraction: float | None
    peak: float | None
    scale: float
    decay_fraction: float
    floor: float
    # train:
    seed: int
    max_steps: int | None
    max_epochs: int | None
    max_minutes: float | None
    label_smoothing: float
    r_drop: float
    ema_decay: float
    average_checkpoints: int
    checkpoint_every_steps: int
    checkpoint_every_minutes: float | None
    keep_checkpoints: int
    precision: Literal["auto", "float32", "bf16"]
    device: Device
    compile: Literal["auto"] | bool
    kernels: Literal["auto", "native", "torch"]
    threads: int
    processes: int
    parallel: Literal["ddp", "fsdp"]
    init: Path | str | None
    freeze: Sequence[str]
    log_every_steps: int
    plugin_versions: Sequence[str]
    # lora:
    rank: int
    alpha: float
    targets: Sequence[str]
    # valid:
    every_steps: int
    every_fraction: float | None
    metric: Part
    validators: Sequence[Part]
    tokenize: BleuTokenizer
    decode_sentences: int
    patience: int
    # decode:
    batch_tokens: int
    # languages:
    src_tag: str | None
    tgt_tag: str | None
    src_prefix: str | None
    src_tag_position: Literal["first", "last"]
