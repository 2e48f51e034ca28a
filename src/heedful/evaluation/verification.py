"""What a model said when it was written, and whether it says the same now: `verification.json` in a bundle.

A record has sentences, the ids that the tokenizer made of them, a checksum of each weight, numbers that
stand for what each layer returns, and the outputs of one or several engines with their log-probabilities.
Whoever has the bundle can compare: on another machine, with another torch, after an upgrade of heedful.
"""

import hashlib
import math
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import Floats
from heedful.decoding.texts import TextCodec
from heedful.decoding.translation import Translation, without_warnings
from heedful.decoding.translator import Translator
from heedful.errors import BundleError
from heedful.runtime.native import native
from heedful.settings.parsing import mistake_of, read_limited
from heedful.storage.bundle import Bundle
from heedful.storage.description import WEIGHTS_FILE, add_file, read_description
from heedful.storage.weights_file import SafetensorsArrays

if TYPE_CHECKING:
    import torch

VERIFICATION_FILE = "verification.json"
NUM_SENTENCES = 200  # of a record, at most
GREEDY = {"beam_size": 1, "n_best": 1}  # changes of a bundle's search
Verdict = Literal["equal", "near", "differs"]

# Mean difference of the log-probability, in nats a token. Within the first, outputs are those of the same
# arithmetic, added in another order; within the second, of the same weights in another precision.
SAME, _LIMITS = 1e-4, {"float32": 1e-3, "bf16": 0.03, "fp16": 0.03, "int8": 0.1}
_LAYER_LIMIT = 1e-3  # relative difference of what a layer returns, in float32
_LAYER_SENTENCES = 16
_PROJECTIONS = 4
_STAGES = re.compile(r"(encoder|decoder)\.(embedding|layers\.\d+|final_norm)")


class Answers(BaseModel):
    """What one engine says: for each source the ids of the output, its text, and its log-probability."""

    model_config = ConfigDict(strict=True, frozen=True)

    ids: list[list[int]]
    texts: list[str]
    log_probs: list[float]

    @classmethod
    def of(cls, translations: Sequence[Translation]) -> Self:
        """Return the best hypotheses."""
        best = [translation.hypotheses[0] for translation in translations]
        return cls(
            ids=[[*each.written_ids] for each in best],
            texts=[each.text for each in best],
            log_probs=[each.log_prob for each in best],
        )


class Record(BaseModel):
    """The content of verification.json.

    `search` changes the bundle's own search; `answers` are by engine and precision, such as "native float32".
    """

    model_config = ConfigDict(strict=True, frozen=True)

    written_by: str
    search: dict[str, int]
    sources: list[str]
    source_ids: list[list[int]]
    weights: dict[str, str]
    layers: dict[str, list[float]]
    answers: dict[str, Answers]

    @classmethod
    def read(cls, bundle: Path) -> Self | None:
        """Read the record of a bundle; None: it has none.

        Raises:
            BundleError: the record is not usable.
        """
        if VERIFICATION_FILE not in read_description(bundle).files:
            return None
        try:
            return cls.model_validate_json(read_limited(bundle / VERIFICATION_FILE))
        except ValidationError as error:
            remedy = "write it again with heedful verify --write"
            raise BundleError(f"{bundle / VERIFICATION_FILE}: {mistake_of(error)}; {remedy}") from error

    def options(self, bundle: Bundle) -> SearchOptions:
        """Return the search that wrote the outputs."""
        return SearchOptions.from_config(bundle.config.decode.model_copy(update=self.search))


@dataclass(frozen=True)
class Finding:
    """What was compared, how it is now, and the numbers behind it, in words."""

    part: str
    verdict: Verdict
    detail: str


def write_record(
    path: Path, bundle: Bundle, answers: Mapping[str, Sequence[Translation]], search: Mapping[str, int]
) -> None:
    """Write the record of a bundle into it.

    Sources that were translated in several parts, or not at all, are left out, and those that are longer than
    the positions that the model has learned.

    Args:
        path: the bundle's directory.
        bundle: the model, for what its layers return; without torch, that is not recorded.
        answers: the translations of the same sources, by engine and precision.
        search: changes of the bundle's own search that wrote the translations.
    """
    kept = _whole_sentences(bundle, list(answers.values()))
    first = next(iter(answers.values()))
    said = {
        name: Answers.of([translations[number] for number in kept]) for name, translations in answers.items()
    }
    sources = [first[number].source for number in kept]
    source_ids = [bundle.tokenizers.src.encode(source) for source in sources]
    record = Record(
        written_by=this_installation(),
        search=dict(search),
        sources=sources,
        source_ids=source_ids,
        weights=_checksums(path),
        layers=_layers(bundle, source_ids, next(iter(said.values())).ids),
        answers=said,
    )
    add_file(path, VERIFICATION_FILE, record.model_dump_json().encode())


def _whole_sentences(bundle: Bundle, answers: Sequence[Sequence[Translation]]) -> list[int]:
    """Return the numbers of the sources that each engine has translated as one sentence."""
    codec, eos = TextCodec.of(bundle), bundle.tokenizers.tgt.eos_id
    longest = codec.position_limit or sys.maxsize
    kept = []
    for number, translations in enumerate(zip(*answers, strict=True)):
        source = translations[0].source
        ids = codec.special_tokens.source(bundle.tokenizers.src.encode(source))
        is_whole = all(each.hypotheses[0].written_ids.count(eos) <= 1 for each in translations)
        if source.strip() and len(ids) <= longest and is_whole:
            kept.append(number)
    return kept


def this_installation() -> str:
    """Return the versions and the class of machine on which outputs may depend."""
    torch = f", torch {version('torch')}" if find_spec("torch") else ""
    return f"heedful {version('heedful')}{torch}, {platform.machine()} {native().level or 'without library'}"


def compare_contents(record: Record, bundle: Bundle) -> Iterator[Finding]:
    """Compare weights, tokens and layers, in this order, with what they were."""
    assert bundle.path is not None
    yield _compared("weights", record.weights, _checksums(bundle.path))
    source_ids = [bundle.tokenizers.src.encode(source) for source in record.sources]
    yield _compared("tokens", dict(enumerate(record.source_ids, 1)), dict(enumerate(source_ids, 1)))
    if record.layers and find_spec("torch"):
        ids = next(iter(record.answers.values())).ids
        yield _compared_layers(record.layers, _layers(bundle, source_ids, ids))


def compare_answers(record: Record, translator: Translator) -> Finding:
    """Compare what an engine says with its own record, or with the first one of another engine."""
    part = f"{translator.engine_in_use} {translator.precision_in_use}"
    named, said = next(iter(record.answers.items()))
    if part in record.answers:
        named, said = part, record.answers[part]
    options = record.options(translator.bundle)
    with without_warnings():  # of outputs at their limit, as when they were recorded
        translations = translator.translations(record.sources, options=options)
    scored = translator.score(record.sources, said.ids, options=options)
    equal = sum(now.text == then for now, then in zip(translations, said.texts, strict=True))
    lengths = np.maximum([len(ids) for ids in said.ids], 1)
    changes = np.abs(np.subtract([each.log_prob for each in scored], said.log_probs)) / lengths
    worst = int(np.argmax(changes))
    limit = max(_LIMITS[name.split()[-1]] for name in (named, part))
    verdict: Verdict = "near" if changes.mean() <= limit else "differs"
    if equal == len(said.texts) and changes.max() <= SAME:
        verdict = "equal"
    detail = f"{equal:,} of {len(said.texts):,} outputs equal"
    if named != part:
        detail += f" to {named}'s"
    detail += (
        f"; log-probability of a token: {changes.mean():.2g} off in the mean, {changes.max():.2g} at most"
    )
    if verdict == "differs":
        detail += f" (sentence {worst + 1:,}: {record.sources[worst]!r})"
    return Finding(part, verdict, detail)


def _compared(part: str, before: Mapping[Any, object], now: Mapping[Any, object]) -> Finding:
    changed = [str(name) for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    if not changed:
        return Finding(part, "equal", f"{len(now):,} compared")
    named = ", ".join(sorted(changed)[:3])
    return Finding(part, "differs", f"{len(changed):,} of {len(now):,} differ: {named}")


def _compared_layers(before: Mapping[str, Sequence[float]], now: Mapping[str, Sequence[float]]) -> Finding:
    """Name the first layer, from input to output, that returns something else."""
    largest = 0.0
    for name, numbers in before.items():
        size = abs(numbers[0])
        change = max(map(abs, np.subtract(now.get(name, [np.inf] * len(numbers)), numbers))) / max(size, 1e-9)
        largest = max(largest, float(change))
        if not change <= _LAYER_LIMIT:
            return Finding("layers", "differs", f"from {name} on: {change:.2g} of what it returns")
    verdict: Verdict = "equal" if largest <= SAME else "near"
    return Finding("layers", verdict, f"{len(before)} compared, by torch in float32: {largest:.2g} at most")


def _checksums(path: Path) -> dict[str, str]:
    """Return a checksum of each weight of a bundle by its name."""
    arrays = SafetensorsArrays(path / WEIGHTS_FILE)
    return {name: hashlib.sha256(arrays[name].tobytes()).hexdigest()[:16] for name in sorted(arrays.shapes)}


def _layers(
    bundle: Bundle, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
) -> dict[str, list[float]]:
    """Return numbers that stand for what each layer returns, in order: its size, and a few projections.

    They are means over the first sentences, each by itself; {} without torch.
    """
    if not find_spec("torch"):
        return {}
    import torch

    found = dict[str, list[Floats]]()
    eos, model = bundle.tokenizers.tgt.eos_id, bundle.model
    device = next(model.parameters()).device

    def keep(name: str, states: "torch.Tensor") -> None:
        found.setdefault(name, []).append(_summary(states[0].float().cpu().numpy()))

    with ExitStack() as stack, torch.inference_mode():
        for name, module in model.named_modules():
            if _STAGES.fullmatch(name):
                hook = module.register_forward_hook(lambda _, __, states, name=name: keep(name, states))
                stack.callback(hook.remove)
        for source, output in zip(sources[:_LAYER_SENTENCES], outputs, strict=False):
            src, tgt_in = ([ids] for ids in (source, [eos, *output[:-1]]))
            model(torch.tensor(src, device=device), torch.tensor(tgt_in, device=device))
    return {name: np.mean(summaries, axis=0).tolist() for name, summaries in found.items()}


def _summary(states: Floats) -> Floats:
    """Return the root mean square of states (T, D), and their mean projected on a few cosines, as large."""
    width = states.shape[-1]
    cosines = np.cos(np.outer(np.arange(1, _PROJECTIONS + 1), np.arange(width)))
    projections = cosines @ states.mean(axis=0) / math.sqrt(width)
    return np.array([np.sqrt(np.square(states).mean()), *projections])
