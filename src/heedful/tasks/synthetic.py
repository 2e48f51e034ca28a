"""Synthetic text: translate text in bulk, filter the pairs, and configure a training on them.

    RUN/synthetic/
      manifest.json      what the text is made with, and which of the following are done (`bulk/manifest.py`)
      translated.EXT     the translations, line by line (`bulk/lines.py`)
      clean/             the pairs without the faulty ones, and removed.tsv, as `heedful inspect --fix` has it
    RUN/...              the run of the training on these pairs

A later start continues what was interrupted; one with other models, search, text or filters is refused.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast

from heedful.bulk.folders import folder_at
from heedful.bulk.lines import LineLayout, LineTranslation, settings_of
from heedful.bulk.manifest import Display, Manifest, check_settings, no_display
from heedful.bulk.manifest import Settings as ManifestSettings
from heedful.data.files import PairFiles, WantedLanguages, holds_units, plain_name, read_parallel
from heedful.data.given import with_files
from heedful.data.inspection import inspect_text, removed_filters
from heedful.data.streams import Lines, count_lines, count_pairs, open_input, open_output, write_line
from heedful.decoding.options import search_options
from heedful.documents.formats import refuse_documents
from heedful.errors import CorpusError, RunError
from heedful.runtime.durable import UNFINISHED
from heedful.runtime.workers import has_other_ranks
from heedful.settings.arguments import checked
from heedful.settings.keywords import Texts
from heedful.settings.loading import load_config, plain
from heedful.settings.options import Filtering, HeldOutText, Settings, options_of
from heedful.settings.run import Config
from heedful.storage.description import WEIGHTS_FILE, file_sha256
from heedful.tasks.card import shared_name, shell_command, without_directories, words_of_settings
from heedful.tasks.directory import CONFIG, RunDirectory, check_are_outside
from heedful.tasks.keywords import BackTranslationKeywords, SyntheticKeywords
from heedful.tasks.loading import from_keywords, load_translator
from heedful.tasks.notices import Listener
from heedful.tasks.options import BackTranslationOptions, DistillOptions, Notify, say_nothing
from heedful.tasks.prepare import with_vocabulary
from heedful.tasks.training import Training, TrainResult
from heedful.text.pair import languages_of_pairs

SYNTHETIC, CLEAN, REMOVED = "synthetic", "clean", "removed.tsv"
_NOT_SHOWN = ("resume", "settings")  # in the command of a model card; settings follow as --set

Bar = Callable[[], AbstractContextManager[Callable[[str, float], None]]]  # shows a phase and its progress


@checked
def distill(
    teachers: str | Path | Sequence[str | Path],
    *,
    src: Texts,
    output: str | Path,
    tgt: Texts | None = None,
    settings: Settings = (),
    callbacks: Sequence[Listener] = (),
    **options: Unpack[SyntheticKeywords],
) -> TrainResult:
    """Train a small model on the translations of a larger one, or of an ensemble: `heedful distill`.

    >>> student = heedful.distill("runs/demo", src="train.en", output="runs/student", preset="tiny",
    ...     beam_size=1, settings={"train.max_steps": 2, "train.processes": 1})
    >>> translator = heedful.Translator.load(student.best)

    The translations are in the folder synthetic of the run directory. With `resume=True`, a later call goes
    on where an earlier one was interrupted.

    Args:
        teachers: runs or bundles; several translate together.
        src: the source text, a file or a list of texts, as for `train`.
        output: the run directory.
        tgt: its translations by people, to train on them too.
        settings: of the training, by their whole keys.
        callbacks: called with every event of the training.
        options: of the command, by the same names: preset, config, valid_src, valid_tgt, weight, keep,
            remove, resume, overwrite; of the translation, such as beam_size=1 or precision="bf16".

    Raises:
        CorpusError: texts that are missing or not parallel.
        InputError: an option that does not exist, or with a value that cannot be.
        HeedfulError: a run directory, models or settings that cannot be used: see `heedful.errors`.
    """
    texts = with_files({"src": src, "tgt": tgt}, Path(output))
    own = {"teachers": teachers, "output": output, "settings": settings, **texts}
    given = with_files(options, Path(output))
    return _train(from_keywords(DistillOptions, given, distill, **own), callbacks)


@checked
def back_translate(
    model: str | Path,
    *,
    mono: Texts,
    src: Texts,
    tgt: Texts,
    output: str | Path,
    settings: Settings = (),
    callbacks: Sequence[Listener] = (),
    **options: Unpack[BackTranslationKeywords],
) -> TrainResult:
    """Train on pairs, and on text with a model's translations as sources: `heedful back-translate`.

    >>> run = heedful.back_translate("runs/demo", mono="train.en", src="train.de", tgt="train.en",
    ...     output="runs/de-en", preset="tiny", sample=True, settings={"train.max_steps": 2,
    ...     "tokenizer.vocab_size": 200, "train.processes": 1})

    Args:
        model: a run or bundle of the other direction.
        mono: text of the target language, a file or a list of texts, as for `train`.
        src: the source of the text that people translated.
        tgt: its translations by people.
        output: the run directory.
        settings: of the training, by their whole keys.
        callbacks: called with every event of the training.
        options: as for `distill`, and tag: the token before each synthetic source, or "".

    Raises:
        HeedfulError: as for `distill`.
    """
    texts = with_files({"mono": mono, "src": src, "tgt": tgt}, Path(output))
    own = {"model": model, "output": output, "settings": settings, **texts}
    given = with_files(options, Path(output))
    return _train(from_keywords(BackTranslationOptions, given, back_translate, **own), callbacks)


def _train(options: DistillOptions | BackTranslationOptions, callbacks: Sequence[Listener]) -> TrainResult:
    config = make_pairs(options)
    return train_on_pairs(options, config, command=_command(options, config), callbacks=callbacks)


def _command(options: DistillOptions | BackTranslationOptions, config: Config) -> str:
    """Return the command that does the same, for the model card, with file names instead of paths."""
    words = ["heedful", "back-translate" if options.makes_sources else "distill", *map(str, options.parts[0])]
    for group in (options, options.languages, options.runtime):
        shown = options_of(cast(type, type(group)))
        for field in fields(group):
            value, option = getattr(group, field.name), shown.get(field.name)
            if option is None or option.is_argument or value == field.default or field.name in _NOT_SHOWN:
                continue
            flag = option.flags_of(field.name)[0]
            for item in value if isinstance(value, list) else [value]:
                words += [flag] if item is True else [flag, str(item)]
    for name, value in options.search.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    settings = {key: plain(value, key) for key, value in dict(options.settings).items()}
    words += words_of_settings(config, settings)
    return shell_command(map(without_directories, words))


def train_on_pairs(
    options: DistillOptions | BackTranslationOptions,
    config: Config,
    *,
    command: str,
    callbacks: Sequence[Listener],
) -> TrainResult:
    """Train as `make_pairs` has it configured, from where an earlier start was interrupted."""
    return Training(
        config=config,
        output=options.output,
        resume=(options.output / CONFIG).exists(),
        callbacks=callbacks,
        command=command,
        extra_files=(SYNTHETIC,),
    ).run()


def make_pairs(
    options: DistillOptions | BackTranslationOptions,
    *,
    notify: Notify = say_nothing,
    display: Display = no_display,
    bar: Bar = lambda: nullcontext(lambda phase, done: None),
) -> Config:
    """Make the pairs, from where an earlier start was interrupted.

    `notify` is called with lines about the progress; `display` shows how far the translation is, and `bar`
    how far the filters are.

    Returns:
        The configuration of the training on them, in the run directory.
    """
    pairs = _Pairs(options, notify)
    if has_other_ranks():
        raise RunError(
            "several processes would translate the same text; start one, and continue its training by "
            "torchrun, as in torchrun --nproc-per-node 4 -m heedful train --resume --output RUN"
        )
    pairs.training("")  # mistakes first
    pairs.check()
    precision = pairs.translation.translator.precision_in_use  # loads the models before anything is written
    pairs.make_folder()
    with pairs.folder.claimed(SYNTHETIC):
        if options.runtime.precision == "auto":
            notify(f"precision {precision}: the fastest here")
        pairs.check_settings()
        pairs.translate(display)
        pairs.filter(bar)
    share = pairs.share_removed()
    notify(share)
    half = "sources" if options.makes_sources else "targets"
    made_by = _made_by(pairs.translation, pairs.models)
    return pairs.training(f"{half} translated from {pairs.source.name} by {made_by}; {share}")


def _made_by(translation: LineTranslation, names: Sequence[Path]) -> str:
    """Return the models, with the checksums of their weights, and their search, for the model card."""
    translator = translation.translator
    paths = [bundle.path for bundle in (translator.bundle, *translator.ensemble) if bundle.path is not None]
    named = [
        f"`{shared_name(str(name))}` (weights `{file_sha256(path / WEIGHTS_FILE)}`)"
        for name, path in zip(names, paths, strict=True)
    ]
    return f"{' and '.join(named)}, {translation.options.strategy}, {translator.precision_in_use}"


def _checksums(path: Path) -> dict[str, str]:
    """Return the checksum of a file, or the checksums of a directory's files, by name."""
    files = sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []
    return {file.name: file_sha256(file) for file in files}


class _Pairs:
    """Synthetic pairs: a text and its translations, and what the filters leave of them."""

    def __init__(self, options: DistillOptions | BackTranslationOptions, notify: Notify) -> None:
        self.options, self.notify = options, notify
        self.models, self.source, like, self.vocabulary = options.parts
        self.path = options.output / SYNTHETIC
        self.memory = self.source if holds_units(self.source) else None
        if self.memory is not None:
            self.source = self.path / "sources.txt"
        self.folder = folder_at(str(self.path))
        self.name = self._name("" if like is None or holds_units(like) else plain_name(like).suffix)
        self.translated, self.clean = self.path / self.name, self.path / CLEAN
        both = self.source, self.translated
        self.files = both[::-1] if options.makes_sources else both
        # corpora of pairs that people translated
        self.others = [] if options.tgt is None else [{"src": str(options.src), "tgt": str(options.tgt)}]
        self.filtering = Filtering(fix=self.clean, examples=0, keep=options.keep, remove=options.remove)

    def _name(self, suffix: str) -> str:
        """Return the name of the translations: an earlier start may have had another suffix."""
        made = sorted(self.path.glob("translated*")) if self.options.resume else []
        if not made:
            return f"translated{suffix}"
        return made[0].name.removesuffix(f"{UNFINISHED}.json").removesuffix(UNFINISHED)

    @cached_property
    def translation(self) -> LineTranslation:
        """The models, loaded, and their search; an output that its length limit has cut is left empty."""
        options, (first, *others) = self.options, self.models
        translator = load_translator(first, options.languages, options.runtime, ensemble=others)
        search = search_options({**options.search, "n_best": 1}, translator.bundle.config.decode)
        layout = LineLayout(only_finished=True)
        return LineTranslation(translator=translator, options=search, layout=layout)

    @cached_property
    def settings(self) -> ManifestSettings:
        """What the pairs depend on, by name."""
        pairs = {
            "the checksum of the text": file_sha256(self.source),
            "--keep": sorted(self.options.keep or ()),
            "--remove": sorted(self.options.remove or ()),
        }
        return settings_of(self.translation.translator, self.translation.options, pairs)

    def check(self) -> None:
        """Check what would otherwise be noticed after hours: files, and where the run is to be."""
        options, source = self.options, self.source
        removed_filters(self.filtering)
        for corpus in self.others:
            count_pairs(Path(corpus["src"]), Path(corpus["tgt"]))
        if options.valid_src and options.valid_tgt:
            count_pairs(options.valid_src, options.valid_tgt)
        source = self.memory or source
        if not source.is_file() or source.suffix == ".parquet":
            raise CorpusError(f"{source}: is no file of lines; give one with a sentence a line")
        if self.memory is None:
            refuse_documents([str(source)])
        if self.folder.exists():
            if options.resume:
                return
            if not options.overwrite:
                raise RunError(
                    f"{options.output}: has translations of an earlier start; give --resume to go on with "
                    "them, --overwrite to rename it and start again, or another --output"
                )
        run = RunDirectory(options.output)
        run.check(resume=False, overwrite=options.overwrite)
        if options.overwrite:
            parallel = [corpus[key] for corpus in self.others for key in ("src", "tgt")]
            inputs = (source, *self.models, *parallel, options.valid_src, options.valid_tgt)
            check_are_outside(run.path, inputs)

    def make_folder(self) -> None:
        """Make the folder of the pairs; set an old run aside for it, if that is requested."""
        options = self.options
        if options.overwrite and not (options.resume and self.folder.exists()):
            old = RunDirectory(options.output).set_aside()
            if old is not None:
                self.notify(f"the old run is in {old} now")
        self.folder.create()
        if self.memory is not None:
            text = read_parallel(self.memory, self.memory, languages=self._languages())
            with open_output(self.source) as file:
                for sentence in text.src:
                    write_line(file, sentence)

    def _languages(self) -> WantedLanguages:
        """Return the languages of the models, as far as they are known."""
        config = self.translation.translator.bundle.config
        return languages_of_pairs(config, **asdict(self.options.languages))

    def check_settings(self) -> None:
        """Check that an earlier start had the same settings; write them at the first one."""
        manifest, remedy = Manifest(self.folder), "or --overwrite to start again"
        if before := manifest.read().settings:
            check_settings(self.folder.url, before, self.settings, remedy=remedy)
        else:
            manifest.write(self.settings, {})

    def translate(self, display: Display) -> None:
        """Translate the text, unless that is done."""

        def work() -> None:
            self.notify(f"translating {self.source}")
            with open_input(self.source) as opened:
                self.translation.write(
                    Lines(*opened), self.translated, resume=True, notify=self.notify, display=display
                )

        self._make(self.name, self.source, work)

    def filter(self, bar: Bar) -> None:
        """Filter the pairs, unless that is done."""
        options = self.options

        def work() -> None:
            self.notify(f"filtering {self.files[0]} and {self.files[1]}")
            shutil.rmtree(self.clean, ignore_errors=True)
            held_out = HeldOutText(valid_src=options.valid_src, valid_tgt=options.valid_tgt)
            with bar() as show:
                inspect_text(self.files, held_out=held_out, filtering=self.filtering, on_progress=show)

        self._make(CLEAN, self.translated, work)

    def _make(self, part: str, source: Path, work: Callable[[], None]) -> None:
        """Make a part, and record it, unless the record says that it is done."""
        manifest, made, path = Manifest(self.folder), file_sha256(source), self.path / part
        if not manifest.read().has(part, source=made, output=_checksums(path)):
            work()
            manifest.add(part, {"source": made, "output": _checksums(path)}, self.settings)

    def share_removed(self) -> str:
        """Return how many pairs the filters have removed, in words."""
        removed = (count_lines(self.clean / REMOVED) or 1) - 1  # without the heading
        share = f"{removed:,} of {count_lines(self.translated):,} pairs removed by filters"
        with open_input(self.source) as (sources, _), open_input(self.translated) as (outputs, _):
            both = zip(sources, outputs, strict=True)
            num_cut = sum(bool(text.strip()) and not output.strip() for text, output in both)
        cut = f", of them {num_cut:,} whose translation ended at the length limit"
        return share + (cut if num_cut else "")

    def training(self, provenance: str) -> Config:
        """Return the configuration of the training; the synthetic corpus is its last one.

        `provenance` says where the synthetic pairs are from, for the model card.
        """
        options, suffixes = self.options, PairFiles(self.files).suffixes
        corpora: list[dict[str, Any]] = [
            {**corpus, "weight": options.weight and 1.0} for corpus in self.others
        ]
        src, tgt = (str(self.clean / f"train{suffix}") for suffix in suffixes)
        synthetic = {"src": src, "tgt": tgt, "tag": options.tag or None, "weight": options.weight}
        corpora.append({**synthetic, "provenance": provenance})
        src_language, tgt_language = (None, None) if self.memory is None else self._languages()
        text = {
            "languages.src": src_language,
            "languages.tgt": tgt_language,
            "data.valid_src": options.valid_src,
            "data.valid_tgt": options.valid_tgt,
            "tokenizer.bundle": self.vocabulary,
        }
        overrides = {key: str(value) for key, value in text.items() if value} | dict(options.settings)
        overrides = {"data.corpora": corpora, **overrides}
        config = load_config(options.config, preset=options.preset, overrides=overrides)
        name = config.tokenizer.bundle
        return config if name is None else with_vocabulary(config, name)[0]
