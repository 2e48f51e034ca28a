"""Verify a model: does it still say what it said when it was written? `heedful verify`."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from heedful.data.files import read_lines
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import without_warnings
from heedful.decoding.translator import Translator
from heedful.errors import BundleError, InputError, MissingExtraError
from heedful.evaluation.verification import (
    GREEDY,
    NUM_SENTENCES,
    Finding,
    Record,
    compare_answers,
    compare_contents,
    this_installation,
    write_record,
)
from heedful.settings.arguments import taking
from heedful.settings.options import EngineChoice, Precision
from heedful.storage.bundle import Bundle, load_bundle
from heedful.tasks.loading import local_bundle
from heedful.tasks.options import Verify

_ENGINES: tuple[tuple[EngineChoice, Precision], ...] = (
    ("native", "float32"),
    ("native", "int8"),
    ("native", "bf16"),
    ("torch", "float32"),
)
_WORDS, _LONGEST = 8, 32  # of a sentence from the vocabulary, and of its output in tokens
_SEED = 1


@dataclass(frozen=True)
class Verification:
    """What was compared with the record of a bundle.

    Attributes:
        written_by: the versions and the machine that wrote the record.
        compared_by: those of now.
        findings: one for the weights, the tokens, the layers and each engine and precision that runs here.
    """

    written_by: str
    compared_by: str
    findings: tuple[Finding, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing differs by more than rounding explains."""
        return all(finding.verdict != "differs" for finding in self.findings)


@taking(Verify)
def verify(task: Verify) -> Verification:
    """Compare a model with the record in its bundle, with each engine and precision that runs here.

    >>> heedful.verify("runs/demo", write=True).is_right
    True

    The arguments are the options of the command, by the same names.

    Returns:
        What is equal, near (rounding explains it) or different.

    Raises:
        BundleError: there is no bundle, it is damaged, or it has no record yet.
        InputError: a file of sentences without `write`, or one without sentences, or no engine for the model.
    """
    if task.src is not None and not task.write:
        raise InputError("--src is for --write: sentences of yours, to be recorded")
    bundle = load_bundle(local_bundle(Path(task.run)))
    assert bundle.path is not None
    if task.write:
        sources = _from_file(Path(task.src)) if task.src else None
        record_answers(bundle, sources, on_progress=task.on_progress)
        bundle = load_bundle(bundle.path)
    record = _record(bundle)
    contents = compare_contents(record, bundle)
    answers_now = [compare_answers(record, each) for each in _translators(bundle, task.on_progress)]
    if not answers_now:
        raise InputError(f"{bundle.path}: no engine computes this model here, so no output can be compared")
    return Verification(record.written_by, this_installation(), (*contents, *answers_now))


def record_answers(
    bundle: Bundle,
    sources: Sequence[str] | None = None,
    *,
    engines: Sequence[tuple[EngineChoice, Precision]] = _ENGINES,
    on_progress: Callable[[str, float], object] | None = None,
) -> None:
    """Write into a bundle what engines say that run here.

    Without sources they are lines of words of the vocabulary, translated greedily and cut.
    """
    assert bundle.path is not None
    search = {} if sources else {**GREEDY, "max_length": _LONGEST}
    sources = sources or _from_vocabulary(bundle)
    options = SearchOptions.from_config(bundle.config.decode.model_copy(update=search))
    with without_warnings():
        answers = {
            f"{each.engine_in_use} {each.precision_in_use}": each.translations(sources, options=options)
            for each in _translators(bundle, on_progress, engines)
        }
    write_record(bundle.path, bundle, answers, search)


def _record(bundle: Bundle) -> Record:
    assert bundle.path is not None
    record = Record.read(bundle.path)
    if record is None:
        raise BundleError(
            f"{bundle.path}: has no record of what it said; heedful verify {bundle.path} --write makes one"
        )
    return record


def check_as_recorded(translator: Translator) -> None:
    """Compare a translator with the record of its bundle: weights, tokens, layers and its own engine.

    Raises:
        BundleError: it says something else, or there is no record.
    """
    record = _record(translator.bundle)
    for finding in (*compare_contents(record, translator.bundle), compare_answers(record, translator)):
        if finding.verdict == "differs":
            raise BundleError(
                f"{translator.bundle.path}: does not say what it said by {record.written_by}: "
                f"{finding.part}: {finding.detail}"
            )


def _translators(
    bundle: Bundle,
    on_progress: Callable[[str, float], object] | None,
    engines: Sequence[tuple[EngineChoice, Precision]] = _ENGINES,
) -> Iterator[Translator]:
    """Yield a translator for each engine and precision that runs here."""
    for number, (engine, precision) in enumerate(engines):
        if on_progress is not None:
            on_progress(f"{engine} {precision}", number / len(engines))
        with suppress(InputError, MissingExtraError):
            yield Translator(bundle, engine=engine, precision=precision)


def _from_file(path: Path) -> Sequence[str]:
    sources = [line for line in read_lines(path) if line.strip()][:NUM_SENTENCES]
    if not sources:
        raise InputError(f"{path}: has no sentences")
    return sources


def _from_vocabulary(bundle: Bundle) -> list[str]:
    """Return lines of words of the source vocabulary, always the same ones: no language need be known."""
    tokenizer = bundle.tokenizers.src
    chance = random.Random(_SEED)
    pieces = [(number, tokenizer.decode([number]).strip()) for number in range(tokenizer.vocab_size)]
    words = [number for number, text in pieces if text.isalnum()]
    return [tokenizer.decode(chance.choices(words, k=_WORDS)) for _ in range(NUM_SENTENCES)]
