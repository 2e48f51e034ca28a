"""Prepare a training: the text, its tokenizers, the model, new or to be fine-tuned, and the batches."""

import math
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from heedful.data.batches import BatchSource, Mixture, plan_epoch, sampler_of
from heedful.data.corpora import hold_out, joined, open_text
from heedful.data.files import PairFiles, ParallelText, Report, load_text, overlap, shared_pairs
from heedful.data.store import ParallelStore, build_store, cache_directory
from heedful.errors import ConfigError, CorpusError, RunError, TokenizerError
from heedful.model.transformer import Transformer
from heedful.runtime.threads import check_workers, num_threads, set_threads
from heedful.settings.loading import ALTERNATIVES, load_config
from heedful.settings.options import PAIR_TOKENS
from heedful.settings.plugins import part_name
from heedful.settings.run import Config, CorpusConfig, DataConfig
from heedful.storage.bundle import load_bundle
from heedful.storage.description import WEIGHTS_FILE, file_sha256, resolve_bundle
from heedful.storage.torch_weights import assign_weights, meta_model, unique_weights
from heedful.tasks.directory import TOKENIZER, RunDirectory
from heedful.tasks.loading import local_bundle
from heedful.tasks.notices import (
    Notices,
    note_changes,
    note_held_out,
    note_rewritten,
    note_small_shares,
    note_store,
    note_unknown,
    with_length_ratio,
)
from heedful.tasks.prepare import (
    OF_THE_VOCABULARY,
    PreparedText,
    check_section,
    is_prepared,
    longest_pair,
    set_values,
    with_vocabulary,
)
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers
from heedful.training.execution import Execution, training_device
from heedful.training.memory import fitting_batch, free_memory
from heedful.training.optimizer import choose_trained_weights
from heedful.training.parallel.process_group import Rank
from heedful.training.range_test import RangeTest, range_test
from heedful.training.step import LossFunction, try_loss

_ENOUGH_TO_HOLD_OUT = 1000  # pairs; smaller texts are too small for a held-out validation set
_MOST = 0.5  # of the validation pairs: if they are in the training text, scores mean nothing
_SHOWN = 60  # characters of a sentence in a message
# Of fine-tuning: the paper's rate would destroy a trained model.
_SCHEDULE = {"name": "linear", "warmup_fraction": 0.1, "peak": "auto", "decay_fraction": 0.9}
_OF_INIT = "--init keeps its architecture and tokenizers; leave the setting out, or the preset that makes it"


@dataclass(frozen=True)
class Origin:
    """The bundle that a model was fine-tuned from: its name, the checksum of its weights, and its text."""

    name: str
    sha256: str
    data: str


@dataclass(frozen=True)
class BaseModel:
    """A bundle to fine-tune."""

    origin: Origin
    config: Config
    tokenizers: TokenizerPair
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class HeldOut:
    """Validation text; of several directions, each has its own.

    Attributes:
        text: the pairs.
        corpus: the corpus with the tags of its languages; None: the tags of the model.
    """

    text: ParallelText
    corpus: CorpusConfig | None = None

    @property
    def name(self) -> str:
        """The tags of its languages, or the name of its last file."""
        tags = (self.corpus.src_tag, self.corpus.tag) if self.corpus else ()
        return "-".join(filter(None, tags)) or Path(self.text.sources[-1]).name

    def config(self, config: Config) -> Config:
        """Return the configuration with the tags of this text."""
        return config if self.corpus is None else _with_tags(config, self.corpus)


@dataclass(frozen=True)
class PreparedRun:
    """The resolved inputs of a training; `origin` is the base model of fine-tuning, if any."""

    config: Config
    tokenizers: TokenizerPair
    model: Transformer
    origin: Origin | None
    source: BatchSource
    valid_source: BatchSource
    valid: Sequence[HeldOut]
    execution: Execution


def set_up_training(
    config: Config,
    run: RunDirectory,
    notices: Notices,
    *,
    resume: bool,
    loss: LossFunction | None = None,
    tests_rates: bool = True,
) -> PreparedRun:
    """Read the text, train or load the tokenizers, turn text into ids, build or load the model, size batches.

    Raises:
        HeedfulError: the text, the settings, the base model or the run to resume cannot be used.
    """
    if config.train.init is None and (config.lora.rank or config.schedule.peak == 0.0):
        what = f"lora.rank={rank} adapts" if (rank := config.lora.rank) else 'schedule.peak="auto" is for'
        raise ConfigError(f"{what} a trained model: give --init BUNDLE (train.init), or another value")
    training_device(config.train.device)  # a missing GPU is noticed before a long text is read
    ratio = config.decode.max_length_ratio
    config, base, prepared, tokenizers = _given_parts(config, run, notices, resume=resume)
    with ExitStack() as files:  # they hold the text while it is prepared
        for corpus in config.data.corpora:
            _with_tags(_with_default_tag(config), corpus)  # mistakes first
        texts, valid = _read(config, files, notices, is_ready=prepared is not None)
        config = _with_default_tag(config)
        tokenizers = tokenizers or _trained_tokenizers(texts, config, notices)
        note_rewritten(texts or [held_out.text for held_out in valid], tokenizers, config, notices)
        config, execution = _resolve(config, None if base else tokenizers)
        if execution.compiles:
            notices.add("the layers are compiled: the first steps take a minute or more")
        model = _build_model(config, base).to(execution.device)
        note_changes(model, notices)
        execution.apply(model)
        with notices.during("turning the text into ids") as report:
            ids = prepared.store if prepared else None
            source, valid_source = _stored(texts, valid, tokenizers, config, report, ids)
    note_store(source.store, notices)
    note_small_shares(source.mixture, config.data, notices)
    note_held_out(valid_source.store, config, notices)
    if ratio is None:
        config = with_length_ratio(config, source.store, notices)
    if not config.batch.tokens:
        config = _with_fitting_batches(model, config, execution, source.max_lengths, notices)
        source, valid_source = (
            replace(batches, tokens=config.batch.tokens) for batches in (source, valid_source)
        )
    if base:
        note_unknown(source.store, tokenizers, notices)
    origin = base.origin if base else None
    ready = PreparedRun(config, tokenizers, model, origin, source, valid_source, valid, execution)
    if loss is not None:
        name = part_name("train.loss", dict(config.plugged), loss)
        try_loss(loss, name, model, next(iter(valid_source.batches(epoch=0))))
    if not tests_rates or config.schedule.peak != 0.0:
        return ready
    result = tested_rates(ready, notices, loss, is_limited=True)
    notices.add(f'schedule.peak="auto": {result}')
    return replace(ready, config=_with_peak(config, result.rate))


def _given_parts(
    config: Config, run: RunDirectory, notices: Notices, *, resume: bool
) -> tuple[Config, BaseModel | None, PreparedText | None, TokenizerPair | None]:
    """Return the settings, and what exists before the text is read: base model, prepared text, tokenizers.

    The tokenizers belong to the base model, to a prepared text, to the run to resume, or to another bundle;
    None: they are to be trained.
    """
    base, tokenizers = None, None
    if resume:
        config = _with_found(config, run)
    if config.train.init is not None:
        base = load_base_model(config.train.init, output=None if resume else run.path)
        config, tokenizers = continued_settings(config, base), base.tokenizers
        notices.add(f"continuing from {base.origin.name}, with its architecture and tokenizers")
    if prepared := _prepared_text(config.data):
        config = prepared.settings_for(config, tokenizers)
        tokenizers = tokenizers or prepared.tokenizers
        notices.add(f"{prepared.path} has {len(prepared.store):,} pairs as ids, and their vocabulary")
    elif resume:
        tokenizers = tokenizers or _saved_tokenizers(run)
    elif base is None and config.tokenizer.bundle is not None:
        config, tokenizers = with_vocabulary(config, config.tokenizer.bundle)
        notices.add(f"the vocabulary is that of {config.tokenizer.bundle}")
    return config, base, prepared, tokenizers


def _saved_tokenizers(run: RunDirectory) -> TokenizerPair:
    """Load the tokenizers of a run."""
    try:
        return TokenizerPair.load(run.path / TOKENIZER)
    except TokenizerError as error:
        raise RunError(f"{run.path}: the tokenizer is damaged ({error}); start a new run") from None


def load_base_model(name: str, *, output: Path | None = None) -> BaseModel:
    """Load a bundle, or the best one of a run."""
    path = local_bundle(Path(name))
    if output is not None:
        check_apart(resolve_bundle(path), output)
    bundle = load_bundle(path)
    assert bundle.path is not None
    data = bundle.config.data
    text = " and ".join(Path(file).name for file in data.training_files) or "see its own card"
    origin = Origin(name, file_sha256(bundle.path / WEIGHTS_FILE), text)
    return BaseModel(origin, bundle.config, bundle.tokenizers, unique_weights(bundle.model))


def check_apart(bundle: Path, output: Path) -> None:
    """Refuse a new run that would rename, or write into, the bundle that it continues from."""
    base, new = bundle.resolve(), output.resolve()
    if base.is_relative_to(new) or new.is_relative_to(base):
        how = "holds" if base.is_relative_to(new) else "is inside"
        raise RunError(f"{output}: {how} {bundle}, which --init continues from; give another --output")


def continued_settings(config: Config, base: BaseModel) -> Config:
    """Return the user's settings, with the base model's architecture, tokenizers, languages and search.

    Regularisation that the user does not set is the base model's, too: dropout and label smoothing. The
    paper's schedule has to be named: its rate is for a new model.
    """
    for section in ("model", "tokenizer"):
        requested, actual = getattr(config, section), getattr(base.config, section)
        check_section(section, requested, actual, base.origin.name, remedy=_OF_INIT)
    merged = {
        section: getattr(base.config, section).model_dump() | set_values(getattr(config, section))
        for section in ("model", "tokenizer", "languages", "decode")
    }
    sizes = {key: getattr(base.config.model, key) for key in OF_THE_VOCABULARY}
    smoothing = {"label_smoothing": base.config.train.label_smoothing}
    train = smoothing | config.train.model_dump(exclude_unset=True)
    schedule = set_values(config.schedule)
    if not schedule.keys() & {"name", "scale"}:
        default = {key: value for key, value in _SCHEDULE.items() if ALTERNATIVES.get(key) not in schedule}
        schedule = default | schedule
    return config.replace(**merged | {"model": merged["model"] | sizes, "train": train, "schedule": schedule})


def _prepared_text(data: DataConfig) -> PreparedText | None:
    """Return the training text if `heedful prepare` has turned it into ids."""
    path = Path(data.pairs) if data.pairs else None
    if path is None or not is_prepared(path):
        return None
    if not (data.valid_pairs or data.valid_src):
        raise ConfigError(f"{path}: holds no text that could be held out; give --valid-src and --valid-tgt")
    return PreparedText.load(path)


def _read(
    config: Config, files: ExitStack, notices: Notices, *, is_ready: bool
) -> tuple[list[ParallelText], list[HeldOut]]:
    """Read the corpora and the validation text; without a validation set, hold out pairs of the first corpus.

    The training text is in temporary files, which `files` removes, and the validation text in memory. If the
    training text is ready, only the validation text is read.
    """
    data = config.data
    valid = _given_validation(config, notices)
    if is_ready and valid:
        return [], valid
    parts = data.corpora or (data,)
    corpora = [each for part in parts if (each := _files(config, part.src, part.tgt, part.pairs))]
    if not corpora:
        raise ConfigError(
            "no training text: give --src and --tgt, or --pairs (data.src, data.tgt, data.pairs)"
        )
    texts = []
    for corpus in corpora:
        with notices.during(f"reading {corpus.name}") as report:
            cache = cache_directory(data.cache_dir)
            text = files.enter_context(open_text(corpus, cache, filters=data.filters, report=report))
        faulty = f", {text.num_faulty:,} by data.filters" if data.filters else ""
        notices.add(f"{text.num_read:,} pairs in {text.name}; {text.num_empty:,} left out as empty{faulty}")
        texts.append(text)
    first = data.corpora[0] if data.corpora and all(corpus.tag for corpus in data.corpora) else None
    if is_given := bool(valid):
        pass
    elif len(texts[0]) >= _ENOUGH_TO_HOLD_OUT:  # at most about 1,000 pairs, spread over the text
        texts[0], of_first = hold_out(texts[0], max(100, len(texts[0]) // 1000))
        valid = [HeldOut(of_first, first)]
        notices.add(
            f"no validation set is given: {len(of_first):,} pairs are held out of training", warning=True
        )
    else:
        notices.add("no validation set is given: scores are of the training text itself", warning=True)
        return texts, [HeldOut(replace(texts[0], src=[*texts[0].src], tgt=[*texts[0].tgt]), first)]
    refuse = is_given and not data.allow_overlap
    with notices.during("comparing training and validation text"):
        for text, held_out in product(texts, valid):
            _check_overlap(text, held_out.text, notices, data, refuse=refuse)
    return texts, valid


def _given_validation(config: Config, notices: Notices) -> list[HeldOut]:
    """Read the validation text that is given: of each corpus, or one for all."""
    data, valid = config.data, list[HeldOut]()
    for corpus in data.corpora:
        if files := _files(config, corpus.valid_src, corpus.valid_tgt, corpus.valid_pairs):
            valid.append(HeldOut(load_text(files), corpus))
    if valid and len(valid) < len(data.corpora):
        notices.add(
            f"{len(data.corpora) - len(valid)} of {len(data.corpora)} corpora have no validation text: these "
            "directions are not scored",
            warning=True,
        )
    if files := _files(config, data.valid_src, data.valid_tgt, data.valid_pairs):
        valid = [HeldOut(load_text(files))]
        tags = list(dict.fromkeys(corpus.tag for corpus in data.corpora))
        if len(tags) > 1 and None not in tags:  # a corpus without one: the tags are of provenance
            notices.add(
                f"{files.name} is validated with the model's own tag, or else {tags[0]}; to validate each "
                "direction, give each corpus valid_src and valid_tgt",
                warning=True,
            )
    return valid


def _with_default_tag(config: Config) -> Config:
    """Use the tags of the first corpus for translation, if all corpora have one and the model none."""
    languages, corpora = config.languages, config.data.corpora
    has_tag = languages.src_tag is not None or languages.tgt_tag is not None
    if has_tag or not corpora or not all(corpus.tag for corpus in corpora):
        return config
    return _with_tags(config, corpora[0])


def _with_tags(config: Config, corpus: CorpusConfig) -> Config:
    """Return the configuration with the tags of a corpus, each where the model has it.

    Raises:
        ConfigError: a tag of the source language, and the model has only one of the target language.
    """
    languages = config.languages
    has_target_tag = languages.tgt_tag is not None
    if corpus.src_tag and not has_target_tag:
        raise ConfigError(
            f"data.corpora: src_tag={corpus.src_tag!r}: this model has one tag, of the target language; give "
            "it as tag"
        )
    tags = {"src_tag": corpus.src_tag, "tgt_tag": corpus.tag} if has_target_tag else {"src_tag": corpus.tag}
    changed = {name: tag for name, tag in tags.items() if tag}
    return config.replace(languages=languages.replace(**changed).model_dump())


def _files(config: Config, src: str | None, tgt: str | None, pairs: str | None) -> PairFiles | None:
    """Return the files of a text, or None if there are none."""
    names = [pairs] if pairs else [src, tgt] if src and tgt else []
    if not names:
        return None
    keys, languages = (config.data.src_key, config.data.tgt_key), (config.languages.src, config.languages.tgt)
    return PairFiles(tuple(map(Path, names)), *keys, languages)


def _check_overlap(
    text: ParallelText, valid: ParallelText, notices: Notices, data: DataConfig, *, refuse: bool
) -> None:
    """Warn of validation pairs and sources that are in the training text; refuse if most pairs are."""
    shared = shared_pairs(text, valid)
    if shared:
        share = len(shared) / len(valid)
        message = (
            f"{len(shared):,} of {len(valid):,} validation pairs ({share:.0%}) are in the training text too"
        )
        if refuse:
            example = valid.src[shared[0]][:_SHOWN]
            message += f" ({example!r}, for example), and scores on them say little; "
            message += _cleaning(text, valid, data)
        if refuse and share > _MOST:
            raise CorpusError(f"{valid.name}: {message}, or set data.allow_overlap=true")
        notices.add(message, warning=True)
    if (seen := overlap(text, valid)) > len(shared):
        message = f"{seen:,} of {len(valid):,} validation sources occur in training"
        if text.sources != valid.sources:
            remedy = _cleaning(text, valid, data, "--remove", "source-in-valid")
            message = f"{message}, which raises scores; {remedy}"
        notices.add(message, warning=True)


def _cleaning(text: ParallelText, valid: ParallelText, data: DataConfig, *options: str) -> str:
    """Say how to remove from the training text what the validation text has: by a command, if it is lines."""
    kinds = [PairFiles(tuple(map(Path, side.sources))).kind for side in (text, valid)]
    if "table" in kinds:
        return "remove them from the training text"
    names = ("--valid-pairs",) if len(valid.sources) == 1 else ("--valid-src", "--valid-tgt")
    held_out = [word for option in zip(names, valid.sources, strict=True) for word in option]
    keys = (
        ["--src-key", data.src_key, "--tgt-key", data.tgt_key] if {"jsonl", "tsv", "units"} & {*kinds} else []
    )
    command = shlex.join(["heedful", "inspect", *text.sources, *held_out, *keys, *options, "--fix", "DIR"])
    return f"{command} writes the training text without them"


def _trained_tokenizers(texts: Sequence[ParallelText], config: Config, notices: Notices) -> TokenizerPair:
    text = joined(texts)
    tags = dict.fromkeys([*(corpus.tag for corpus in config.data.corpora), config.languages.src_tag])
    notices.add(f"training a {config.tokenizer.kind} vocabulary on {len(text):,} pairs")
    with notices.during("training the vocabulary"):
        return train_tokenizers(
            text.src,
            text.tgt,
            config.tokenizer,
            seed=config.train.seed,
            tags=[tag for tag in tags if tag] if config.data.corpora else [],
            notify=notices.add,
        )


def _resolve(config: Config, tokenizers: TokenizerPair | None) -> tuple[Config, Execution]:
    """Return the configuration with the sizes of new tokenizers, and how this process trains."""
    if config.train.threads:
        set_threads("train.threads", config.train.threads)
    check_workers("train.processes", config.train.processes)
    execution = Execution.of(config.train, training_device(config.train.device))
    model = config.model.model_dump()
    if tokenizers is not None:
        model |= {
            "src_vocab_size": tokenizers.src.vocab_size,
            "tgt_vocab_size": tokenizers.tgt.vocab_size,
            "src_pad_id": tokenizers.src.pad_id,
            "tgt_pad_id": tokenizers.tgt.pad_id,
        }
    train = config.train.replace(precision=execution.precision)
    settings = config.model_dump(exclude_unset=True) | {"model": model, "train": train.model_dump()}
    return Config(**settings), execution


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
    return model


def _check_fits_into_memory(config: Config, *, moments: bool) -> None:
    """Refuse a model that is too large for this machine's memory before it is created."""
    count, device = meta_model(config.model).num_parameters, torch.device("cpu")
    needed, free = 4 * count * (4 if moments else 1), free_memory(device)
    if needed > free:
        what = "weights, gradients and two moments of each" if moments else "weights alone"
        raise ConfigError(
            f"model: {count:,} parameters need {needed / 2**30:,.1f} GiB ({what}), and "
            f"{free / 2**30:,.1f} are free; make model.d_model, model.d_ff or the vocabulary smaller"
        )


def _stored(
    texts: Sequence[ParallelText],
    valid: Sequence[HeldOut],
    tokenizers: TokenizerPair,
    config: Config,
    report: Report,
    ids: ParallelStore | None,
) -> tuple[BatchSource, BatchSource]:
    """Store the ids of training text, unless given, and of validation text; return the batches of both."""
    total = sum(map(len, texts)) or sum(len(held_out.text) for held_out in valid)

    def build(
        text: ParallelText, template: SpecialTokens, sampling: float, done: int, *, least: int = 0
    ) -> ParallelStore:
        return build_store(
            text,
            tokenizers,
            max_length=longest_pair(config, least=least),
            template=template,
            cache_dir=config.data.cache_dir,
            keep_text=sampling > 0.0,
            processes=num_threads(),
            report=lambda fraction: report((done + fraction * len(text)) / total),
        )

    template, sampling = SpecialTokens.of(config, tokenizers), config.tokenizer.sampling
    tagged = [_with_tags(config, corpus) for corpus in config.data.corpora]
    templates = [SpecialTokens.of(own, tokenizers) for own in tagged] or [template]
    stores, done = [ids] if ids else list[ParallelStore](), 0
    for text, of_it in zip(texts, templates, strict=ids is None):
        stores.append(build(text, of_it, sampling, done))
        done += len(text)
    source = BatchSource(
        _one_store(stores),
        tokenizers,
        tokens=config.batch.tokens,
        seed=config.train.seed,
        bucket_width=config.batch.bucket_width,
        sampling=sampling,
        template=templates[0],
        ramp_from=config.batch.ramp_from,
        mixture=_mixture([len(store) for store in stores], templates, config.data),
        sampler=sampler_of(config.batch.sampler) if config.batch.sampler else plan_epoch,
    )
    # A validation pair may be longer than training pairs: as long as `heedful score` takes.
    stores = []
    for held_out in valid:
        own = SpecialTokens.of(held_out.config(config), tokenizers)
        stores.append(build(held_out.text, own, 0.0, total - len(held_out.text), least=PAIR_TOKENS))
    valid_source = BatchSource(
        _one_store(stores),
        tokenizers,
        tokens=config.batch.tokens,
        seed=config.train.seed,
        bucket_width=config.batch.bucket_width,
        template=template,
    )
    return source, valid_source


def _one_store(stores: Sequence[ParallelStore]) -> ParallelStore:
    return stores[0] if len(stores) == 1 else ParallelStore(*(store.path for store in stores))


def _mixture(sizes: Sequence[int], templates: Sequence[SpecialTokens], data: DataConfig) -> Mixture | None:
    """Return how the corpora are mixed: by their weights, or by their sizes and the temperature."""
    if len(sizes) == 1:
        return None
    largest = max(sizes)
    weights = [
        (size / largest) ** (1.0 / data.temperature) if corpus.weight is None else corpus.weight
        for size, corpus in zip(sizes, data.corpora, strict=True)
    ]
    return Mixture(tuple(sizes), _shares(weights), tuple(templates))


def _shares(weights: Sequence[float]) -> tuple[float, ...]:
    """Return weights divided by their sum, which may be too large for a float."""
    _, exponent = math.frexp(max(weights))
    scaled = [math.ldexp(weight, -exponent) for weight in weights]  # exact: the shares stay the same
    return tuple(weight / sum(scaled) for weight in scaled)


def _with_peak(config: Config, peak: float | None) -> Config:
    return config.replace(schedule=set_values(config.schedule) | {"peak": peak})


def _with_found(config: Config, run: RunDirectory) -> Config:
    """Return the settings of a resumed run, with what its first start has found if they are "auto"."""
    if config.batch.tokens and config.schedule.peak != 0.0:
        return config
    started = load_config(run.config_file)
    if not config.batch.tokens:
        config = config.replace(batch=config.batch.replace(tokens=started.batch.tokens).model_dump())
    return _with_peak(config, started.schedule.peak) if config.schedule.peak == 0.0 else config


def _with_fitting_batches(
    model: Transformer, config: Config, execution: Execution, longest: tuple[int, int], notices: Notices
) -> Config:
    """Replace `batch.tokens = "auto"` by the largest batch that fits into memory."""
    fit = fitting_batch(model, config, execution, longest)
    notices.add(f'batch.tokens="auto": {fit}')
    return config.replace(batch=config.batch.replace(tokens=fit.tokens).model_dump())


def tested_rates(
    prepared: PreparedRun, notices: Notices, loss: LossFunction | None = None, *, is_limited: bool = False
) -> RangeTest:
    """Return the range test of a model on the first batches of its training text.

    With `is_limited` it takes at most a tenth of the time of the run.
    """
    rank = Rank(prepared.model, prepared.source, prepared.config, prepared.execution, loss=loss)
    with notices.during("testing learning rates"):
        return range_test(rank, prepared.valid_source, is_limited=is_limited, notify=notices.add)
