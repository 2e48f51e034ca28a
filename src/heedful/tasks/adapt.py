"""Adapt a model to texts of one's own: the work of `heedful adapt`.

documents, files of pairs -> pairs without faulty ones; whole documents are held out     `_write_pairs`
                          -> a fine-tuned model, and which of both translates better     `_fine_tune`
                          -> terms and a translation memory                              bulk/term_list.py
                          -> report.html                                                 analysis/
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import chain, groupby
from pathlib import Path
from random import Random
from typing import Any

from heedful.analysis.pages import write_page
from heedful.bulk.term_list import TextPair, recurring_terms, terms_met
from heedful.data.files import PairFiles, WantedLanguages, read_parallel
from heedful.data.inspection import inspect_text
from heedful.decoding.translator import Translator
from heedful.documents.memory import TmxWriter
from heedful.errors import InputError, RunError, refuse_if
from heedful.evaluation.measurement import Texts
from heedful.evaluation.metrics import EvaluationReport, compare_systems, metric_of
from heedful.evaluation.systems import System
from heedful.evaluation.tokenization import tokenization_of
from heedful.runtime.durable import atomic_output, new_directory, write_atomically
from heedful.settings.arguments import taking
from heedful.settings.options import Filtering, Languages, Runtime
from heedful.settings.run import Config
from heedful.storage.description import resolve_bundle
from heedful.tasks.adapt_options import Adaptation
from heedful.tasks.align_documents import HEAD, Row, align_documents, split_documents, write_table
from heedful.tasks.directory import BEST, CONFIG
from heedful.tasks.loading import load_translator, local_bundle
from heedful.tasks.train import plan
from heedful.text.pair import languages_of_pairs
from heedful.training.events import Event, StepEvent, WarningEvent

Report = Callable[[str, float], object]  # of a phase and its progress, 0 to 1
_METRICS = ("bleu", "chrf")
_SIGNIFICANT = 0.05  # the p-value under which scores differ
_LEAST = 100  # pairs: fewer neither adapt a model nor show that it is better
# Below this share of the sentences, and so few pairs, the model's translations find more (docs/pairs.md).
_FEW_OF_SENTENCES, _FEW = 0.6, 1000
_HELD_OUT = 0.1  # the share of the pairs for validation, and for the test
_MOST_VALID, _MOST = 500, 1000  # pairs of these
_BLOCKS = 5  # of a held-out part, if the pairs are of one long document
_SHOWN, _TERMS = 10, 50  # sentences and terms of the report
_PARTS = ("train", "valid", "test")
# recipes/adapt.toml, with a limit of its own: few pairs are learned before the time is over.
_CONFIDENCE = re.compile(r"0(\.\d*)?|1(\.0*)?")
_BEGUN_WITH = "begun-with.json"  # the model and the texts, so that --resume goes on with the same ones
FINE_TUNING: dict[str, Any] = {
    "batch.tokens": 2048,
    "schedule.name": "linear",
    "schedule.warmup_fraction": 0.1,
    "schedule.peak": "auto",
    "schedule.decay_fraction": 0.8,
    "train.max_steps": None,
    "train.ema_decay": 0.999,
    "valid.metric": "bleu",
    "valid.decode_sentences": 300,
    "valid.patience": 4,
}
_ADAPTER = {
    "lora.rank": 16,
    "lora.alpha": 32,
    "lora.targets": ("query", "key", "value", "output", "inner", "outer"),
}


@dataclass(frozen=True)
class Comparison:
    """The model as it was and the adapted one, on one text.

    Attributes:
        before: the scores of the model as it was.
        after: the scores of the adapted model, with p-values of the differences.
        sentences: source, reference, and the outputs of both.
    """

    before: EvaluationReport
    after: EvaluationReport
    sentences: Sequence[tuple[str, str, str, str]]

    @property
    def is_better(self) -> bool:
        """Whether no score is lower, and one is significantly higher."""
        is_sure = any(self._gain(name) > 0 and self.after.p_values[name] < _SIGNIFICANT for name in _METRICS)
        return is_sure and all(self._gain(name) >= 0 for name in _METRICS)

    @property
    def is_worse(self) -> bool:
        """Whether a score is significantly lower."""
        return any(self._gain(name) < 0 and self.after.p_values[name] < _SIGNIFICANT for name in _METRICS)

    def _gain(self, metric: str) -> float:
        return self.after.scores[metric] - self.before.scores[metric]

    def rows(self, name: str) -> list[tuple[str, ...]]:
        """Return a row for each metric: what was scored, both scores, and the p-value of the difference."""
        before, after = self.before, self.after
        return [
            (
                f"{metric} {name}",
                *(
                    f"{report.scores[metric]:.1f} ± {report.confidence[metric]:.1f}"
                    for report in (before, after)
                ),
                f"{after.p_values[metric]:.3f}",
            )
            for metric in _METRICS
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the scores, for `--json`."""
        return {"before": self.before.as_dict(), "after": self.after.as_dict()}


@dataclass(frozen=True)
class AdaptedModel:
    """Results of an adaptation.

    Attributes:
        best: the bundle: the adapted model if it is better, else the model as it was.
        is_better: whether the adapted model translates the held-out documents better.
        pairs: the numbers of pairs for training, validation and the test.
        held_out: the comparison on the held-out documents.
        general: the comparison on general text; None: it was not given.
        num_terms: the number of terms in the list.
        report: the page.
    """

    best: Path
    is_better: bool
    pairs: Mapping[str, int]
    held_out: Comparison
    general: Comparison | None
    num_terms: int
    report: Path

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each text and metric: its name, both scores, and the p-value of the difference."""
        compared = {"held out": self.held_out, "general": self.general}
        return [row for name, comparison in compared.items() if comparison for row in comparison.rows(name)]

    def as_dict(self) -> dict[str, Any]:
        """Return the results, for `--json`."""
        return {
            "best": str(self.best),
            "is_better": self.is_better,
            "pairs": dict(self.pairs),
            "held_out": self.held_out.as_dict(),
            "general": self.general and self.general.as_dict(),
            "terms": self.num_terms,
            "report": str(self.report),
        }


@taking(Adaptation)
def adapt(task: Adaptation) -> AdaptedModel:
    """Adapt a model to your own texts: `heedful adapt`.

    >>> adapted = heedful.adapt("runs/demo", pairs=["ours.tsv"], output="runs/ours", max_minutes=0.02)
    >>> adapted.best.name
    'best'

    The arguments are the options of the command, by the same names, and on_progress: called with the current
    phase and its progress, 0 to 1.

    Raises:
        InputError: no texts, or too few pairs.
        RunError: the output exists.
        HeedfulError: a model, a file or a setting that cannot be used.
    """
    output, report = Path(task.output), task.on_progress or (lambda what, done: None)
    _check(task, output)
    model = local_bundle(Path(task.model))
    base = load_translator(model, Languages(src_lang=task.src_lang, tgt_lang=task.tgt_lang), Runtime())
    languages = languages_of_pairs(base.bundle.config, src_lang=task.src_lang, tgt_lang=task.tgt_lang)
    general = _general(task)
    folder = output / "pairs"
    begun_with = json.dumps([str(task.model), str(task.source), str(task.target), *map(str, task.pairs)])
    if not folder.exists():
        with new_directory(folder) as unfinished:
            _write_pairs(task, unfinished, languages, report)
            write_atomically(unfinished / _BEGUN_WITH, begun_with)
    if (folder / _BEGUN_WITH).read_text(encoding="utf-8") != begun_with:
        raise RunError(
            f"{output}: was begun with another model or other texts; give these, or another --output"
        )
    parts = {name: [(row[0], row[1]) for row in _rows(folder / f"{name}.tsv")] for name in _PARTS}
    warnings: list[str] = []
    tuned = _fine_tune(task, model, base.bundle.config, languages, report, warnings)
    systems = {"before": base, "after": load_translator(tuned, Languages(), Runtime())}
    compare = partial(_compare, systems, languages[1])
    held_out = compare(parts["test"], partial(report, "translating held-out documents"))
    on_general = compare(general, partial(report, "translating general text")) if general else None
    _write_memory(output / "memory.tmx", [*chain.from_iterable(parts.values())], languages)
    terms = recurring_terms(
        systems["after"], [*parts["train"], *parts["valid"]], partial(report, "finding terms")
    )
    lines = ["source\ttarget\n", *(term.line() for term in terms)]
    write_atomically(output / "terms.tsv", "".join(lines))
    result = AdaptedModel(
        best=output / BEST,
        is_better=held_out.is_better,
        pairs={name: len(rows) for name, rows in parts.items()},
        held_out=held_out,
        general=on_general,
        num_terms=len(terms),
        report=output / "report.html",
    )
    met = terms_met(terms, *zip(*held_out.sentences, strict=True))
    facts = result.as_dict() | {"model": str(task.model), "warnings": warnings, "terms_met": met}
    write_atomically(output / "report.json", json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    shown = facts | _examples(held_out) | {"term_list": [vars(term) for term in terms[:_TERMS]]}
    write_page("adaptation_page.html", result.report, shown, TITLE=escape(str(task.model)))
    with new_directory(result.best) as unfinished:
        shutil.copytree(tuned if result.is_better else resolve_bundle(model), unfinished, dirs_exist_ok=True)
    return result


def _check(task: Adaptation, output: Path) -> None:
    """Refuse a task without texts, and an output that is there."""
    texts = [task.source, task.target, *task.pairs, task.general_src, task.general_tgt]
    missing = [str(path) for path in texts if path is not None and not Path(path).exists()]
    refuse_if(
        ((task.source is None) != (task.target is None), "give SOURCE and TARGET, or neither of them"),
        (task.source is None and not task.pairs, "no texts: give SOURCE and TARGET, or --pairs FILE"),
        (
            (task.general_src is None) != (task.general_tgt is None),
            "give both --general-src and --general-tgt, or neither of them",
        ),
        (missing, f"{next(iter(missing), '')}: no such file or directory; check the path"),
        error=InputError,
    )
    is_new = not output.exists() or not any(output.iterdir())
    refuse_if(
        ((output / BEST).exists(), f"{output}: holds an adapted model already; give another --output"),
        (
            not (is_new or task.resume),
            f"{output}: already exists; give --resume to go on with it, or another --output",
        ),
        error=RunError,
    )


def _write_memory(path: Path, pairs: Sequence[TextPair], languages: WantedLanguages) -> None:
    """Write pairs as a translation memory."""
    with atomic_output(path) as file:
        writer = TmxWriter(file, src=languages[0] or "x-source", tgt=languages[1] or "x-target")
        for source, target in pairs:
            writer.write(source, target)
        writer.finish()


def _general(task: Adaptation) -> list[TextPair]:
    """Read the general text, at most as many sentences as a test has; none if there is no such text."""
    if task.general_src is None or task.general_tgt is None:
        return []
    text = read_parallel(task.general_src, task.general_tgt)
    return [*zip(text.src, text.tgt, strict=True)][:_MOST]


def _write_pairs(task: Adaptation, folder: Path, languages: WantedLanguages, report: Report) -> None:
    """Find the pairs, take faulty ones out, and write those for training, validation and the test."""
    rows: list[Row] = []
    src_lang, tgt_lang = languages
    found = folder / "found.tsv"
    if task.source is not None and task.target is not None:
        align = partial(
            align_documents,
            task.source,
            task.target,
            output=found,
            left_out=folder / "left-out.tsv",
            min_confidence=task.min_confidence,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            on_progress=report,
        )
        aligned = align()
        if aligned.share < _FEW_OF_SENTENCES and sum(aligned.pairs.values()) < _FEW:
            align(bridge=task.model)
        rows.extend(_rows(found))
    for path in task.pairs:
        given = _rows(Path(path), languages)
        rows.extend(row for row in given if float(row[2]) >= task.min_confidence)
    with atomic_output(found) as file:
        write_table(file, rows)
    clean = folder / "clean"

    def show(what: str, done: float) -> None:
        report(f"{what} pairs", done)

    inspect_text(
        [found],
        filtering=Filtering(fix=clean, src_lang=src_lang, tgt_lang=tgt_lang),
        on_progress=show,
    )
    rows = [*_rows(clean / "train.tsv")]
    refuse_if(
        (
            len(rows) < _LEAST,
            f"{len(rows):,} pairs are too few to adapt a model and to test it; {_LEAST} are needed",
        ),
        error=InputError,
    )
    (clean / "removed.tsv").rename(folder / "removed.tsv")
    shutil.rmtree(clean)
    wanted = [min(round(_HELD_OUT * len(rows)), most) for most in (_MOST_VALID, _MOST)]
    parts, _ = split_documents([*_documents(rows, wanted[0])], wanted)
    for name, part in zip(_PARTS, parts, strict=True):
        with atomic_output(folder / f"{name}.tsv") as file:
            write_table(file, part)


def _rows(path: Path, languages: WantedLanguages = (None, None)) -> Iterator[Row]:
    """Yield the rows of a table of pairs; those of other files have the file as their document."""
    files = PairFiles((path,), languages=languages)
    is_table = files.header.decode("utf-8-sig").rstrip("\r\n").split("\t") == [*HEAD]
    for row in files.rows():
        others = ["1", path.name, str(row.number)]
        if is_table:
            others = _checked(row.raw[0].decode().rstrip("\r\n").split("\t")[2:], path, row.number)
        yield (" ".join(row.src.split()), " ".join(row.tgt.split()), *others)


def _checked(columns: list[str], path: Path, number: int) -> list[str]:
    """Return the columns after source and target: confidence, document and place."""
    if len(columns) != len(HEAD) - 2 or not _CONFIDENCE.fullmatch(columns[0]):
        raise InputError(
            f"{path}: pair {number:,}: after source and target there must be {', '.join(HEAD[2:])}, the "
            "confidence from 0 to 1; other tables have no such header"
        )
    return columns


def _documents(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Yield the rows of each document; if it is far longer than a held-out part, in blocks."""
    for _, group in groupby(rows, key=lambda row: row[3]):
        document = [*group]
        block = max(1, size // _BLOCKS) if len(document) > 2 * size else len(document)
        yield from (document[start : start + block] for start in range(0, len(document), block))


def _fine_tune(
    task: Adaptation,
    model: Path,
    config: Config,
    languages: WantedLanguages,
    report: Report,
    warnings: list[str],
) -> Path:
    """Train the model on the pairs, or go on with it; return the best bundle."""
    output = Path(task.output)
    run = output / "training"

    def listen(event: Event) -> None:
        if isinstance(event, StepEvent):
            report(f"training: loss {event.loss:.3f}", event.progress)
        elif isinstance(event, WarningEvent):
            warnings.append(event.message)

    settings: dict[str, Any] = {
        "data.pairs": str(output / "pairs" / "train.tsv"),
        "data.valid_pairs": str(output / "pairs" / "valid.tsv"),
        "train.init": str(model),
        "train.max_minutes": task.max_minutes,
    }
    tags = config.languages.src_tag, config.languages.tgt_tag
    names = ("src", "tgt") if tags == (None, None) else ("src_tag", "tgt_tag")
    chosen = languages if tags == (None, None) else tags
    settings |= {f"languages.{name}": value for name, value in zip(names, chosen, strict=True)}
    settings |= _ADAPTER if task.adapter else {}
    is_begun = (run / CONFIG).exists()
    values = {} if is_begun else {**FINE_TUNING, **settings, **dict(task.settings)}
    training = plan(None, run, values, preset=None, resume=is_begun, overwrite=False)
    return replace(training, callbacks=[listen], command="heedful adapt").run().best


def _compare(
    translators: Mapping[str, Translator],
    language: str | None,
    pairs: Sequence[TextPair],
    report: Callable[[float], object],
) -> Comparison:
    """Translate sources by both models, and score both."""
    sources, references = ([*side] for side in zip(*pairs, strict=True))
    outputs: list[Sequence[str]] = []
    for name, translator in translators.items():
        report(len(outputs) / len(translators))
        outputs.append(System.translating(name, translator, sources, {}).outputs)
    before, after = compare_systems(sources, outputs, [references], _METRICS, language=language)
    return Comparison(before, after, [*zip(sources, references, *outputs, strict=True)])


def _examples(compared: Comparison) -> dict[str, Any]:
    """Return sentences side by side, drawn at random, and those that have become worse, by their chrF."""
    sources, references, *outputs = zip(*compared.sentences, strict=True)
    tokenization = tokenization_of([references])
    scores = []
    for texts in outputs:
        measured = metric_of("chrf")(
            Texts(sources, texts, [references], lowercase=False, tokenization=tokenization)
        )
        scores.append([*map(measured.score_of, measured.rows)])
    names = ("source", "reference", "before", "after", "chrf_before", "chrf_after")
    columns = zip(sources, references, *outputs, *scores, strict=True)
    every = [dict(zip(names, values, strict=True)) for values in columns]
    changed = [sentence for sentence in every if sentence["before"] != sentence["after"]]
    by_gain = sorted(changed, key=_gain)
    worse = [sentence for sentence in by_gain if _gain(sentence) < 0]
    return {
        "examples": Random(1).sample(changed, min(_SHOWN, len(changed))),
        "worse": worse[:_SHOWN],
        "counts": {"changed": len(changed), "worse": len(worse)},
    }


def _gain(sentence: Mapping[str, Any]) -> float:
    gain: float = sentence["chrf_after"] - sentence["chrf_before"]
    return gain
