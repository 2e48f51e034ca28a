"""`heedful distill` and `heedful back-translate`: translate text in bulk, filter the pairs, train on them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

from heedful.cli.options import SamplingOverrides, SearchOverrides, sampling_overrides
from heedful.cli.streams import bar, notify, suggest_auto_precision, translation_display, warnings_on_stderr
from heedful.settings.options import SAMPLING, AsJson, Option
from heedful.tasks.options import BackTranslationOptions, DistillOptions


@dataclass(frozen=True, kw_only=True)
class _OnCommandLine:
    as_json: AsJson = False
    search: SearchOverrides = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Distill(_OnCommandLine, DistillOptions):
    """Train a small model on the translations of larger ones.

    The teachers translate the source text, faulty pairs are removed, and the student is trained on the others
    (sequence-level knowledge distillation, Kim and Rush, 2016). It has the vocabulary of the first teacher,
    unless tokenizer.bundle=false is set. Options of the search and of computing are those of the translation.

    Examples:
        heedful distill runs/big --src train.en --preset tiny -o runs/student
    """


@dataclass(frozen=True, kw_only=True)
class BackTranslate(_OnCommandLine, BackTranslationOptions):
    """Train on parallel text, and on back-translated text.

    The sources of text of the target language are translations of a model.
    The model translates from the target language into the source language (Sennrich et al., 2016). Each of
    its translations gets a tag as its first token (Caswell et al., 2019). --sample is often better than beam
    search (Edunov et al., 2018). Options of the search and of computing are those of the translation.

    Examples:
        heedful back-translate runs/de-en --mono news.de --src train.en --tgt train.de -o runs/en-de-bt
    """

    sample: Annotated[bool, Option("Sample each next token instead of searching.", SAMPLING)] = False
    sampling: SamplingOverrides = field(default_factory=dict)


def distill(task: Distill) -> None:
    """Translate the source text by the teachers, and train the student on the pairs."""
    _train(task)


def back_translate(task: BackTranslate) -> None:
    """Translate text of the target language into the source language, and train on all pairs."""
    chosen = sampling_overrides(task.search, task.sampling, sample=task.sample)
    _train(replace(task, search={**task.search, **chosen}))


def _train(task: Distill | BackTranslate) -> None:
    """Make the pairs, train on them, and print the best bundle."""
    from heedful.cli.progress import command_line, print_result
    from heedful.tasks.display import training_display
    from heedful.tasks.synthetic import make_pairs, train_on_pairs

    config = make_pairs(
        task,
        notify=notify,
        display=partial(_display, precision=task.runtime.precision),
        bar=bar,
    )
    command = command_line().replace(" --resume", "")  # which changes nothing in the model
    with training_display() as show:
        result = train_on_pairs(task, config, command=command, callbacks=[show])
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
