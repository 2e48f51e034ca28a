"""`heedful distill` and `heedful back-translate`: translate text in bulk, filter the pairs, train on them.

    RUN/synthetic/
      origin.json        what the text is made with; --resume with anything else is refused
      translated.EXT     the translations, line by line (`bulk/resumable.py`)
      clean/             the pairs without the faulty ones, and removed.tsv, as `heedful inspect --fix` has it
    RUN/...              the run of `heedful train` on these pairs

Each part is complete or absent, so --resume continues whatever was interrupted. No part is computed here.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import SamplingOverrides, SearchOverrides
from heedful.cli.streams import bar
from heedful.data.streams import count_lines, count_pairs, open_input
from heedful.errors import CorpusError, RunError
from heedful.settings.options import (
    OUTPUT,
    PRESET,
    SAMPLING,
    TEXT,
    AsJson,
    Filtering,
    HeldOutText,
    Keep,
    Languages,
    Option,
    Overwrite,
    Remove,
    Runtime,
    ValidSrc,
    ValidTgt,
    settings_like,
)

if TYPE_CHECKING:
    from heedful.settings.run import Config
    from heedful.verbs.translate import Translate

SYNTHETIC, ORIGIN, CLEAN, REMOVED = "synthetic", "origin.json", "clean", "removed.tsv"
_FORMAT_VERSION = 1

Corpus = Mapping[str, Any]  # an entry of data.corpora


@dataclass(frozen=True, kw_only=True)
class SyntheticTraining:
    """The options of a training on translations of a model."""

    output: Annotated[
        Path, Option("The run directory; the translations are in its folder synthetic.", flags=OUTPUT)
    ]
    config: Annotated[
        Path | None, Option("A recipe of the training, or a run's config.toml.", metavar="CONFIG.toml")
    ] = None
    preset: Annotated[str | None, PRESET] = None
    settings: Annotated[list[str] | None, settings_like("Of the training, such as train.max_minutes=20.")] = (
        None
    )
    resume: Annotated[
        bool, Option("Go on with the translation or training that was interrupted, if there was one.")
    ] = False
    overwrite: Overwrite = False
    as_json: AsJson = False
    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    weight: Annotated[
        float | None,
        Option(
            "Synthetic pairs for each pair that people translated.",
            TEXT,
            above=0,
            default="by size",
        ),
    ] = None
    keep: Keep = None
    remove: Remove = None
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class Distill(SyntheticTraining):
    """Train a small model on the translations of a larger one, or of an ensemble.

    The teachers translate the source text, faulty pairs are removed, and the student is trained on the others
    (sequence-level knowledge distillation, Kim and Rush, 2016). It has the vocabulary of the first teacher,
    unless tokenizer.bundle=false is set. Options of the search and of computing are those of the translation.
    """

    teachers: Annotated[
        list[Path],
        Option(
            "Runs, bundles, or USER/MODEL[@REVISION] on the hub; several translate together.",
            metavar="TEACHER...",
            is_argument=True,
        ),
    ]
    src: Annotated[Path, Option("Source text; .gz too.", TEXT)]
    tgt: Annotated[
        Path | None, Option("Its translations by people, to train on them too; parallel line by line.", TEXT)
    ] = None


@dataclass(frozen=True, kw_only=True)
class BackTranslate(SyntheticTraining):
    """Train on parallel text, and on text of the target language with translations of a model as sources.

    The model translates from the target language into the source language (Sennrich et al., 2016). Each of
    its translations gets a tag as its first token (Caswell et al., 2019). --sample is often better than beam
    search (Edunov et al., 2018). Options of the search and of computing are those of the translation.
    """

    model: Annotated[
        Path,
        Option(
            "A model of the other direction: a run, a bundle, or USER/MODEL[@REVISION] on the hub.",
            metavar="REVERSE_MODEL",
            is_argument=True,
        ),
    ]
    mono: Annotated[Path, Option("Text of the target language; .gz too.", TEXT)]
    src: Annotated[Path, Option("Source of the text that people translated; .gz too.", TEXT)]
    tgt: Annotated[Path, Option("Its translations by people, parallel line by line.", TEXT)]
    tag: Annotated[str, Option("Token before each synthetic source; '' for none.", TEXT)] = "<BT>"
    sample: Annotated[bool, Option("Sample each next token instead of searching.", SAMPLING)] = False
    sampling: SamplingOverrides = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """How a text becomes a corpus of synthetic pairs: translated, and without the faulty ones.

    Attributes:
        task: the options of both commands.
        translation: what `heedful translate` is asked for.
        makes_sources: whether the translations are the sources of the pairs.
        tag: the token before each of these sources.
        others: the corpora that the training has besides, of pairs that people translated.
    """

    task: SyntheticTraining
    translation: "Translate"
    makes_sources: bool = False
    tag: str | None = None
    others: Sequence[Corpus] = ()

    @property
    def text(self) -> Path:
        """The text to translate."""
        return Path(str(self.translation.source))

    @property
    def translated(self) -> Path:
        """The file of its translations."""
        return Path(str(self.translation.output))

    @property
    def files(self) -> tuple[Path, Path]:
        """Sources and targets before the filters."""
        pair = self.text, self.translated
        return pair[::-1] if self.makes_sources else pair

    @property
    def clean(self) -> Path:
        """The directory of the pairs that the filters leave."""
        return self.translated.parent / CLEAN

    def corpora(self, provenance: str) -> list[Corpus]:
        """Return the corpora of the training, as `data.corpora`; the synthetic one is the last."""
        from heedful.data.files import PairFiles

        src, tgt = (str(self.clean / f"train{suffix}") for suffix in PairFiles(self.files).suffixes)
        corpus = {"src": src, "tgt": tgt, "tag": self.tag, "provenance": provenance}
        weight = self.task.weight
        return [*({**each, "weight": weight and 1.0} for each in self.others), {**corpus, "weight": weight}]

    def check(self) -> None:
        """Check what would otherwise be noticed after hours: files, and where the run is to be.

        Raises:
            RunError: there is a run already, or files are in a directory that is renamed.
            CorpusError: texts that are missing, or not parallel.
        """
        from heedful.runs.directory import RunDirectory

        task, output = self.task, self.task.output
        for each in self.others:
            count_pairs(Path(each["src"]), Path(each["tgt"]))
        if task.valid_src and task.valid_tgt:
            count_pairs(task.valid_src, task.valid_tgt)
        if not self.text.is_file() or self.text.suffix == ".parquet":
            raise CorpusError(f"{self.text}: is no file of lines; give one with a sentence a line")
        started = (output / SYNTHETIC).exists()
        if started and not (task.resume or task.overwrite):
            raise RunError(
                f"{output}: has translations of an earlier start; give --resume to go on with them, "
                "--overwrite to rename it and start again, or another --output"
            )
        if task.resume and started:
            return
        run = RunDirectory(output)
        run.check(resume=False, overwrite=task.overwrite)
        if task.overwrite:
            self._check_inputs_are_outside()
            if (old := run.set_aside()) is not None:
                print(f"the old run is in {old} now", file=sys.stderr)

    def _check_inputs_are_outside(self) -> None:
        translation, task = self.translation, self.task
        parallel = [Path(each[key]) for each in self.others for key in ("src", "tgt")]
        models = [translation.run, *(translation.ensemble or ())]
        for path in (self.text, *models, *parallel, task.valid_src, task.valid_tgt):
            if path is not None and path.resolve().is_relative_to(task.output.resolve()):
                raise RunError(
                    f"{path}: is in {task.output}, which --overwrite would rename; give another --output"
                )

    def describe(self) -> str:
        """Write what the pairs depend on, or compare it with what an earlier start has written.

        Returns:
            The models, with the checksums of their weights, and their search, for the model card.

        Raises:
            RunError: the earlier start had something else, or its file is damaged.
            HeedfulError: models that are not usable, or cannot translate together; impossible options.
        """
        from heedful.bulk.resumable import settings_of
        from heedful.runs.card import shared_name
        from heedful.storage.bundle import WEIGHTS_FILE, file_sha256
        from heedful.verbs.translate import load

        translator, options, _ = load(self.translation)
        pairs = {
            "the checksum of the text": file_sha256(self.text),
            "--keep": sorted(self.task.keep or ()),
            "--remove": sorted(self.task.remove or ()),
        }
        _check_origin(self.translated.parent / ORIGIN, settings_of(translator, options, pairs))
        names = [self.translation.run, *(self.translation.ensemble or ())]
        bundles = [translator.bundle, *translator.ensemble]
        paths = [each.path for each in bundles if each.path is not None]
        models = [
            f"`{shared_name(str(name))}` (weights `{file_sha256(path / WEIGHTS_FILE)}`)"
            for name, path in zip(names, paths, strict=True)
        ]
        return f"{' and '.join(models)}, {options.strategy}, {translator.precision_in_use}"

    def make(self) -> str:
        """Translate and filter, as far as that is not done; return what the filters have removed."""
        from heedful.data.inspection import inspect_text
        from heedful.verbs.translate import command

        if not self.translated.exists():
            print(f"translating {self.text}", file=sys.stderr)
            command(self.translation)
        task = self.task
        if not self.clean.exists():
            print(f"filtering {self.files[0]} and {self.files[1]}", file=sys.stderr)
            held_out = HeldOutText(valid_src=task.valid_src, valid_tgt=task.valid_tgt)
            filtering = Filtering(fix=self.clean, examples=0, keep=task.keep, remove=task.remove)
            with bar() as show:
                inspect_text(self.files, held_out=held_out, filtering=filtering, on_progress=show)
        removed = (count_lines(self.clean / REMOVED) or 1) - 1  # without the heading
        share = f"{removed:,} of {count_lines(self.translated):,} pairs removed by filters"
        if num_cut := _num_without_translation(self.text, self.translated):
            share += f", of them {num_cut:,} whose translation ended at the length limit"
        print(share, file=sys.stderr)
        return share


def _num_without_translation(text: Path, translated: Path) -> int:
    """Return the number of lines with a text and no translation: a cut one is written as an empty line."""
    with open_input(text) as (sources, _), open_input(translated) as (outputs, _):
        return sum(
            bool(source.strip()) and not output.strip()
            for source, output in zip(sources, outputs, strict=True)
        )


def _check_origin(file: Path, settings: Mapping[str, str]) -> None:
    """Write the settings of the pairs, or compare them with those in the file."""
    from heedful.bulk.resumable import check_settings
    from heedful.runtime.durable import put_file_in_place
    from heedful.settings.parsing import parse_json

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


def _config(synthesis: Synthesis, provenance: str, *, vocabulary: Path | None) -> "Config":
    """Return the settings of the training, with the vocabulary of another model if there is one."""
    from heedful.runs.prepare import with_vocabulary
    from heedful.settings.loading import load_config, parse_override

    task = synthesis.task
    text = {"valid_src": task.valid_src, "valid_tgt": task.valid_tgt, "tokenizer": vocabulary}
    keys = {"tokenizer": "tokenizer.bundle"}
    overrides: list[tuple[str, Any]] = [("data.corpora", synthesis.corpora(provenance))]
    overrides += [(keys.get(key, f"data.{key}"), str(value)) for key, value in text.items() if value]
    overrides += [parse_override(setting) for setting in task.settings or []]
    config = load_config(task.config, preset=task.preset, overrides=overrides)
    name = config.tokenizer.bundle
    return config if name is None else with_vocabulary(config, name)[0]


def train_on(synthesis: Synthesis, *, vocabulary: Path | None = None) -> None:
    """Make the pairs and train on them, from where an earlier start was interrupted.

    Args:
        synthesis: how the pairs are made.
        vocabulary: the model whose vocabulary the training takes; none: a new one.

    Raises:
        HeedfulError: whatever `translate`, `inspect` and `train` cannot do.
    """
    from heedful.bulk.resumable import locked
    from heedful.cli.progress import training_display
    from heedful.runs.directory import CONFIG
    from heedful.runs.train import train
    from heedful.verbs.train import command_line, print_result

    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        raise RunError(
            "several processes would translate the same text; start one, and continue its training by "
            "torchrun, as in torchrun --nproc-per-node 4 -m heedful train --resume --output RUN"
        )
    _config(synthesis, "", vocabulary=vocabulary)  # mistakes first
    synthesis.check()
    output = synthesis.task.output
    (output / SYNTHETIC).mkdir(parents=True, exist_ok=True)
    with locked(output / SYNTHETIC / ORIGIN) as is_ours:
        if not is_ours:
            raise RunError(
                f"{output}: another process is working there; wait for it, or give another --output"
            )
        made_by = synthesis.describe()
        share = synthesis.make()
        half = "sources" if synthesis.makes_sources else "targets"
        provenance = f"{half} translated from {synthesis.text.name} by {made_by}; {share}"
        config = _config(synthesis, provenance, vocabulary=vocabulary)
        with training_display() as display:
            result = train(
                config,
                output,
                resume=(output / CONFIG).exists(),
                command=command_line().replace(" --resume", ""),  # which changes nothing in the model
                beside=(SYNTHETIC,),
                callbacks=[display],
            )
    print_result(result, as_json=synthesis.task.as_json)


def _translation(
    task: SyntheticTraining, models: Sequence[Path], text: Path, *, like: Path | None
) -> "Translate":
    """Return what `heedful translate` is asked for; the output's name ends as that of a file like it."""
    from heedful.data.files import plain_name
    from heedful.verbs.translate import Translate

    suffix = "" if like is None else plain_name(like).suffix
    return Translate(
        run=models[0],
        ensemble=list(models[1:]),
        source=str(text),
        output=str(task.output / SYNTHETIC / f"translated{suffix}"),
        resume=True,
        only_finished=True,
        languages=task.languages,
        search=task.search,
        runtime=task.runtime,
    )


def distill(task: Distill) -> None:
    """Translate the source text by the teachers, and train the student on the pairs."""
    if task.weight is not None and task.tgt is None:
        raise typer.BadParameter("--weight needs --tgt, the pairs of weight 1")
    others = [] if task.tgt is None else [{"src": str(task.src), "tgt": str(task.tgt)}]
    translation = _translation(task, task.teachers, task.src, like=task.tgt or task.valid_tgt)
    train_on(Synthesis(task=task, translation=translation, others=others), vocabulary=task.teachers[0])


def back_translate(task: BackTranslate) -> None:
    """Translate text of the target language into the source language, and train on all pairs."""
    translation = replace(
        _translation(task, [task.model], task.mono, like=task.src), sample=task.sample, sampling=task.sampling
    )
    others = [{"src": str(task.src), "tgt": str(task.tgt)}]
    train_on(
        Synthesis(task=task, translation=translation, makes_sources=True, tag=task.tag or None, others=others)
    )


COMMANDS = {"distill": distill, "back-translate": back_translate}
