"""`heedful distill` and `heedful back-translate`: translate text in bulk, filter the pairs, train on them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.options import SamplingOverrides, SearchOverrides, sampling_overrides
from heedful.cli.streams import bar, suggest_auto_precision, translation_display, warnings_on_stderr
from heedful.settings.options import (
    OUTPUT,
    PRESET,
    SAMPLING,
    TEXT,
    AsJson,
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
    """Train a small model on the translations of larger ones.

    The teachers translate the source text, faulty pairs are removed, and the student is trained on the others
    (sequence-level knowledge distillation, Kim and Rush, 2016). It has the vocabulary of the first teacher,
    unless tokenizer.bundle=false is set. Options of the search and of computing are those of the translation.

    Examples:
        heedful distill runs/big --src train.en --preset tiny -o runs/student
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
    """Train on parallel text, and on back-translated text.

    The sources of text of the target language are translations of a model.
    The model translates from the target language into the source language (Sennrich et al., 2016). Each of
    its translations gets a tag as its first token (Caswell et al., 2019). --sample is often better than beam
    search (Edunov et al., 2018). Options of the search and of computing are those of the translation.

    Examples:
        heedful back-translate runs/de-en --mono news.de --src train.en --tgt train.de -o runs/en-de-bt
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


def distill(task: Distill) -> None:
    """Translate the source text by the teachers, and train the student on the pairs."""
    if task.weight is not None and task.tgt is None:
        raise typer.BadParameter("--weight needs --tgt, the pairs of weight 1")
    _train_on(
        task,
        models=task.teachers,
        text=task.src,
        like=task.tgt or task.valid_tgt,
        others=[] if task.tgt is None else [{"src": str(task.src), "tgt": str(task.tgt)}],
        vocabulary=task.teachers[0],
    )


def back_translate(task: BackTranslate) -> None:
    """Translate text of the target language into the source language, and train on all pairs."""
    _train_on(
        task,
        models=[task.model],
        text=task.mono,
        like=task.src,
        others=[{"src": str(task.src), "tgt": str(task.tgt)}],
        makes_sources=True,
        tag=task.tag or None,
        search={**task.search, **sampling_overrides(task.search, task.sampling, sample=task.sample)},
    )


COMMANDS = {"distill": distill, "back-translate": back_translate}


def _train_on(task: SyntheticTraining, **how: Any) -> None:  # noqa: ANN401
    """Make the pairs, train on them, and print the best bundle."""
    from heedful.cli.progress import command_line, print_result, training_display
    from heedful.runs.directory import CONFIG
    from heedful.runs.synthetic import SYNTHETIC, Synthesis, make_pairs
    from heedful.runs.train import train
    from heedful.settings.loading import parse_override

    shared = ("output", "config", "preset", "valid_src", "valid_tgt", "weight", "keep", "remove")
    values = {name: getattr(task, name) for name in (*shared, "languages", "search", "runtime")}
    settings = [parse_override(setting) for setting in task.settings or []]
    config = make_pairs(
        Synthesis(**{**values, **how}, settings=settings),
        resume=task.resume,
        overwrite=task.overwrite,
        notify=partial(print, file=sys.stderr),
        display=partial(_display, precision=task.runtime.precision),
        bar=bar,
    )
    with training_display() as display:
        result = train(
            config,
            task.output,
            resume=(task.output / CONFIG).exists(),
            command=command_line().replace(" --resume", ""),  # which changes nothing in the model
            beside=(SYNTHETIC,),
            callbacks=[display],
        )
    print_result(result, as_json=task.as_json)


@contextmanager
def _display(
    share_read: Callable[[], float | None], *, precision: str, items: str = "lines", size: str = "tokens"
) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of the translation, the warnings of the search, and advice if it was slow."""
    started = time.monotonic()
    with warnings_on_stderr(), translation_display(share_read, items=items, size=size) as show:
        yield show
    suggest_auto_precision(precision, time.monotonic() - started)
