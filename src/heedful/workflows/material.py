"""Prepare a run: read text, train or load tokenizers, resolve settings."""

import hashlib
import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from heedful.data.batches import BatchSource
from heedful.data.files import ParallelText, overlap, read_pairs, read_parallel, shared_pairs
from heedful.data.store import ParallelStore, build_store
from heedful.errors import ConfigError, CorpusError
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.runtime.threads import check_workers, set_threads
from heedful.settings.loading import load_config, validate
from heedful.settings.run import Config
from heedful.storage.model_files import assign_weights, meta_model
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers
from heedful.training import Event, NoticeEvent, WarningEvent
from heedful.training.averaging import choose_trained_weights
from heedful.training.batch_size import fitting_batch
from heedful.training.compilation import compiles
from heedful.training.memory import free_memory, limit_onednn_cache
from heedful.training.precision import Precision, resolve_precision
from heedful.workflows.base_model import BaseModel, Origin, continued_settings, load_base_model
from heedful.workflows.run_directory import RunDirectory

Listener = Callable[[Event], None]

_ENOUGH_TO_HOLD_OUT = 1000  # pairs; smaller texts are too small for a held-out validation set
_SHOWN = 60  # characters of a sentence in a message
_SILENCE = 8.0  # seconds
_MUCH_UNKNOWN = 0.01  # of a text's tokens; more probably means another script than the bundle's


@dataclass(frozen=True)
class Material:
    """The resolved inputs of a run; `origin` is the base model of fine-tuning, if any."""

    config: Config
    tokenizers: TokenizerPair
    model: Transformer
    origin: Origin | None
    source: BatchSource
    valid_source: BatchSource
    valid: ParallelText
    device: torch.device
    precision: Precision

    def fingerprint(self) -> str:
        """Return a hash of what may not change when a run is resumed; limits and reporting may."""
        fixed = [
            self.config.model.model_dump(),
            self.config.batch.model_dump(),
            self.config.optimizer.name,
            self.config.train.seed,
            self.config.tokenizer.sampling,
            self.tokenizers.fingerprint(),
            self.source.store.path.stem,
            self.origin.sha256 if self.origin else None,
            self.config.lora.model_dump(),
            self.config.train.freeze,
        ]
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()

    def decodable(self) -> list[tuple[str, str]]:
        """Return the validation pairs whose source is not longer than learned positions allow."""
        pairs = list(zip(self.valid.src, self.valid.tgt, strict=True))
        if self.config.model.positions != "learned":
            return pairs
        framing, end = SpecialTokens.of(self.config, self.tokenizers), self.config.model.max_positions
        encode = self.tokenizers.src.encode
        return [pair for pair in pairs if len(framing.source(encode(pair[0]))) <= end]

    def validation_fingerprint(self) -> str:
        """Return an identifier of the validation data: only scores on the same data are compared."""
        number = self.config.valid.decode_sentences
        return f"{self.valid_source.store.path.stem}, {number} decoded"


class Notes:
    """Notices before the first step; they are logged once the run directory exists."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.events: list[Event] = []
        self._listeners = listeners
        self._said_at = time.monotonic()

    def add(self, message: str, *, warning: bool = False) -> None:
        """Pass a notice to the listeners, and save it for the log."""
        event = (WarningEvent if warning else NoticeEvent)(0, 0.0, message)
        self.events.append(event)
        self._show(event)

    @contextmanager
    def during(self, activity: str, *, silence: float = _SILENCE) -> Iterator[None]:
        """Inside the block, show what is being done whenever nothing was shown for so many seconds."""
        is_over = threading.Event()

        def remind() -> None:
            start = time.monotonic()
            while not is_over.wait(max(0.01, self._said_at + silence - time.monotonic())):
                now = time.monotonic()
                if now - self._said_at >= silence:
                    self._show(NoticeEvent(0, 0.0, f"{activity}: {now - start:.0f} s so far"))

        reminder = threading.Thread(target=remind, daemon=True)
        reminder.start()
        try:
            yield
        finally:
            is_over.set()
            reminder.join()

    def _show(self, event: Event) -> None:
        self._said_at = time.monotonic()
        for listener in self._listeners:
            listener(event)


def prepare(config: Config, run: RunDirectory, notes: Notes, *, resume: bool) -> Material:
    """Read the text, train or load the tokenizers, build or load the model, and turn text into ids.

    Raises:
        CorpusError: the text is not usable.
        TokenizerError: the text is too small for the vocabulary.
        ConfigError: there is no training text, or the settings are invalid for the machine or the model.
        BundleError: the base model is not usable.
        RunError: the tokenizer of the run to resume is damaged, or one of base model and run directory is
            inside the other.
    """
    if resume and not config.batch.tokens:
        config = _with_batches_of(config, load_config(run.config_file).batch.tokens)  # set by the first start
    base = None
    if config.train.init is not None:
        base = load_base_model(config.train.init, output=None if resume else run.path)
    if base:
        config = continued_settings(config, base)
        notes.add(f"continuing from {base.origin.name}, with its architecture and tokenizers")
    with notes.during("reading the text"):
        text, valid = _read(config, notes)
    if base:
        tokenizers = base.tokenizers
    elif resume:
        tokenizers = run.load_tokenizers()
    else:
        notes.add(f"training a {config.tokenizer.kind} vocabulary on {len(text):,} pairs")
        with notes.during("training the vocabulary"):
            tokenizers = train_tokenizers(text.src, text.tgt, config.tokenizer, seed=config.train.seed)
    config, device, precision = _resolve(config, None if base else tokenizers)
    if compiles(config.train, device):
        notes.add("the layers are compiled: the first steps take a minute or more")
    model = _build_model(config, base).to(device)
    sampling, ramp_from = config.tokenizer.sampling, config.batch.ramp_from
    with notes.during("turning the text into ids"):
        source = _batch_source(text, tokenizers, config, sampling=sampling, ramp_from=ramp_from)
        valid_source = _batch_source(valid, tokenizers, config, sampling=0.0, ramp_from=None)
    _note_store(source.store, notes)
    if not config.batch.tokens:
        config = _with_batches_of(config, _fitting_tokens(model, config, (source, valid_source), notes))
        source, valid_source = (replace(each, tokens=config.batch.tokens) for each in (source, valid_source))
    if base:
        _note_unknown(source.store, tokenizers, notes)
    origin = base.origin if base else None
    return Material(config, tokenizers, model, origin, source, valid_source, valid, device, precision)


def _read(config: Config, notes: Notes) -> tuple[ParallelText, ParallelText]:
    """Read training and validation text; without a validation set, hold out some pairs."""
    data = config.data
    if data.pairs:
        text = read_pairs(data.pairs, src_key=data.src_key, tgt_key=data.tgt_key)
    elif data.src and data.tgt:
        text = read_parallel(data.src, data.tgt)
    else:
        raise ConfigError(
            "no training text: give --src and --tgt, or --pairs (data.src, data.tgt, data.pairs)"
        )
    notes.add(f"{text.num_read:,} pairs in {text.name}; {text.num_empty:,} left out as empty")
    if data.valid_pairs:
        valid = read_pairs(data.valid_pairs, src_key=data.src_key, tgt_key=data.tgt_key)
    elif data.valid_src and data.valid_tgt:
        valid = read_parallel(data.valid_src, data.valid_tgt)
    elif len(text) >= _ENOUGH_TO_HOLD_OUT:
        text, valid = _hold_out(text)
        notes.add(f"no validation set is given: {len(valid):,} pairs are held out of training", warning=True)
    else:
        notes.add("no validation set is given: scores are of the training text itself", warning=True)
        return text, text
    has_valid = bool(data.valid_pairs or data.valid_src)
    _check_overlap(text, valid, notes, refuse=has_valid and not data.allow_overlap)
    return text, valid


def _check_overlap(text: ParallelText, valid: ParallelText, notes: Notes, *, refuse: bool) -> None:
    """Refuse, or warn of, validation pairs that are in the training text; warn of such sources.

    Raises:
        CorpusError: there are such pairs, and `refuse` is True.
    """
    if shared := shared_pairs(text, valid):
        message = f"{len(shared):,} of {len(valid):,} validation pairs are in the training text too"
        if refuse:
            example = valid.src[shared[0]][:_SHOWN]
            raise CorpusError(
                f"{valid.name}: {message} ({example!r}, for example), and scores on them say little; "
                f"{_cleaning(text, valid)} writes the training text without them, or set "
                "data.allow_overlap=true"
            )
        notes.add(message, warning=True)
    if seen := overlap(text, valid):
        message = f"{seen:,} of {len(valid):,} validation sources occur in training"
        if text.sources != valid.sources:
            command = _cleaning(text, valid, "--remove", "source-in-valid")
            message = f"{message}, which raises scores; {command} writes the training text without them"
        notes.add(message, warning=True)


def _cleaning(text: ParallelText, valid: ParallelText, *options: str) -> str:
    """Return the command that writes the training text without what the validation text has."""
    names = ("--valid-pairs",) if len(valid.sources) == 1 else ("--valid-src", "--valid-tgt")
    held_out = [word for option in zip(names, valid.sources, strict=True) for word in option]
    return shlex.join(["heedful", "inspect", *text.sources, *held_out, *options, "--fix", "DIR"])


def _hold_out(text: ParallelText) -> tuple[ParallelText, ParallelText]:
    """Hold out every hundredth pair, at most about 1,000, spread over the text."""
    stride = max(100, len(text) // 1000)

    def part(*, held_out: bool) -> ParallelText:
        indices = [i for i in range(len(text)) if (i % stride == stride - 1) == held_out]
        src, tgt = [text.src[i] for i in indices], [text.tgt[i] for i in indices]
        return ParallelText(src, tgt, text.sources, text.num_empty)

    return part(held_out=False), part(held_out=True)


def _resolve(config: Config, tokenizers: TokenizerPair | None) -> tuple[Config, torch.device, Precision]:
    """Return the configuration with the sizes of new tokenizers, and the device and precision."""
    limit_onednn_cache()
    if config.train.threads:
        set_threads("train.threads", config.train.threads)
    check_workers("train.processes", config.train.processes)
    device = training_device(config.train.device)
    precision = resolve_precision(config.train.precision, device)
    model = config.model.model_dump()
    if tokenizers is not None:
        model |= {
            "src_vocab_size": tokenizers.src.vocab_size,
            "tgt_vocab_size": tokenizers.tgt.vocab_size,
            "src_pad_id": tokenizers.src.pad_id,
            "tgt_pad_id": tokenizers.tgt.pad_id,
        }
    train = config.train.replace(precision=precision)
    settings = config.model_dump(exclude_unset=True) | {"model": model, "train": train.model_dump()}
    return validate(settings), device, precision


def training_device(name: str) -> torch.device:
    """Return the device of "auto", "cpu" or "cuda" on this machine.

    Raises:
        ConfigError: "cuda", and there is no GPU.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError('train.device="cuda": torch finds no GPU here; use "cpu"')
    gpu = name == "cuda" or (name == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if gpu else "cpu")


def _build_model(config: Config, base: BaseModel | None) -> Transformer:
    """Initialise the model, or load the base model, and choose the trained weights."""
    torch.manual_seed(config.train.seed)
    _check_fits_into_memory(config, moments=base is None)
    if base:
        model = meta_model(config.model)
        assign_weights(model, base.weights)
    else:
        model = Transformer.from_config(config.model)
    choose_trained_weights(model, config)
    use_fused_ops(model, kernels=config.train.kernels != "torch")
    return model


def _check_fits_into_memory(config: Config, *, moments: bool) -> None:
    """Refuse a model that is too large for this machine's memory before it is created.

    Raises:
        ConfigError: it is too large.
    """
    count, device = meta_model(config.model).num_parameters, torch.device("cpu")
    needed, free = 4 * count * (4 if moments else 1), free_memory(device)
    if needed > free:
        what = "weights, gradients and two moments of each" if moments else "weights alone"
        raise ConfigError(
            f"model: {count:,} parameters need {needed / 2**30:,.1f} GiB ({what}), and "
            f"{free / 2**30:,.1f} are free; make model.d_model, model.d_ff or the vocabulary smaller"
        )


def _batch_source(
    text: ParallelText,
    tokenizers: TokenizerPair,
    config: Config,
    *,
    sampling: float,
    ramp_from: int | None,
) -> BatchSource:
    longest = config.data.max_length
    if config.model.positions == "learned":
        longest = min(longest, config.model.max_positions)
    framing = SpecialTokens.of(config, tokenizers)
    store = build_store(
        text,
        tokenizers,
        max_length=longest,
        template=framing,
        cache_dir=config.data.cache_dir,
        keep_text=sampling > 0.0,
    )
    return BatchSource(
        store,
        tokenizers,
        tokens=config.batch.tokens,
        seed=config.train.seed,
        bucket_width=config.batch.bucket_width,
        sampling=sampling,
        template=framing,
        ramp_from=ramp_from,
    )


def _with_batches_of(config: Config, tokens: int) -> Config:
    return config.replace(batch=config.batch.replace(tokens=tokens).model_dump())


def _fitting_tokens(model: Transformer, config: Config, sources: Sequence[BatchSource], notes: Notes) -> int:
    """Return the largest batch in tokens that fits into memory, in training and in validation."""
    src, tgt = (max(lengths) for lengths in zip(*(each.max_lengths for each in sources), strict=True))
    fit = fitting_batch(model, config, (src, tgt))
    notes.add(f'batch.tokens="auto": {fit}')
    if config.batch.ramp_from is not None and config.batch.ramp_from > fit.tokens:
        raise ConfigError(
            f"batch.ramp_from={config.batch.ramp_from} is more than fits into memory; lower it to "
            f"{fit.tokens} or less"
        )
    return fit.tokens


def _note_store(store: ParallelStore, notes: Notes) -> None:
    report = store.report
    notes.add(
        f"{report.num_kept:,} pairs kept, {report.num_tgt_tokens:,} target tokens; "
        f"longest source {report.longest_src:,}, longest target {report.longest_tgt:,} tokens"
    )
    if report.num_too_long:
        notes.add(
            f"{report.num_too_long:,} pairs left out: longer than {report.max_length} tokens",
            warning=True,
        )


def _note_unknown(store: ParallelStore, tokenizers: TokenizerPair, notes: Notes) -> None:
    """Report the fraction of the text that is unknown to the base model's tokenizers."""
    src, tgt = store.count(tokenizers.src.unk_id, tokenizers.tgt.unk_id)
    src_share, tgt_share = src / store.report.num_src_tokens, tgt / store.report.num_tgt_tokens
    notes.add(
        f"unknown to its tokenizers: {src_share:.2%} of the source tokens, {tgt_share:.2%} of the target's",
        warning=max(src_share, tgt_share) > _MUCH_UNKNOWN,
    )
