"""Shards of parallel text as ids on disk, which training maps into memory; the work of `heedful prepare`.

    OUTPUT/
      tokenizer/        the vocabulary
      manifest.json     the settings, and for each shard that is done: pairs, bytes, checksums
      NAME.arrow        the store of the shard NAME (data/store.py)
      config.toml       the settings that training takes over; it is written last, when all shards are done

A shard is two files of lines, or one file of pairs: `.tsv`, `.jsonl` or `.parquet`. Its store has the same
bytes wherever it was made.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from heedful.bulk.folders import Fingerprint, Folder, folder_at
from heedful.bulk.manifest import MANIFEST, Display, Manifest, Settings, check_settings, no_display
from heedful.bulk.shards import Report, ShardJob, list_shards, open_job, run_job
from heedful.data.cleaning.pair import faulty_by
from heedful.data.corpora import open_text, writing_to
from heedful.data.files import FilledPairs, PairFiles, ParallelText, WantedLanguages
from heedful.data.store import ParallelStore, build_store, cache_directory
from heedful.errors import ConfigError, CorpusError, InputError, TokenizerError
from heedful.runtime.threads import check_workers, num_threads, using_threads
from heedful.settings.loading import load_config, to_toml
from heedful.settings.run import Config
from heedful.settings.section import Section
from heedful.storage.bundle import load_bundle
from heedful.tasks.directory import CONFIG, TOKENIZER
from heedful.tasks.loading import local_bundle
from heedful.tasks.options import Notify
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers
from heedful.text.round_trip import SAMPLE, RoundTrip
from heedful.text.training import MAX_LINES

# Settings that change neither the function of the model nor its vocabulary.
_FREE = {
    "alignment_heads", "alignment_layer", "dropout", "attention_dropout", "activation_dropout", "sampling",
    "word_dropout",
}  # fmt: skip
OF_THE_VOCABULARY = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id"}


@dataclass(frozen=True, kw_only=True)
class PairShards:
    """Shards of parallel text: of one file each, or of two.

    A shard has the name of its only file or of its source file; `sizes` are in bytes. `source` and `targets`
    are the URLs of directories, and `target_of` has the names of target files; without `targets`, a shard is
    one file with the two `keys`. Pairs in which a filter of a plugin finds a fault are left out.
    """

    sizes: Mapping[str, int]
    source: str
    targets: str | None
    target_of: Mapping[str, str]
    keys: tuple[str, str]
    languages: WantedLanguages = (None, None)
    filters: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config) -> "PairShards":
        """Return the shards that the settings name as directories, patterns, or URLs."""
        data = config.data
        if empty := [key for key in ("pairs", "src", "tgt") if getattr(data, key) == ""]:
            raise ConfigError(f"--{empty[0]}: the path is empty; give the path of a text")
        if data.corpora or not (data.pairs or (data.src and data.tgt)):
            raise ConfigError("heedful prepare takes one corpus: give --pairs, or --src and --tgt")
        if data.pairs and is_prepared(Path(data.pairs)):
            raise InputError(
                f"{data.pairs}: is prepared already; train takes it as --pairs, and prepare takes text"
            )
        folder, sizes = list_shards(data.pairs or str(data.src))
        targets, target_of = None, dict[str, str]()
        if not data.pairs:
            target_folder, target_sizes = list_shards(str(data.tgt))
            if len(target_sizes) != len(sizes):
                raise InputError(
                    f"{data.src}: {len(sizes):,} shards, but {data.tgt} has {len(target_sizes):,}; source "
                    "and target belong together in the order of their names"
                )
            targets, target_of = target_folder.location, dict(zip(sizes, target_sizes, strict=True))
            sizes = {name: size + target_sizes[target_of[name]] for name, size in sizes.items()}
        source, keys = folder.location, (data.src_key, data.tgt_key)
        return cls(
            sizes=sizes,
            source=source,
            targets=targets,
            target_of=target_of,
            keys=keys,
            languages=(config.languages.src, config.languages.tgt),
            filters=data.filters,
        )

    @contextmanager
    def files(self, name: str, directory: Path) -> Iterator[PairFiles]:
        """Yield the files of a shard on this machine; copies of remote ones are in `directory`."""
        paths = []
        for number, (folder, file) in enumerate(self._files_of(name)):
            path = Path(folder.of_file(file))
            if folder.system is not None:
                path = directory / str(number) / file
                path.parent.mkdir()
                with folder.open(file) as there, path.open("wb") as here:
                    shutil.copyfileobj(there, here)
            paths.append(path)
        yield PairFiles(tuple(paths), *self.keys, self.languages)

    def fingerprint(self, name: str) -> dict[str, Any]:
        """Return the size of a shard, and the checksums of its files."""
        each_file = [folder.fingerprint(file) for folder, file in self._files_of(name)]
        checksums = " ".join(each["sha256"] for each in each_file)
        return {"bytes": sum(each["bytes"] for each in each_file), "sha256": checksums}

    def sample(self, pairs: int, directory: Path) -> ParallelText:
        """Return the first pairs of each shard, in proportion to its size, `pairs` in total at most."""
        src, tgt, total = list[str](), list[str](), max(1, sum(self.sizes.values()))
        for name, size in self.sizes.items():
            left = max(1, pairs * size // total)
            with temporary_directory(directory) as copies, self.files(name, copies) as files:
                is_faulty = faulty_by(self.filters) if self.filters else None
                for sources, targets in FilledPairs(files, is_faulty=is_faulty):
                    src += sources[:left]
                    tgt += targets[:left]
                    left -= len(sources)
                    if left <= 0:
                        break
        return ParallelText(src, tgt, (self.source,))

    def _files_of(self, name: str) -> list[tuple[Folder, str]]:
        files = [(folder_at(self.source), name)]
        return files if self.targets is None else [*files, (folder_at(self.targets), self.target_of[name])]


@dataclass(frozen=True, kw_only=True)
class PreparationJob(ShardJob):
    """Turning shards into ids; the `processes` for a shard share the CPU `threads`.

    The tokenizers are None until they are known.
    """

    text: PairShards
    config: Config
    threads: int
    processes: int
    tokenizers: TokenizerPair | None = None
    done: ClassVar[str] = "prepared"
    suffix: ClassVar[str] = ".arrow"

    @override
    def read_settings(self) -> Settings:
        assert self.tokenizers is not None
        return settings_of_text(self.config, self.tokenizers)

    @override
    def fingerprint(self, name: str) -> Fingerprint:
        return self.text.fingerprint(name)

    @override
    def write_output(self, name: str, report: Report) -> Mapping[str, int]:
        """Write the store of a shard."""
        assert self.tokenizers is not None
        with (
            using_threads(self.threads),
            temporary_directory(cache_directory(self.config.data.cache_dir)) as folder,
            self.text.files(name, folder) as files,
            open_text(
                files, folder, filters=self.text.filters, report=lambda done: report(done / 2, 0, 0)
            ) as text,
        ):
            store = build_store(
                text,
                self.tokenizers,
                max_length=longest_pair(self.config),
                template=SpecialTokens.of(self.config, self.tokenizers),
                cache_dir=folder,
                keep_text=self.config.tokenizer.sampling > 0.0,
                processes=self.processes,
                report=lambda done: report((1 + done) / 2, 0, 0),
            )
            with store.path.open("rb") as built, self.target.complete(name + self.suffix) as out:
                shutil.copyfileobj(built, out)
        return {
            "lines": len(store),
            "tokens": store.report.num_src_tokens + store.report.num_tgt_tokens,
        }


@contextmanager
def temporary_directory(parent: Path) -> Iterator[Path]:
    """Create a directory, named as those that the eviction of stores removes after a kill."""
    with writing_to(parent):
        parent.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=parent, prefix=f"{'0' * 40}.", suffix=".tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def settings_of_text(config: Config, tokenizers: TokenizerPair) -> dict[str, str]:
    """Return what the ids of a text depend on."""
    template = SpecialTokens.of(config, tokenizers)
    frame = (template.src_prefix, template.src_suffix, template.tgt_prefix, template.tgt_suffix)
    return {
        "vocabulary": tokenizers.fingerprint(),
        "special_tokens": str(frame),
        "max_length": str(longest_pair(config)),
        "filters": ",".join(config.data.filters),
        "sentences": str(config.tokenizer.sampling > 0.0),
        "tokenizer": config.tokenizer.model_dump_json(exclude={"sampling"}),
    }


def longest_pair(config: Config, *, least: int = 0) -> int:
    """Return the maximum length of source and target in tokens: `least` or more, if there are positions."""
    longest = max(config.data.max_length, least)
    return min(longest, config.model.max_positions) if config.model.positions == "learned" else longest


def prepare_shards(
    config: Config,
    output: str,
    *,
    resume: bool,
    on_ray: bool,
    notify: Notify,
    display: Display = no_display,
) -> str:
    """Turn shards of text into ids, and return what was done, in words.

    Shards that cannot be used are a RunError at the end: the others are done. `output` is a path or URL.
    `on_ray` gives `train.threads` CPUs to each worker of a Ray cluster; `notify` is called with messages
    about what takes long.
    """
    text, folder = PairShards.of(config), folder_at(output)
    threads = config.train.threads or (1 if on_ray else num_threads())
    check_workers("train.threads", threads)
    cache = cache_directory(config.data.cache_dir).absolute()  # the same on each machine
    config = config.replace(data=config.data.replace(cache_dir=str(cache)).model_dump())
    job = PreparationJob(
        source=text.source,
        output=folder.location,
        text=text,
        config=config,
        threads=threads,
        processes=1 if on_ray else threads,  # Ray starts the processes
    )
    state = open_job(job, text.sizes, resume=resume, also_read=text.targets)
    config, tokenizers = _vocabulary(config, text, folder, cache, notify)
    first = replace(text, sizes=dict([*text.sizes.items()][:1]))
    changed = RoundTrip.of(first.sample(SAMPLE, cache).tgt, tokenizers.tgt)
    if message := changed.warning(config.tokenizer.normalization):
        notify(f"warning: {message}")
    with suppress(FileNotFoundError):
        folder.delete(CONFIG)  # until the new shards are done
    job = replace(job, config=config, tokenizers=tokenizers)
    cpus = threads if on_ray else 0
    outcome = run_job(job, state, ray_cpus=cpus, display=display)
    outcome.raise_if_failed()
    folder.put(CONFIG, to_toml(config).encode())
    return str(outcome)


def _vocabulary(
    config: Config, text: PairShards, output: Folder, cache: Path, notify: Notify
) -> tuple[Config, TokenizerPair]:
    """Return the settings, and the tokenizers of an earlier start, of a bundle, or trained ones."""
    of_bundle = None
    if config.tokenizer.bundle is not None:
        config, of_bundle = with_vocabulary(config, config.tokenizer.bundle)
    folder = folder_at(f"{output.location}/{TOKENIZER}")
    with output.locked(TOKENIZER), temporary_directory(cache) as here:
        for name in folder.shards():
            with folder.open(name) as file:
                (here / name).write_bytes(file.read())
        saved: TokenizerPair | None = None
        with suppress(TokenizerError):
            saved = TokenizerPair.load(here)
        tokenizers = saved or of_bundle
        if tokenizers is None:
            sample = text.sample(MAX_LINES // 2, cache)
            notify(f"training a {config.tokenizer.kind} vocabulary on {len(sample):,} pairs")
            tokenizers = train_tokenizers(
                sample.src, sample.tgt, config.tokenizer, seed=config.train.seed, notify=notify
            )
        done, now = Manifest(output).read(), settings_of_text(config, tokenizers)
        before, remedy = done.settings, "or another --output"
        if done.parts:
            check_settings(output.url, before, now, remedy=remedy)
        elif saved is not None and before:  # of the settings, the vocabulary depends on these only
            of_each = [{"tokenizer": each.get("tokenizer", "")} for each in (before, now)]
            check_settings(output.url, *of_each, remedy=remedy)
        if before != now:
            Manifest(output).write(now, done.parts)
        if saved is not None:
            return config, saved
        tokenizers.save(here)
        folder.create()
        for path in sorted(here.iterdir()):
            folder.put(path.name, path.read_bytes())
    return config, tokenizers


@dataclass(frozen=True)
class PreparedText:
    """A directory that `prepare_shards` has written; the ids depend on `settings`."""

    path: Path
    config: Config
    tokenizers: TokenizerPair
    store: ParallelStore
    settings: Mapping[str, str]

    @classmethod
    def load(cls, path: Path) -> "PreparedText":
        """Open a directory."""
        if not (path / CONFIG).exists():
            raise CorpusError(f"{path}: some shards are not prepared yet; heedful prepare --resume goes on")
        if not (path / TOKENIZER).is_dir():
            raise CorpusError(f"{path}: has no {TOKENIZER}; heedful prepare --resume writes it again")
        done = Manifest(folder_at(str(path))).read()
        stores = [path / f"{name}{PreparationJob.suffix}" for name in sorted(done.parts)]
        return cls(
            path,
            load_config(path / CONFIG),
            TokenizerPair.load(path / TOKENIZER),
            ParallelStore(*stores),
            done.settings,
        )

    def settings_for(self, config: Config, base: TokenizerPair | None) -> Config:
        """Return the settings of a training on this text, with its vocabulary.

        `base` are the tokenizers of the model to fine-tune, which must equal the text's; None: a new model.
        """
        if base is None:
            remedy = "its ids are of that vocabulary; leave the setting out, or prepare the text again"
            was = self.config
            check_section("tokenizer", config.tokenizer, was.tokenizer, str(self.path), remedy=remedy)
            config = _taking_over(config, was, set_values(config.tokenizer))
            longest = {"max_length": was.data.max_length} | set_values(config.data)
            config = Config(**config.model_dump(exclude_unset=True) | {"data": longest})
        if config.tokenizer.sampling and not self.store.has_text:
            raise ConfigError(
                f"tokenizer.sampling={config.tokenizer.sampling}: {self.path} has no sentences to sample "
                "from; give the setting to heedful prepare too"
            )
        same = {key: self.settings.get(key, "") for key in ("sentences", "tokenizer")}  # or checked above
        now = settings_of_text(config, base or self.tokenizers) | same
        check_settings(str(self.path), self.settings, now, remedy="or prepare the text again")
        return config


def is_prepared(path: Path) -> bool:
    """Return whether a directory is one of `prepare_shards`."""
    return (path / MANIFEST).is_file() and ((path / TOKENIZER).is_dir() or (path / CONFIG).is_file())


def with_vocabulary(config: Config, name: str) -> tuple[Config, TokenizerPair]:
    """Return the settings with the vocabulary of another model and what goes with it, and its tokenizers.

    `name` is the path of the bundle, or its id on the hub; a value that the user has set must be the same.
    """
    bundle = load_bundle(local_bundle(Path(name)))
    own = config.tokenizer.replace(bundle=None)
    remedy = "tokenizer.bundle keeps its vocabulary; leave the setting out, or set tokenizer.bundle=false"
    check_section("tokenizer", own, bundle.config.tokenizer, name, remedy=remedy)
    own_values = set_values(config.tokenizer) | {"bundle": name}
    return _taking_over(config, bundle.config, own_values), bundle.tokenizers


def _taking_over(config: Config, other: Config, own: Mapping[str, Any]) -> Config:
    """Return the settings with another vocabulary and what goes with it; the user's values stay."""
    settings = config.model_dump(exclude_unset=True) | {
        "tokenizer": {**other.tokenizer.model_dump(), **own},
        "languages": other.languages.model_dump() | set_values(config.languages),
        "model": {"decoder_start_id": other.model.decoder_start_id} | set_values(config.model),
    }
    return Config(**settings)


def check_section(section: str, requested: Section, actual: Section, name: str, *, remedy: str) -> None:
    """Raise a ConfigError for the first setting of the user that differs from the one that `name` has."""
    for key, value in set_values(requested).items():
        there = getattr(actual, key)
        if key not in _FREE | OF_THE_VOCABULARY and value != there:
            raise ConfigError(
                f"{section}.{key}={json.dumps(value)}: {name} has {json.dumps(there)}, and {remedy}"
            )


def set_values(section: Section) -> dict[str, Any]:
    """Return the settings of a section that were set to a value other than None."""
    return {key: value for key, value in section.model_dump(exclude_unset=True).items() if value is not None}
