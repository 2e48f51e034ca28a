"""Synthetic text: translate text in bulk, filter the pairs, and configure a training on them.

    RUN/synthetic/
      origin.json        what the text is made with; a later start with anything else is refused
      translated.EXT     the translations, line by line (`bulk/lines.py`)
      clean/             the pairs without the faulty ones, and removed.tsv, as `heedful inspect --fix` has it
    RUN/...              the run of the training on these pairs

Each part is complete or absent, so a later start continues what was interrupted.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from heedful.bulk.lines import LineLayout, LineTranslation
from heedful.bulk.resumable import Display, check_settings, locked, no_display, settings_of
from heedful.data.files import PairFiles, plain_name
from heedful.data.inspection import inspect_text, removed_filters
from heedful.data.streams import Lines, count_lines, count_pairs, open_input
from heedful.decoding.options import search_options
from heedful.documents.formats import refuse_documents
from heedful.errors import CorpusError, RunError
from heedful.runs.card import shared_name, shell_command, without_directories
from heedful.runs.directory import CONFIG, RunDirectory, check_are_outside
from heedful.runs.loading import load_translator, options_from
from heedful.runs.notices import Listener
from heedful.runs.options import BackTranslationOptions, DistillOptions
from heedful.runs.prepare import with_vocabulary
from heedful.runs.train import TrainingExtras, TrainResult, train
from heedful.runtime.durable import put_file_in_place
from heedful.runtime.workers import has_other_ranks
from heedful.settings.arguments import checked
from heedful.settings.loading import load_config, plain
from heedful.settings.options import Filtering, HeldOutText, options_of
from heedful.settings.parsing import parse_json
from heedful.settings.plugins import plugin_options
from heedful.settings.run import Config
from heedful.storage.description import WEIGHTS_FILE, file_sha256

SYNTHETIC, ORIGIN, CLEAN, REMOVED = "synthetic", "origin.json", "clean", "removed.tsv"
_FORMAT_VERSION = 1

Bar = Callable[[], AbstractContextManager[Callable[[str, float], None]]]  # shows a phase and its progress


@dataclass(frozen=True)
class Synthesis:
    """How a text becomes a corpus of synthetic pairs: translated, and without the faulty ones.

    Attributes:
        options: of the task.
    """

    options: DistillOptions | BackTranslationOptions

    @property
    def folder(self) -> Path:
        """The directory of the synthetic text."""
        return self.options.output / SYNTHETIC

    @property
    def translated(self) -> Path:
        """The file of the translations."""
        _, _, like, _ = self.options.parts
        suffix = "" if like is None else plain_name(like).suffix
        return self.folder / f"translated{suffix}"

    @property
    def files(self) -> tuple[Path, Path]:
        """Sources and targets before the filters."""
        _, text, _, _ = self.options.parts
        pair = text, self.translated
        return pair[::-1] if self.options.makes_sources else pair

    @property
    def others(self) -> list[dict[str, Any]]:
        """The corpora that the training has besides, of pairs that people translated."""
        options = self.options
        return [] if options.tgt is None else [{"src": str(options.src), "tgt": str(options.tgt)}]

    @property
    def clean(self) -> Path:
        """The directory of the pairs that the filters leave."""
        return self.folder / CLEAN

    def training(self, provenance: str) -> Config:
        """Return the configuration of the training; the synthetic corpus is its last one.

        Args:
            provenance: where the synthetic pairs are from, for the model card.

        Raises:
            ConfigError: settings that do not exist or cannot be.
        """
        options = self.options
        *_, vocabulary = options.parts
        src, tgt = (str(self.clean / f"train{suffix}") for suffix in PairFiles(self.files).suffixes)
        corpus = {
            "src": src,
            "tgt": tgt,
            "tag": options.tag or None,
            "provenance": provenance,
            "weight": options.weight,
        }
        corpora = [*({**each, "weight": options.weight and 1.0} for each in self.others), corpus]
        overrides: list[tuple[str, Any]] = [("data.corpora", corpora)]
        text = {
            "data.valid_src": options.valid_src,
            "data.valid_tgt": options.valid_tgt,
            "tokenizer.bundle": vocabulary,
        }
        overrides += [(key, str(value)) for key, value in text.items() if value]
        config = load_config(options.config, preset=options.preset, overrides=[*overrides, *options.settings])
        name = config.tokenizer.bundle
        return config if name is None else with_vocabulary(config, name)[0]

    @cached_property
    def translation(self) -> LineTranslation:
        """The models, loaded, and their search; an output that its length limit has cut is left empty.

        Raises:
            HeedfulError: models that are not usable, or cannot translate together; impossible options.
        """
        options = self.options
        (first, *others), *_ = options.parts
        translator = load_translator(first, options.languages, options.runtime, ensemble=others)
        search = search_options({**options.search, "n_best": 1}, translator.bundle.config.decode)
        layout = LineLayout(only_finished=True)
        return LineTranslation(translator=translator, options=search, layout=layout)


@checked
def distill(
    teachers: str | Path | Sequence[str | Path],
    *,
    src: str | Path,
    output: str | Path,
    tgt: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Listener] = (),
    **options: Any,  # noqa: ANN401
) -> TrainResult:
    """Train a small model on the translations of a larger one, or of an ensemble: `heedful distill`.

    >>> student = heedful.distill("runs/demo", src="train.en", output="runs/student", preset="tiny",
    ...     beam_size=1, settings={"train.max_steps": 2, "train.processes": 1})
    >>> translator = heedful.Translator.load(student.best)

    The translations are in the folder synthetic of the run directory. With `resume=True`, a later call goes
    on where an earlier one was interrupted.

    Args:
        teachers: runs or bundles; several translate together.
        src: the source text, a file.
        output: the run directory.
        tgt: its translations by people, to train on them too.
        settings: of the training, by their whole keys.
        callbacks: called with every event of the training.
        options: of the command, by the same names: preset, config, valid_src, valid_tgt, weight, keep,
            remove, resume, overwrite; of the translation, such as beam_size=1 or precision="bf16".

    Raises:
        CorpusError: texts that are missing or not parallel.
        InputError: an option that does not exist, or with a value that cannot be.
        RunError: there is something else in the run directory, or another process works there.
        HeedfulError: models or settings that cannot be used: see `heedful.errors`.
    """
    own = {"teachers": teachers, "src": src, "tgt": tgt, "output": output}
    return _from_python(DistillOptions, options, own, settings, callbacks)


@checked
def back_translate(
    model: str | Path,
    *,
    mono: str | Path,
    src: str | Path,
    tgt: str | Path,
    output: str | Path,
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Listener] = (),
    **options: Any,  # noqa: ANN401
) -> TrainResult:
    """Train on pairs, and on text with a model's translations as sources: `heedful back-translate`.

    >>> run = heedful.back_translate("runs/demo", mono="train.en", src="train.de", tgt="train.en",
    ...     output="runs/de-en", preset="tiny", sample=True, settings={"train.max_steps": 2,
    ...     "tokenizer.vocab_size": 200, "train.processes": 1})

    Args:
        model: a run or bundle of the other direction.
        mono: text of the target language, a file.
        src: the source of the text that people translated.
        tgt: its translations by people.
        output: the run directory.
        settings: of the training, by their whole keys.
        callbacks: called with every event of the training.
        options: as for `distill`, and tag: the token before each synthetic source, or "".

    Raises:
        HeedfulError: as for `distill`.
    """
    own = {"model": model, "mono": mono, "src": src, "tgt": tgt, "output": output}
    return _from_python(BackTranslationOptions, options, own, settings, callbacks)


def _from_python(
    kind: type[DistillOptions | BackTranslationOptions],
    keywords: Mapping[str, Any],
    own: Mapping[str, Any],
    settings: Mapping[str, Any] | None,
    callbacks: Sequence[Listener],
) -> TrainResult:
    pairs = [(key, plain(value, key)) for key, value in (settings or {}).items()]
    options = options_from(kind, keywords, settings=pairs, **own)
    config = make_pairs(options)
    return train_on_pairs(options, config, command=_command(options, config), callbacks=callbacks)


def _command(options: DistillOptions | BackTranslationOptions, config: Config) -> str:
    """Return the command that does the same, for the model card; of each file its name alone."""
    words = ["heedful", "back-translate" if options.makes_sources else "distill", *map(str, options.parts[0])]
    for group in (options, options.languages, options.runtime):
        shown = options_of(cast(type, type(group)))
        for each in fields(group):
            value = getattr(group, each.name)
            option = None if each.name in ("resume", "settings") else shown.get(each.name)
            if option is None or option.is_argument or value == each.default:
                continue
            for one in value if isinstance(value, list) else [value]:
                words += [option.flags_of(each.name)[0], *([] if one is True else [str(one)])]
    for name, value in options.search.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    words += plugin_options(name for _, name in config.plugged)
    for key, value in options.settings:
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shell_command(map(without_directories, words))


def train_on_pairs(
    options: DistillOptions | BackTranslationOptions,
    config: Config,
    *,
    command: str,
    callbacks: Sequence[Listener],
) -> TrainResult:
    """Train as `make_pairs` has it configured, from where an earlier start was interrupted.

    Raises:
        HeedfulError: as for `train`.
    """
    return train(
        config,
        options.output,
        resume=(options.output / CONFIG).exists(),
        callbacks=callbacks,
        extras=TrainingExtras(command=command, extra_files=(SYNTHETIC,)),
    )


def make_pairs(
    options: DistillOptions | BackTranslationOptions,
    *,
    notify: Callable[[str], None] = lambda message: None,
    display: Display = no_display,
    bar: Bar = lambda: nullcontext(lambda phase, done: None),
) -> Config:
    """Make the pairs, from where an earlier start was interrupted.

    Args:
        options: of the task.
        notify: called with lines about the progress.
        display: of the progress of the translation.
        bar: of the progress of the filters.

    Returns:
        The configuration of the training on them, in the run directory.

    Raises:
        RunError: there is something in the run directory, it was made with something else, another process
            works there, or this is one of several processes.
        CorpusError: texts that are missing, or not parallel.
        HeedfulError: models or settings that cannot be used.
    """
    synthesis, (_, source, *_) = Synthesis(options), options.parts
    if has_other_ranks():
        raise RunError(
            "several processes would translate the same text; start one, and continue its training by "
            "torchrun, as in torchrun --nproc-per-node 4 -m heedful train --resume --output RUN"
        )
    synthesis.training("")  # mistakes first
    _check(synthesis, notify)
    synthesis.folder.mkdir(parents=True, exist_ok=True)
    with locked(synthesis.folder / ORIGIN) as is_ours:
        if not is_ours:
            raise RunError(
                f"{options.output}: another process is working there; wait for it, or give another --output"
            )
        if options.runtime.precision == "auto":
            notify(f"precision {synthesis.translation.translator.precision_in_use}: the fastest here")
        made_by = _describe(synthesis)
        if not synthesis.translated.exists():
            notify(f"translating {source}")
            with open_input(source) as opened:
                synthesis.translation.write(
                    Lines(*opened), synthesis.translated, resume=True, notify=notify, display=display
                )
        share = _filter(synthesis, notify, bar)
    half = "sources" if options.makes_sources else "targets"
    return synthesis.training(f"{half} translated from {source.name} by {made_by}; {share}")


def _check(synthesis: Synthesis, notify: Callable[[str], None]) -> None:
    """Check what would otherwise be noticed after hours: files, and where the run is to be."""
    options = synthesis.options
    _, source, *_ = options.parts
    removed_filters(Filtering(keep=options.keep, remove=options.remove))
    for each in synthesis.others:
        count_pairs(Path(each["src"]), Path(each["tgt"]))
    if options.valid_src and options.valid_tgt:
        count_pairs(options.valid_src, options.valid_tgt)
    if not source.is_file() or source.suffix == ".parquet":
        raise CorpusError(f"{source}: is no file of lines; give one with a sentence a line")
    refuse_documents([str(source)])
    if synthesis.folder.exists():
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
        models, source, *_ = options.parts
        parallel = [each[key] for each in synthesis.others for key in ("src", "tgt")]
        check_are_outside(run.path, (source, *models, *parallel, options.valid_src, options.valid_tgt))
        if (old := run.set_aside()) is not None:
            notify(f"the old run is in {old} now")


def _describe(synthesis: Synthesis) -> str:
    """Write what the pairs depend on, or compare it with what an earlier start has written.

    Returns:
        The models, with the checksums of their weights, and their search, for the model card.

    Raises:
        RunError: the earlier start had something else, or its file is damaged.
    """
    options = synthesis.options
    models, source, *_ = options.parts
    translator, search = synthesis.translation.translator, synthesis.translation.options
    pairs = {
        "the checksum of the text": file_sha256(source),
        "--keep": sorted(options.keep or ()),
        "--remove": sorted(options.remove or ()),
    }
    _check_origin(synthesis.folder / ORIGIN, settings_of(translator, search, pairs))
    bundles = [translator.bundle, *translator.ensemble]
    paths = [each.path for each in bundles if each.path is not None]
    named = [
        f"`{shared_name(str(name))}` (weights `{file_sha256(path / WEIGHTS_FILE)}`)"
        for name, path in zip(models, paths, strict=True)
    ]
    return f"{' and '.join(named)}, {search.strategy}, {translator.precision_in_use}"


def _check_origin(file: Path, settings: Mapping[str, str]) -> None:
    """Write the settings of the pairs, or compare them with those in the file."""
    if not file.exists():
        entry = {"format_version": _FORMAT_VERSION, "settings": dict(settings)}
        put_file_in_place(file, json.dumps(entry, indent=1, ensure_ascii=False) + "\n")
        return
    try:
        match parse_json(file.read_bytes()):
            case {"format_version": 1, "settings": dict(before)}:
                check_settings(str(file.parent), before, settings, remedy="or --overwrite to start again")
                return
    except ValueError:
        pass
    raise RunError(f"{file}: damaged, or of a newer heedful; give --overwrite to start again")


def _filter(synthesis: Synthesis, notify: Callable[[str], None], bar: Bar) -> str:
    """Filter the pairs, unless that is done; return how many were removed, in words."""
    options = synthesis.options
    _, source, *_ = options.parts
    src, tgt = synthesis.files
    if not synthesis.clean.exists():
        notify(f"filtering {src} and {tgt}")
        held_out = HeldOutText(valid_src=options.valid_src, valid_tgt=options.valid_tgt)
        filtering = Filtering(fix=synthesis.clean, examples=0, keep=options.keep, remove=options.remove)
        with bar() as show:
            inspect_text(synthesis.files, held_out=held_out, filtering=filtering, on_progress=show)
    removed = (count_lines(synthesis.clean / REMOVED) or 1) - 1  # without the heading
    share = f"{removed:,} of {count_lines(synthesis.translated):,} pairs removed by filters"
    if num_cut := _num_without_translation(source, synthesis.translated):
        share += f", of them {num_cut:,} whose translation ended at the length limit"
    notify(share)
    return share


def _num_without_translation(text: Path, translated: Path) -> int:
    """Return the number of lines with a text and no translation: a cut one is written as an empty line."""
    with open_input(text) as (sources, _), open_input(translated) as (outputs, _):
        return sum(
            bool(source.strip()) and not output.strip()
            for source, output in zip(sources, outputs, strict=True)
        )
