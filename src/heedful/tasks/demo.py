"""Train, score and try a model on the embedded phrase book."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.analysis.attention_maps import attention_of
from heedful.analysis.attention_pictures import write_attention
from heedful.data.phrasebook import phrase_book
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.evaluation.metrics import EvaluationReport, evaluate_texts
from heedful.settings.loading import load_config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Listener, Notices
from heedful.tasks.training import Training
from heedful.training.events import EndEvent, Event

_SHOWN = 6
_TEXT = "data"  # in the run directory

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
_STEPS = 900  # with more, BLEU does not rise: docs/results.md
_MINUTES = 3.0  # of training, on machines where that many steps take longer


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


def demo(
    output: Path,
    *,
    overwrite: bool = False,
    max_minutes: float | None = None,
    seed: int = 1,
    listeners: Sequence[Listener] = (),
) -> DemoReport:
    """Train on the phrase book as `heedful train` does, for 900 steps, and score the model.

    The text is written to `data/` in the run directory. `max_minutes` ends training earlier, by default after
    three minutes. The seed is of the training; the text is always the same.
    """
    started = time.monotonic()
    run = RunDirectory(output)
    run.check(resume=False, overwrite=overwrite)
    if overwrite:
        Notices(listeners).add_set_aside(run.set_aside())
    book = phrase_book()
    splits = {name: _write(pairs, output / _TEXT, name) for name, pairs in vars(book).items()}
    (src, tgt), (valid_src, valid_tgt) = splits["train"], splits["valid"]
    limits = {"seed": seed, "max_steps": _STEPS, "max_minutes": max_minutes or _MINUTES}
    config = load_config(preset="tiny", overrides=_SETTINGS)
    config = config.replace(
        train=config.train.replace(**limits).model_dump(),
        data={"src": src, "tgt": tgt, "valid_src": valid_src, "valid_tgt": valid_tgt},
    )

    def notify(event: Event) -> None:
        if isinstance(event, EndEvent):  # its advice is of settings, which `heedful demo` does not have
            event = replace(event, warning=_advice(event))
        for listener in listeners:
            listener(event)

    result = Training(
        config=config, output=output, callbacks=[notify], command="heedful demo", extra_files=(_TEXT,)
    ).run()
    translator = Translator.load(result.best)
    outputs, seen = _score(translator, book.test)
    _, unseen = _score(translator, book.unseen)
    pairs = sorted(zip(book.test[:_SHOWN], outputs, strict=False), key=lambda pair: len(pair[0][0]))
    examples = [Example(source, out, reference) for (source, reference), out in pairs]
    picture = _draw_attention(translator, examples[-1].source, output)
    seconds, scores = time.monotonic() - started, (seen.scores, unseen.scores)
    return DemoReport(seconds, *scores, seen.signatures, examples, result.best, picture)


def _advice(end: EndEvent) -> str:
    """Return what to do if the time was over before all steps were taken; else an empty string."""
    if end.step >= _STEPS:
        return ""
    minutes = math.ceil(_STEPS * end.seconds / max(end.step, 1) / 60.0)
    return (
        f"training had {end.step:,} of {_STEPS:,} steps, which lowers the scores; start again with "
        f"--overwrite --max-minutes {minutes}"
    )


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
