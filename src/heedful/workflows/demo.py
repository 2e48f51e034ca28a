"""The demonstration on the embedded phrase book: train, score, translate, draw the attention."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heedful.data.phrasebook import PhraseBook, phrase_book
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError
from heedful.evaluation.metrics import evaluate_texts
from heedful.settings.loading import load_config
from heedful.workflows.attention import attention_of, write_attention
from heedful.workflows.demo_plan import Plan, plan_training, time_steps
from heedful.workflows.material import Listener, Notes
from heedful.workflows.run_directory import RunDirectory
from heedful.workflows.train import TrainTask, train

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


@dataclass(frozen=True)
class Example:
    """A test sentence with its output and reference."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class DemoReport:
    """Results of the demonstration.

    Attributes:
        seconds: from reading the text to the last score.
        scores: bleu, chrf and exact (in percent) on test sentences of seen combinations.
        unseen: the same on sentences with a combination of words that is not in the training text.
        signatures: of the scores.
        examples: some test sentences.
        bundle: the trained model.
        picture: its attention map for the longest example; a page without matplotlib, None if neither could
            be written.
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
            "bleu": self.scores["bleu"],
            "chrf": self.scores["chrf"],
            "exact_match": self.scores["exact"],
            "bleu_unseen": self.unseen["bleu"],
            "chrf_unseen": self.unseen["chrf"],
            "exact_match_unseen": self.unseen["exact"],
            "signatures": self.signatures,
            "bundle": str(self.bundle),
            "attention": None if self.picture is None else str(self.picture),
        }


def demo(
    output: Path,
    *,
    overwrite: bool = False,
    max_minutes: float | None = None,
    seed: int = 1,
    listeners: Sequence[Listener] = (),
) -> DemoReport:
    """Train on the phrase book through the ordinary workflow, and score the model.

    A few steps are timed first: training takes as many as it needs, or as fit into four minutes. The
    listeners get the plan and the expected scores before it starts.

    Args:
        output: the run directory; the text is written to its `data/`.
        overwrite: replace an existing run.
        max_minutes: of training, instead of the plan.
        seed: of the training; the text is always the same.
        listeners: called with every training event.

    Raises:
        RunError: the directory has a run.
    """
    started = time.monotonic()
    RunDirectory(output).check(resume=False, overwrite=overwrite)
    book = phrase_book()
    config = load_config(preset="tiny", overrides=_SETTINGS)
    config = config.replace(train=config.train.replace(seed=seed).model_dump())
    seconds_per_step = time_steps(config, book.train[:_TIMED_PAIRS])
    if max_minutes is None:
        plan = plan_training(seconds_per_step, seconds=_FOUR_MINUTES - (time.monotonic() - started))
    else:
        plan = Plan(seconds_per_step, steps=None, seconds=60.0 * max_minutes)
    files = _write(book, output / _TEXT)
    config = config.replace(train=config.train.replace(**plan.limits).model_dump(), data=files)
    Notes(listeners).add(plan.message)
    result = train(
        TrainTask(config=config, output=output, overwrite=overwrite, command="heedful demo", beside=(_TEXT,)),
        listeners=listeners,
    )
    translator = Translator.load(result.best)
    outputs, scores, signatures = _score(translator, book.test)
    _, unseen, _ = _score(translator, book.unseen)
    pairs = sorted(zip(book.test[:_SHOWN], outputs, strict=False), key=lambda pair: len(pair[0][0]))
    examples = [Example(source, out, reference) for (source, reference), out in pairs]
    picture = _draw_attention(translator, examples[-1].source, output)
    return DemoReport(time.monotonic() - started, scores, unseen, signatures, examples, result.best, picture)


def _write(book: PhraseBook, directory: Path) -> dict[str, str]:
    """Write the splits as parallel files; return the data settings of the training files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid", "test", "unseen"):
        for language, lines in zip(("en", "de"), _columns(getattr(book, name)), strict=True):
            (directory / f"{name}.{language}").write_text(
                "\n".join([*lines, ""]), encoding="utf-8", newline="\n"
            )
    return {
        "src": str(directory / "train.en"),
        "tgt": str(directory / "train.de"),
        "valid_src": str(directory / "valid.en"),
        "valid_tgt": str(directory / "valid.de"),
    }


def _columns(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [english for english, _ in pairs], [german for _, german in pairs]


def _score(
    translator: Translator, pairs: Sequence[tuple[str, str]]
) -> tuple[list[str], dict[str, float], dict[str, str]]:
    sources, references = _columns(pairs)
    outputs = translator.translate(sources)
    report = evaluate_texts(sources, outputs, [references], ["bleu", "chrf", "exact"])
    return outputs, report.scores, report.signatures


def _draw_attention(translator: Translator, source: str, directory: Path) -> Path | None:
    """Draw the attention map of a sentence, or write it as a page if there is no matplotlib.

    Returns None if neither can be written.
    """
    maps = attention_of(translator, source)
    for name in ("attention.png", "attention.html"):
        with suppress(HeedfulError, OSError):
            write_attention(maps, directory / name)
            return directory / name
    return None
