"""Synthetic text: translate text in bulk, filter the pairs, and configure a training on them.

    RUN/synthetic/
      origin.json        what the text is made with; a later start with anything else is refused
      translated.EXT     the translations, line by line (`bulk/lines.py`)
      clean/             the pairs without the faulty ones, and removed.tsv, as `heedful inspect --fix` has it
    RUN/...              the run of the training on these pairs

Each part is complete or absent, so a later start continues what was interrupted.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.bulk.lines import LineLayout, LineTranslation
from heedful.bulk.resumable import Display, check_settings, locked, no_display, settings_of
from heedful.data.files import PairFiles, plain_name
from heedful.data.inspection import inspect_text
from heedful.data.streams import Lines, count_lines, count_pairs, open_input
from heedful.decoding.options import search_options
from heedful.documents.formats import refuse_documents
from heedful.errors import CorpusError, RunError
from heedful.runs.card import shared_name
from heedful.runs.directory import RunDirectory
from heedful.runs.loading import load_translator
from heedful.runs.prepare import with_vocabulary
from heedful.runtime.durable import put_file_in_place
from heedful.settings.loading import load_config
from heedful.settings.options import Filtering, HeldOutText, Languages, Runtime
from heedful.settings.parsing import parse_json
from heedful.settings.run import Config
from heedful.storage.bundle import WEIGHTS_FILE, file_sha256

SYNTHETIC, ORIGIN, CLEAN, REMOVED = "synthetic", "origin.json", "clean", "removed.tsv"
_FORMAT_VERSION = 1

Corpus = Mapping[str, Any]  # an entry of data.corpora
Bar = Callable[[], AbstractContextManager[Callable[[str, float], None]]]  # shows a phase and its progress


def _no_bar() -> AbstractContextManager[Callable[[str, float], None]]:
    return nullcontext(lambda phase, done: None)


@dataclass(frozen=True, kw_only=True)
class Synthesis:
    """How a text becomes a corpus of synthetic pairs: translated, and without the faulty ones.

    Attributes:
        models: runs, bundles or models of the hub; several translate together.
        text: the file of lines to translate.
        output: the run directory; the pairs are in its folder synthetic.
        makes_sources: whether the translations are the sources of the pairs.
        tag: the token before each of these sources.
        others: the corpora that the training has besides, of pairs that people translated.
        weight: synthetic pairs for each pair of the others; None: by size.
        vocabulary: the model whose vocabulary the training takes; None: a new one.
        like: a file of the language of the translations; their file's name ends as its name does.
        valid_src: the source side of the validation text.
        valid_tgt: its target side.
        keep: filters whose pairs stay when the faulty ones are removed.
        remove: filters whose pairs are removed besides.
        languages: the languages of models that have many.
        search: changes of the first model's search, as for `heedful.decoding.options.search_options`.
        runtime: how to compute the translations.
        config: a recipe of the training.
        preset: the preset of the training.
        settings: other settings of the training, by their keys.
    """

    models: Sequence[Path]
    text: Path
    output: Path
    makes_sources: bool = False
    tag: str | None = None
    others: Sequence[Corpus] = ()
    weight: float | None = None
    vocabulary: Path | None = None
    like: Path | None = None
    valid_src: Path | None = None
    valid_tgt: Path | None = None
    keep: list[str] | None = None
    remove: list[str] | None = None
    languages: Languages = field(default_factory=Languages)
    search: Mapping[str, Any] = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)
    config: Path | None = None
    preset: str | None = None
    settings: Sequence[tuple[str, Any]] = ()

    @property
    def folder(self) -> Path:
        """The directory of the synthetic text."""
        return self.output / SYNTHETIC

    @property
    def translated(self) -> Path:
        """The file of the translations."""
        suffix = "" if self.like is None else plain_name(self.like).suffix
        return self.folder / f"translated{suffix}"

    @property
    def files(self) -> tuple[Path, Path]:
        """Sources and targets before the filters."""
        pair = self.text, self.translated
        return pair[::-1] if self.makes_sources else pair

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
        src, tgt = (str(self.clean / f"train{suffix}") for suffix in PairFiles(self.files).suffixes)
        corpus = {"src": src, "tgt": tgt, "tag": self.tag, "provenance": provenance, "weight": self.weight}
        corpora = [*({**each, "weight": self.weight and 1.0} for each in self.others), corpus]
        overrides: list[tuple[str, Any]] = [("data.corpora", corpora)]
        text = {
            "data.valid_src": self.valid_src,
            "data.valid_tgt": self.valid_tgt,
            "tokenizer.bundle": self.vocabulary,
        }
        overrides += [(key, str(value)) for key, value in text.items() if value]
        config = load_config(self.config, preset=self.preset, overrides=[*overrides, *self.settings])
        name = config.tokenizer.bundle
        return config if name is None else with_vocabulary(config, name)[0]

    @cached_property
    def translation(self) -> LineTranslation:
        """The models, loaded, and their search; an output that its length limit has cut is left empty.

        Raises:
            HeedfulError: models that are not usable, or cannot translate together; impossible options.
        """
        first, *others = self.models
        translator = load_translator(first, self.languages, self.runtime, ensemble=others)
        options = search_options({**self.search, "n_best": 1}, translator.bundle.config.decode)
        layout = LineLayout(only_finished=True)
        return LineTranslation(translator=translator, options=options, layout=layout)


def make_pairs(
    synthesis: Synthesis,
    *,
    resume: bool = False,
    overwrite: bool = False,
    notify: Callable[[str], None] = lambda message: None,
    display: Display = no_display,
    bar: Bar = _no_bar,
) -> Config:
    """Make the pairs, from where an earlier start was interrupted.

    Args:
        synthesis: how the pairs are made.
        resume: go on with what an earlier start has made, if there was one.
        overwrite: rename what is in the run directory to NAME.old-N, and start anew.
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
    if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1"):
        raise RunError(
            "several processes would translate the same text; start one, and continue its training by "
            "torchrun, as in torchrun --nproc-per-node 4 -m heedful train --resume --output RUN"
        )
    synthesis.training("")  # mistakes first
    _check(synthesis, resume=resume, overwrite=overwrite, notify=notify)
    synthesis.folder.mkdir(parents=True, exist_ok=True)
    with locked(synthesis.folder / ORIGIN) as is_ours:
        if not is_ours:
            raise RunError(
                f"{synthesis.output}: another process is working there; wait for it, or give another --output"
            )
        if synthesis.runtime.precision == "auto":
            notify(f"precision {synthesis.translation.translator.precision_in_use}: the fastest here")
        made_by = _describe(synthesis)
        if not synthesis.translated.exists():
            notify(f"translating {synthesis.text}")
            with open_input(synthesis.text) as opened:
                synthesis.translation.write(
                    Lines(*opened), synthesis.translated, resume=True, notify=notify, display=display
                )
        share = _filter(synthesis, notify, bar)
    half = "sources" if synthesis.makes_sources else "targets"
    return synthesis.training(f"{half} translated from {synthesis.text.name} by {made_by}; {share}")


def _check(synthesis: Synthesis, *, resume: bool, overwrite: bool, notify: Callable[[str], None]) -> None:
    """Check what would otherwise be noticed after hours: files, and where the run is to be."""
    for each in synthesis.others:
        count_pairs(Path(each["src"]), Path(each["tgt"]))
    if synthesis.valid_src and synthesis.valid_tgt:
        count_pairs(synthesis.valid_src, synthesis.valid_tgt)
    if not synthesis.text.is_file() or synthesis.text.suffix == ".parquet":
        raise CorpusError(f"{synthesis.text}: is no file of lines; give one with a sentence a line")
    refuse_documents([str(synthesis.text)])
    if synthesis.folder.exists():
        if resume:
            return
        if not overwrite:
            raise RunError(
                f"{synthesis.output}: has translations of an earlier start; give --resume to go on with "
                "them, --overwrite to rename it and start again, or another --output"
            )
    run = RunDirectory(synthesis.output)
    run.check(resume=False, overwrite=overwrite)
    if overwrite:
        _check_inputs_are_outside(synthesis)
        if (old := run.set_aside()) is not None:
            notify(f"the old run is in {old} now")


def _check_inputs_are_outside(synthesis: Synthesis) -> None:
    parallel = [Path(each[key]) for each in synthesis.others for key in ("src", "tgt")]
    valid, output = (synthesis.valid_src, synthesis.valid_tgt), synthesis.output
    for path in (synthesis.text, *synthesis.models, *parallel, *valid):
        if path is not None and path.resolve().is_relative_to(output.resolve()):
            raise RunError(f"{path}: is in {output}, which --overwrite would rename; give another --output")


def _describe(synthesis: Synthesis) -> str:
    """Write what the pairs depend on, or compare it with what an earlier start has written.

    Returns:
        The models, with the checksums of their weights, and their search, for the model card.

    Raises:
        RunError: the earlier start had something else, or its file is damaged.
    """
    translator, options = synthesis.translation.translator, synthesis.translation.options
    pairs = {
        "the checksum of the text": file_sha256(synthesis.text),
        "--keep": sorted(synthesis.keep or ()),
        "--remove": sorted(synthesis.remove or ()),
    }
    _check_origin(synthesis.folder / ORIGIN, settings_of(translator, options, pairs))
    bundles = [translator.bundle, *translator.ensemble]
    paths = [each.path for each in bundles if each.path is not None]
    models = [
        f"`{shared_name(str(name))}` (weights `{file_sha256(path / WEIGHTS_FILE)}`)"
        for name, path in zip(synthesis.models, paths, strict=True)
    ]
    return f"{' and '.join(models)}, {options.strategy}, {translator.precision_in_use}"


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
    src, tgt = synthesis.files
    if not synthesis.clean.exists():
        notify(f"filtering {src} and {tgt}")
        held_out = HeldOutText(valid_src=synthesis.valid_src, valid_tgt=synthesis.valid_tgt)
        filtering = Filtering(fix=synthesis.clean, examples=0, keep=synthesis.keep, remove=synthesis.remove)
        with bar() as show:
            inspect_text(synthesis.files, held_out=held_out, filtering=filtering, on_progress=show)
    removed = (count_lines(synthesis.clean / REMOVED) or 1) - 1  # without the heading
    share = f"{removed:,} of {count_lines(synthesis.translated):,} pairs removed by filters"
    if num_cut := _num_without_translation(synthesis.text, synthesis.translated):
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
