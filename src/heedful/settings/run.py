"""The schema of all settings, with the paper's values as defaults.

A number from "Attention Is All You Need" has its section beside it. An invalid value is refused with the name
of its key: `model.num_heads=7 must divide model.d_model=512`.

docs/reference/configuration.md is made from these classes: a key's type, range, default and description. A
key that is a setting of another dataclass too, such as a search's, has all of them from there.
"""

from collections.abc import Iterator
from itertools import chain, product
from typing import Annotated, Any, Literal, Self

from pydantic import Field
from typing_extensions import override

from heedful.settings.model import SHARED_EMBEDDINGS, ModelConfig, id_rule
from heedful.settings.options import (
    TOKENIZE,
    BeamOptions,
    BleuTokenizer,
    Count,
    DecodingOptions,
    Device,
    HeldOutText,
    Runtime,
    TrainingPrecision,
    TrainingRequest,
    Whole,
    options_of,
)
from heedful.settings.plugins import PartName, PluginVersion, plugin_versions
from heedful.settings.section import (
    AUTO_IS_ZERO,
    NonNegativeFactor,
    NonNegativeFloat,
    Positive,
    PositiveFactor,
    PositiveFloat,
    Probability,
    Section,
    Seed,
    VocabSize,
)


def _option(group: type, name: str, **default: Any) -> Any:  # noqa: ANN401
    """Return the field of a key that is the setting `name` of a dataclass: its default, text and range."""
    option = options_of(group)[name]
    return Field(
        default.get("default", getattr(group, name)),
        description=option.help,
        ge=option.minimum,
        gt=option.above,
        le=option.outer_maximum or option.maximum,
    )


class TokenizerConfig(Section):
    """How text is tokenised (5.1: a shared byte-pair vocabulary)."""

    kind: Literal["bpe", "unigram", "char", "word", "byte"] = Field(
        "bpe", description="Algorithm of the tokenizer; byte: the bytes of UTF-8, as in ByT5."
    )
    vocab_size: Annotated[VocabSize, Field(gt=0)] = Field(
        8000,
        description="Size of the vocabulary, special tokens included; an upper limit for char and word. "
        "If it is left out, a small text gets the largest that it supports.",
    )
    joint: bool = Field(default=True, description="Share one vocabulary between source and target.")
    sampling: Probability = Field(
        0.0, description="Subword sampling in training: the rate of BPE-dropout, or the smoothing of unigram."
    )
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = Field(
        1.0,
        description="Share of the text's characters that have a token of their own; SentencePiece takes no "
        "less than 0.98.",
    )
    normalization: Literal["identity", "nmt_nfkc"] = Field(
        "identity",
        description="Unicode normalisation of both texts, as SentencePiece names it; identity: the model can "
        "write every character of the training text, nmt_nfkc: m² becomes m2, and ， becomes a comma.",
    )
    keep_spaces: bool = Field(
        default=False,
        description="Keep runs of spaces, and spaces at the ends of a line; otherwise a run is one space.",
    )
    byte_fallback: bool = Field(default=False, description="Write unknown characters as their UTF-8 bytes.")
    source_eos: bool = Field(
        default=True, description="End each source with the end token; OpenNMT-py's models do without."
    )
    bundle: str | None = Field(
        None, description="Bundle or run that gives the vocabulary, with its language tags; none: a new one."
    )


class CorpusConfig(Section):
    """One of several corpora, `[[data.corpora]]`."""

    src: str | None = _option(TrainingRequest, "src")
    tgt: str | None = _option(TrainingRequest, "tgt")
    pairs: str | None = _option(TrainingRequest, "pairs")
    weight: PositiveFloat | None = Field(
        None, description="Share of the training pairs, relative to the other weights; none: by size."
    )
    tag: str | None = Field(
        None,
        description="Tag of the target language, where the model has it: before each target, as "
        "languages.tgt_tag, or before each source, as languages.src_tag.",
    )
    src_tag: str | None = Field(
        None, description="Tag of the source language, for a model with tags of both languages."
    )
    valid_src: str | None = _option(TrainingRequest, "valid_src")
    valid_tgt: str | None = _option(TrainingRequest, "valid_tgt")
    valid_pairs: str | None = _option(TrainingRequest, "valid_pairs")
    provenance: str | None = Field(None, description="How the text was made, for the model card.")

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        has_one = (self.src is None) == (self.tgt is None) != (self.pairs is None)
        has_valid = (self.valid_src is None) == (self.valid_tgt is None)
        yield (not has_one, "data.corpora: give each corpus src and tgt, or pairs")
        yield (
            not has_valid or (self.valid_src and self.valid_pairs),
            "data.corpora: give a corpus valid_src and valid_tgt, or valid_pairs, or none of them",
        )
        for name, tag in (("tag", self.tag), ("src_tag", self.src_tag)):
            is_tag = tag is None or (tag.split() == [tag] and tag not in _CONTROL)
            yield not is_tag, f"data.corpora: {name}={tag!r}: write a tag without spaces, such as >>fra<<"

    @property
    def has_validation(self) -> bool:
        """Whether it has validation text of its own."""
        return bool(self.valid_src or self.valid_pairs)


_CONTROL = {"<s>", "</s>", "<pad>", "<unk>"}


class DataConfig(Section):
    """The files of parallel text."""

    src: str | None = _option(TrainingRequest, "src")
    tgt: str | None = _option(TrainingRequest, "tgt")
    valid_src: str | None = _option(TrainingRequest, "valid_src")
    valid_tgt: str | None = _option(TrainingRequest, "valid_tgt")
    pairs: str | None = _option(TrainingRequest, "pairs")
    valid_pairs: str | None = _option(TrainingRequest, "valid_pairs")
    src_key: str = _option(HeldOutText, "src_key")
    tgt_key: str = _option(HeldOutText, "tgt_key")
    corpora: tuple[CorpusConfig, ...] = Field(
        (), description="Several corpora: tables with src and tgt, or pairs, and with a weight and a tag."
    )
    temperature: PositiveFloat = Field(
        1.0, description="Corpora without weights have shares in proportion to size^(1/temperature)."
    )
    max_length: Annotated[int, Field(gt=0, le=2**24)] = Field(
        256,
        description="Maximum length of source and target in tokens, the end token included; longer pairs are "
        "left out.",
    )
    cache_dir: str | None = Field(
        None, description="Directory of prepared corpora; none: in the user's caches."
    )
    filters: tuple[PartName, ...] = Field(
        (),
        description="Functions of plugins that find faults in pairs; such pairs are left out of the training "
        "text.",
    )
    allow_overlap: bool = Field(
        default=False, description="Train even if most validation pairs are in the training text too."
    )

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        both = "give both --{0}src and --{0}tgt (data.{1}src and data.{1}tgt must both be set)"
        yield from (
            ((self.src is None) != (self.tgt is None), both.format("", "")),
            ((self.valid_src is None) != (self.valid_tgt is None), both.format("valid-", "valid_")),
            (self.src and self.pairs, "give data.src and data.tgt, or data.pairs, not both"),
            (
                self.corpora and (self.src or self.pairs),
                "give data.corpora, or data.src and data.tgt, or data.pairs, not both",
            ),
            (
                len({corpus.weight is None for corpus in self.corpora}) > 1,
                "data.corpora: give every corpus a weight, or none",
            ),
            (
                self.temperature != 1.0 and not any(corpus.weight is None for corpus in self.corpora),
                f"data.temperature={self.temperature:g} is for data.corpora without weights; leave one out",
            ),
            (
                self.valid_src and self.valid_pairs,
                "give data.valid_src and data.valid_tgt, or data.valid_pairs, not both",
            ),
            (
                (self.valid_src or self.valid_pairs)
                and any(corpus.has_validation for corpus in self.corpora),
                "give data.valid_src and data.valid_tgt, or each corpus its own validation text, not both",
            ),
        )

    @property
    def first_text(self) -> tuple[str | None, str | None]:
        """The names of the files of source and target; if there are several corpora, of the first."""
        first = self.corpora[0] if self.corpora else self
        return first.src, first.tgt

    @property
    def training_files(self) -> tuple[str, ...]:
        """The names of the files of training text."""
        texts: list[DataConfig | CorpusConfig] = [self, *self.corpora]
        names = ((text.pairs, text.src, text.tgt) for text in texts)
        return tuple(filter(None, chain.from_iterable(names)))


class BatchConfig(Section):
    """How pairs are grouped (5.1: by approximate length, about 25,000 source and 25,000 target tokens)."""

    tokens: Annotated[Count, AUTO_IS_ZERO] = Field(
        25_000,
        description='Size of a micro-batch: rows x max(src_len, tgt_len), padding included; "auto", or 0: as '
        "many as fit into memory, at most the paper's.",
    )
    ramp_from: Positive | None = Field(
        None, description="Size of a micro-batch in the first epoch; it doubles with each, until tokens."
    )
    accumulation: Positive = Field(1, description="Micro-batches of one step.")
    sampler: PartName | None = Field(
        None,
        description="Function of a plugin that divides the pairs of an epoch into batches, as plan_epoch in "
        "heedful.data.batches does; none: by length (5.1).",
    )
    bucket_width: Annotated[int, Field(gt=0, le=2**12)] = Field(
        4, description="Lengths are rounded up to a multiple of this."
    )

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        yield (
            self.tokens and self.ramp_from is not None and self.ramp_from > self.tokens,
            f"batch.ramp_from={self.ramp_from} must be at most batch.tokens={self.tokens}",
        )


class OptimizerConfig(Section):
    """Adam (5.3), or Muon for the matrices of the layers and Adam for the rest."""

    name: Literal["adam", "muon"] | PartName = Field(
        "adam",
        description="The optimiser; muon is for the matrices of the layers, with Adam for the rest. Or a "
        "class of a plugin, which gets the weights in groups with lr, betas, eps and weight_decay.",
    )
    beta1: Probability = Field(0.9, description="Adam's decay rate of the mean of gradients (5.3).")
    beta2: Probability = Field(0.98, description="Adam's decay rate of the mean of their squares (5.3).")
    eps: PositiveFactor = Field(1e-9, description="Number added to Adam's denominator (5.3).")
    weight_decay: NonNegativeFactor = Field(
        0.0, description="Decoupled weight decay (AdamW); the paper has none."
    )
    clip_norm: NonNegativeFloat = Field(
        0.0, description="Maximum norm of the gradient; 0, as in the paper: no clipping."
    )


class ScheduleConfig(Section):
    """The learning rate over the steps (5.3)."""

    name: Literal["paper", "inverse_sqrt", "linear", "cosine", "1-sqrt", "constant"] | PartName = Field(
        "paper",
        description="Shape of the schedule: the paper's (5.3), or another one; the others rise linearly to a "
        "peak. Or a function of a plugin, schedule(step, fraction_done), which returns the rate.",
    )
    warmup_steps: Count = Field(
        4000, description="Steps in which the rate rises (5.3); warmup_fraction replaces them."
    )
    warmup_fraction: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None,
        description="Fraction of the run, up to its nearest limit, in which the rate rises; it replaces "
        "warmup_steps unless a later --set sets these; none: warmup_steps.",
    )
    peak: Annotated[NonNegativeFactor | None, AUTO_IS_ZERO] = Field(
        None,
        description="Highest learning rate, which the paper's schedule does not have. auto: the best of "
        "several in a test on the first batches (--init).",
    )
    scale: PositiveFactor = Field(1.0, description="Factor of the paper's learning rate.")
    decay_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        1.0,
        description="Last fraction of the run, in which linear, cosine and 1-sqrt fall; below 1 they are "
        "warm-up-stable-decay (WSD).",
    )
    floor: Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        0.0, description="Learning rate at the end of the decay, as a share of the peak."
    )

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        is_paper, fraction, steps = self.name == "paper", self.warmup_fraction, self.warmup_steps
        yield from (
            (
                not is_paper and ":" not in self.name and self.peak is None,
                f'schedule.name="{self.name}" needs schedule.peak',
            ),
            (is_paper and steps == 0, 'schedule.name="paper" needs schedule.warmup_steps of at least 1'),
        )
        if fraction is None:
            return
        decays = self.name in ("linear", "cosine", "1-sqrt")
        yield from (
            (
                is_paper,
                f'schedule.warmup_fraction={fraction:g}: schedule.name="paper" counts its warm-up in steps; '
                "set schedule.warmup_steps",
            ),
            (
                steps not in (0, type(self).model_fields["warmup_steps"].default),
                f"give schedule.warmup_steps={steps} or schedule.warmup_fraction={fraction:g}, not both",
            ),
            (
                decays and fraction + self.decay_fraction > 1.0 + 1e-9,
                f"schedule.warmup_fraction={fraction:g} and schedule.decay_fraction={self.decay_fraction:g} "
                f"are more than the run; lower schedule.decay_fraction to {1.0 - fraction:g}",
            ),
        )


class TrainConfig(Section):
    """Training: limits, regularisation, checkpoints, hardware."""

    seed: Seed = Field(1, description="Random seed of a run.")
    max_steps: Positive | None = Field(100_000, description="Maximum number of optimiser steps (5.2).")
    max_epochs: Positive | None = Field(None, description="Maximum number of passes over the training text.")
    max_minutes: PositiveFloat | None = Field(
        None,
        description="Maximum time of training in minutes; validations count, except the final one and that "
        "of a base model.",
    )
    loss: PartName | None = Field(
        None,
        description="Function of a plugin, loss(model, batch), instead of cross-entropy with label smoothing "
        "(5.4).",
    )
    label_smoothing: Probability = Field(0.1, description="Label smoothing (5.4).")
    r_drop: NonNegativeFactor = Field(
        0.0, description="Alpha of R-Drop; above 0 each batch is passed twice, in twice the memory."
    )
    ema_decay: Probability = Field(
        0.0, description="Decay rate of a moving average of the weights; 0: none is kept."
    )
    average_checkpoints: Positive = Field(
        5, description="Checkpoints that are averaged at the end (6.1); 1: the last weights as they are."
    )
    checkpoint_every_steps: Positive = Field(
        1500, description="Steps between checkpoints (6.1: every 10 minutes, at 0.4 seconds a step, 5.2)."
    )
    checkpoint_every_minutes: PositiveFloat | None = Field(
        10.0,
        description="Maximum minutes between checkpoints; checkpoints due to this alone are not averaged.",
    )
    keep_checkpoints: Positive = Field(5, description="Newest checkpoints that are kept.")
    precision: Literal["auto", TrainingPrecision] = Field(
        "auto",
        description="Precision of matrix multiplications; auto: bf16 if the hardware computes in it.",
    )
    device: Device = _option(Runtime, "device")
    compile: Literal["auto", True, False] = Field(
        "auto", description="Compile the layers by torch.compile; auto: on a GPU, where it works."
    )
    kernels: Literal["auto", "native", "torch"] = Field(
        "auto", description="Kernels on a CPU; auto: native if the native library is available."
    )
    threads: Count = Field(0, description="CPU threads; 0: one for each core.")
    processes: Count = Field(
        0, description="Processes that share the threads and the work; 0: on a CPU one for each core."
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="What each process of torchrun has; ddp: a copy of the model; fsdp: a shard of it."
    )
    init: str | None = _option(TrainingRequest, "init")
    freeze: tuple[str, ...] = Field(
        (), description='Prefixes of the names of weights that stay as they are, such as "encoder.".'
    )
    log_every_steps: Positive = Field(50, description="Steps between lines of the log.")
    plugin_versions: tuple[PluginVersion, ...] = Field(
        (),
        description="Plugins of the training, each with the hash of its file or the version of its package. "
        "Training writes them; a warning says when the code is another.",
    )

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        yield from (
            ("" in self.freeze, "train.freeze: an empty prefix would freeze all weights"),
            (
                self.keep_checkpoints < self.average_checkpoints,
                f"train.keep_checkpoints={self.keep_checkpoints} must be at least "
                f"train.average_checkpoints={self.average_checkpoints}",
            ),
        )


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al., 2021): W + (alpha / rank) B A, where only A and B are trained."""

    rank: Annotated[int, Field(ge=0, le=2**12)] = Field(
        0, description="Rank of A and B; 0: all weights are trained."
    )
    alpha: PositiveFactor = Field(16.0, description="Scale of B A, before it is divided by the rank.")
    dropout: Probability = Field(0.0, description="Dropout on the input of A.")
    targets: tuple[str, ...] = Field(
        ("query", "value"), description="Last parts of the names of the linear layers that are adapted."
    )


class ValidConfig(Section):
    """Validation during training, and early stopping."""

    every_steps: Positive = Field(1000, description="Steps between validations.")
    every_fraction: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        0.1,
        description="Fraction of a run between validations, and between checkpoints, if the run is limited "
        "by train.max_minutes alone; none: every_steps and train.checkpoint_every_steps.",
    )
    metric: Literal["nll", "bleu", "chrf", "exact"] | PartName = Field(
        "nll",
        description="Metric by which the best model is chosen; also a metric of a plugin, or one of "
        "validators. Apart from nll, higher is better.",
    )
    validators: tuple[PartName, ...] = Field(
        (), description="Functions of plugins that get the model at each validation and return a number."
    )
    tokenize: BleuTokenizer = Field("auto", description=TOKENIZE)
    decode_sentences: Count = Field(
        500,
        description="Sentences of the validation text that are decoded, greedily, for the other metrics; 0: "
        "none.",
    )
    patience: Count = Field(
        0, description="Validations without a better value after which training stops; 0: never."
    )

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        yield (
            self.metric not in ("nll", *self.validators) and not self.decode_sentences,
            f'valid.metric="{self.metric}" needs valid.decode_sentences above 0',
        )


class LanguageConfig(Section):
    """The languages of a model; the tags of a multilingual one are tokens of its vocabulary."""

    src: str | None = Field(
        None, description="Code of the source language, such as en, if the model has one only."
    )
    tgt: str | None = Field(None, description="Code of the target language, the same.")
    src_tag: str | None = Field(
        None, description="Token of the source language, put before the source, such as eng_Latn."
    )
    tgt_tag: str | None = Field(
        None, description="Token of the target language, forced as the first token of the output."
    )
    src_prefix: str | None = Field(
        None,
        description='Text before each source, after its tag, such as "translate English to German: " for T5.',
    )
    src_tag_position: Literal["first", "last"] = Field(
        "first", description="Place of the source tag; last: after the end token."
    )

    @property
    def target(self) -> str | None:
        """The target language, as a code or a tag; None if it is not stated."""
        return self.tgt or self.tgt_tag


class DecodeConfig(Section, DecodingOptions, BeamOptions):
    """Decoding (6.1): beam search, with the keys of `BeamOptions` and `DecodingOptions`."""

    batch_tokens: Whole = _option(Runtime, "batch_tokens", default=4096)


class Config(Section):
    """All settings of a run.

    A preset or a file of settings is read by `load_config`.

    >>> config = Config(model={"num_encoder_layers": 3}, train={"max_minutes": 20})
    >>> config.model.num_encoder_layers, config.model.num_decoder_layers
    (3, 6)
    """

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

    @property
    def plugged(self) -> list[tuple[str, str]]:
        """The parts of plugins: the setting and `PLUGIN:NAME` of each."""
        values = [
            *self.model.plugged.items(),
            *product(["data.filters"], self.data.filters),
            ("batch.sampler", self.batch.sampler),
            ("optimizer.name", self.optimizer.name),
            ("schedule.name", self.schedule.name),
            ("train.loss", self.train.loss),
            ("valid.metric", self.valid.metric),
            *product(["valid.validators"], self.valid.validators),
        ]
        return [(key, value) for key, value in values if value and ":" in value]

    def with_plugin_versions(self) -> Self:
        """Return the settings with the versions of the plugins that are loaded in this process."""
        versions = plugin_versions(name for _, name in self.plugged)
        return self.replace(train=self.train.replace(plugin_versions=versions)) if versions else self

    @override
    def _rules(self) -> Iterator[tuple[object, str]]:
        yield from (
            (
                self.model.tied in SHARED_EMBEDDINGS and not self.tokenizer.joint,
                f'model.tied="{self.model.tied}" shares one matrix for source and target and needs '
                "tokenizer.joint=true; "
                'use model.tied="target" or "none" with separate vocabularies',
            ),
            (
                not (self.train.max_steps or self.train.max_epochs or self.train.max_minutes),
                "one of train.max_steps, train.max_epochs, train.max_minutes must be set",
            ),
        )
        for key in ("forced_first_id", "forced_last_id", "suppressed_ids"):
            value = getattr(self.decode, key)
            for token_id in value if isinstance(value, tuple) else (value,):
                yield id_rule(f"decode.{key}", token_id, "tgt", self.model.tgt_vocab_size)
