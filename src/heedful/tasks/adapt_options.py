"""The options of `heedful adapt` and `heedful.adapt`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from heedful.settings.options import OUTPUT, RUN, TEXT, File, Languages, Option, Settings, settings_like


@dataclass(frozen=True, kw_only=True)
class Adaptation(Languages):
    """What a model is adapted to, and how."""

    model: Annotated[File, RUN] = field(kw_only=False)
    source: Annotated[
        File | None,
        Option(
            "A directory of documents in the source language, or one document.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ] = field(default=None, kw_only=False)
    target: Annotated[
        File | None,
        Option("The directory or document with their translations.", metavar="TARGET", is_argument=True),
    ] = field(default=None, kw_only=False)
    pairs: Annotated[
        Sequence[File],
        Option(
            "Pairs that you have: a table of `heedful pairs`, a translation memory or corrections (.tsv, "
            ".tmx, .xlf, .po, .jsonl); repeatable.",
            metavar="FILE",
        ),
    ] = ()
    output: Annotated[File, Option("The directory of the results.", flags=OUTPUT)]
    general_src: Annotated[
        File | None, Option("General text, to measure what the model forgets.", TEXT, is_common=True)
    ] = None
    general_tgt: Annotated[File | None, Option("Its translation, line by line.", TEXT, is_common=True)] = None
    adapter: Annotated[
        bool,
        Option("Train low-rank adapters (LoRA) in place of all weights: learns less, and forgets less."),
    ] = False
    max_minutes: Annotated[
        float, Option("Maximum minutes of training; preparation and scores take some more.", minimum=0.01)
    ] = 20.0
    min_confidence: Annotated[
        float,
        Option("The least probability that a pair of documents is right.", minimum=0.5, maximum=1.0),
    ] = 0.8
    settings: Annotated[
        Settings, settings_like("A setting of the training, for example schedule.peak=1e-5; repeatable.")
    ] = ()
    resume: Annotated[bool, Option("Continue an adaptation that was interrupted.")] = False
    on_progress: Callable[[str, float], object] | None = None
