"""Train, score and try a model on the embedded phrase book, in the time that this machine needs for it."""

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from heedful.analysis.attention_maps import attention_of
from heedful.analysis.attention_pictures import write_attention
from heedful.data.phrasebook import phrase_book
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.evaluation.metrics import EvaluationReport, evaluate_texts
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Listener, Notices
from heedful.tasks.setup import set_up_training
from heedful.tasks.train import TrainingExtras, train
from heedful.tasks.training_speed import step_takers
from heedful.training.events import EndEvent, Event
from heedful.training.parallel.process_group import StepPlan

_SHOWN = 6
_TEXT = "data"  # in the run directory
_TIMED_PAIRS = 4000  # for the steps that are timed
_FOUR_MINUTES = 230.0  # less the start of Python, and a margin

# Changes of the preset tiny, for a model small enough to learn the phrase book on two slow cores in less than
# three minutes. Training has one or two epochs: dropout and label smoothing, which prevent overfitting, would
# only delay it (docs/log.md).
_SETTINGS = (
    ("model.d_ff", 512),
    ("model.num_encoder_layers", 2),
    ("model.num_decoder_layers", 2),
    ("model.dropout", 0.0),
    ("tokenizer.vocab_size", 4000),
    ("batch.tokens", 1024),
    ("train.ema_decay", 0.99),
    ("train.label_smoothing", 0.0),
    ("valid.every_steps", 300),
    ("valid.every_fraction", 0.25),
    ("valid.decode_sentences", 200),
)
_WARM_UP_STEPS, _TIMED_STEPS = 2, 4
_OTHER_STEPS = 60  # steps in the time of everything else: tokenizer, validation, scores, the image

# BLEU on seen and on unseen combinations after that number of steps, measured: docs/results.md.
_BLEU_AFTER = {0: (0.0, 0.0), 300: (73.3, 62.8), 600: (96.1, 93.3), 900: (98.2, 96.8)}
_ENOUGH_STEPS = max(_BLEU_AFTER)
_NEARLY_ALL = 0.8  # of the expected steps; with fewer, a demo says why its scores are lower


@dataclass(frozen=True)
class Example:
    """A test sentence with its output and reference."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class DemoReport:
    """Results of the demonstration.

    `scores` are on test sentences of seen combinations of words, `unseen` on sentences with a combination
    that the training text does not have. `picture` is the attention map of the longest example; None: it
    could not be written.
    """

    seconds: float
    scores: dict[str, float]
    unseen: dict[str, float]
    signatures: dict[str, str]
    examples: list[Example]
    bundle: Path
    picture: Path | None

    def as_dict(self) -> dict[str, object]:
        """Return the report for `--json`."""
        return {
            "seconds": round(self.seconds, 1),
            **_named(self.scores, ""),
            **_named(self.unseen, "_unseen"),
            "signatures": self.signatures,
            "bundle": str(self.bundle),
            "attention": None if self.picture is None else str(self.picture),
        }


def _named(scores: Mapping[str, float], suffix: str) -> dict[str, float]:
    names = {"bleu": "bleu", "chrf": "chrf", "exact": "exact_match"}
    return {f"{name}{suffix}": scores[key] for key, name in names.items()}


@dataclass(frozen=True)
class Plan:
    """The duration of a demo's training.

    `steps` is their maximum (None: only the time is limited), `seconds` the maximum time.
    """

    seconds_per_step: float
    steps: int | None
    seconds: float

    @property
    def limits(self) -> dict[str, float | None]:
        """The limits as settings of `TrainConfig`."""
        return {"max_steps": self.steps, "max_minutes": self.seconds / 60.0}

    @property
    def expected_steps(self) -> int:
        """The probable number of steps."""
        fitting = max(1, int(self.seconds / self.seconds_per_step))
        return fitting if self.steps is None else min(self.steps, fitting)

    @property
    def expected_bleu(self) -> tuple[float, float]:
        """BLEU on seen and on unseen combinations, interpolated between those measured."""
        for (before, low), (after, high) in pairwise(_BLEU_AFTER.items()):
            if self.expected_steps <= after:
                share = (self.expected_steps - before) / (after - before)
                seen, unseen = (a + share * (b - a) for a, b in zip(low, high, strict=True))
                return seen, unseen
        return _BLEU_AFTER[_ENOUGH_STEPS]

    @property
    def message(self) -> str:
        """Return the notice shown before training starts: steps, time and expected BLEU."""
        steps, (seen, unseen) = self.expected_steps, self.expected_bleu
        said = (
            f"this machine takes about {self.seconds_per_step:.2g} s a step: {steps:,} steps in about "
            f"{steps * self.seconds_per_step:.0f} s of training; expect a BLEU of about {seen:.0f} on seen "
            f"and {unseen:.0f} on unseen combinations"
        )
        if steps < _ENOUGH_STEPS:
            seen, unseen = _BLEU_AFTER[_ENOUGH_STEPS]
            minutes = _enough_minutes(self.seconds_per_step)
            said += f" ({seen:.0f} and {unseen:.0f} with --max-minutes {minutes})"
        return said

    def shortfall(self, end: EndEvent) -> str:
        """Return how a training that ended fell short of this plan, and what to do; empty if it did not."""
        was_slower = end.step < _NEARLY_ALL * self.expected_steps
        if not (was_slower or end.warning):
            return ""
        cause = f"training had {end.step:,} steps, which are few"
        if was_slower:
            cause = (
                f"the machine was slower than measured ({end.step:,} of {self.expected_steps:,} steps): the "
                "scores are lower than expected"
            )
        minutes = _enough_minutes(end.seconds / max(end.step, 1))
        return f"{cause}; start again with --overwrite --max-minutes {minutes}"


def _enough_minutes(seconds_per_step: float) -> int:
    return math.ceil(_ENOUGH_STEPS * seconds_per_step / 60.0)


def plan_training(seconds_per_step: float, *, seconds: float) -> Plan:
    """Return the plan of a demo in the seconds that are left: enough steps, or all that fit."""
    return Plan(seconds_per_step, _ENOUGH_STEPS, max(1.0, seconds - _OTHER_STEPS * seconds_per_step))


def time_steps(config: Config, pairs: Sequence[tuple[str, str]]) -> float:
    """Return the seconds of one training step, timed over a few steps on some sentence pairs."""
    with tempfile.TemporaryDirectory(prefix="heedful-demo-") as temporary:
        src, tgt = _write(pairs, Path(temporary), "timed")
        config = config.replace(data={"src": src, "tgt": tgt, "cache_dir": temporary})
        run = set_up_training(config, RunDirectory(Path(temporary)), Notices([]), resume=False)
        seconds = []
        with step_takers(run) as group:
            for number in range(1, _WARM_UP_STEPS + _TIMED_STEPS + 1):
                start = time.monotonic()
                group.step(StepPlan(number, ((0, number),), 0.0))
                seconds.append(time.monotonic() - start)
    return median(seconds[_WARM_UP_STEPS:])


def demo(
    output: Path,
    *,
    overwrite: bool = False,
    max_minutes: float | None = None,
    seed: int = 1,
    listeners: Sequence[Listener] = (),
) -> DemoReport:
    """Train on the phrase book as `heedful train` does, and score the model.

    A few steps are timed first: training takes the steps that it needs, or all that fit into four minutes.
    The listeners get the plan and the expected scores before it starts. The text is written to `data/` in the
    run directory. `max_minutes` are minutes of training; None: what the phrase book needs. The seed is of the
    training; the text is always the same.
    """
    started = time.monotonic()
    run = RunDirectory(output)
    run.check(resume=False, overwrite=overwrite)
    book = phrase_book()
    config = load_config(preset="tiny", overrides=_SETTINGS)
    config = config.replace(train=config.train.replace(seed=seed).model_dump())
    seconds_per_step = time_steps(config, book.train[:_TIMED_PAIRS])
    if max_minutes is None:
        plan = plan_training(seconds_per_step, seconds=_FOUR_MINUTES - (time.monotonic() - started))
    else:
        plan = Plan(seconds_per_step, steps=None, seconds=60.0 * max_minutes)
    notices = Notices(listeners)
    notices.add(plan.message)
    if overwrite:
        notices.add_set_aside(run.set_aside())
    splits = {name: _write(pairs, output / _TEXT, name) for name, pairs in vars(book).items()}
    (src, tgt), (valid_src, valid_tgt) = splits["train"], splits["valid"]
    data = {"src": src, "tgt": tgt, "valid_src": valid_src, "valid_tgt": valid_tgt}
    config = config.replace(train=config.train.replace(**plan.limits).model_dump(), data=data)

    def notify(event: Event) -> None:
        if isinstance(event, EndEvent):  # its advice is of settings, which `heedful demo` does not have
            event = replace(event, warning=plan.shortfall(event))
        for listener in listeners:
            listener(event)

    extras = TrainingExtras(command="heedful demo", extra_files=(_TEXT,))
    result = train(config, output, callbacks=[notify], extras=extras)
    translator = Translator.load(result.best)
    outputs, seen = _score(translator, book.test)
    _, unseen = _score(translator, book.unseen)
    pairs = sorted(zip(book.test[:_SHOWN], outputs, strict=False), key=lambda pair: len(pair[0][0]))
    examples = [Example(source, out, reference) for (source, reference), out in pairs]
    picture = _draw_attention(translator, examples[-1].source, output)
    seconds, scores = time.monotonic() - started, (seen.scores, unseen.scores)
    return DemoReport(seconds, *scores, seen.signatures, examples, result.best, picture)


def _write(pairs: Sequence[tuple[str, str]], directory: Path, name: str) -> tuple[str, str]:
    """Write pairs as two parallel files; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    src, tgt = (directory / f"{name}.{language}" for language in ("en", "de"))
    for file, lines in zip((src, tgt), zip(*pairs, strict=True), strict=True):
        file.write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    return str(src), str(tgt)


def _score(translator: Translator, pairs: Sequence[tuple[str, str]]) -> tuple[list[str], EvaluationReport]:
    sources, references = map(list, zip(*pairs, strict=True))
    outputs = translator.translate(sources)
    return outputs, evaluate_texts(sources, outputs, [references], ["bleu", "chrf", "exact"])


def _draw_attention(translator: Translator, source: str, directory: Path) -> Path | None:
    """Draw the attention map of a sentence, or write it as a page without matplotlib; None: neither works."""
    maps = attention_of(translator, source)
    for name in ("attention.png", "attention.html"):
        with suppress(HeedfulError, OSError):
            write_attention(maps, directory / name)
            return directory / name
    return None
