"""From a path and a few wishes to a translator: what every verb that uses a trained model starts with."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import get_args

import torch

from heedful.bundle import load_bundle
from heedful.config import DecodeConfig
from heedful.decoding.backend_choice import EngineChoice, PrecisionChoice
from heedful.decoding.options import Sampling, SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.interop.ctranslate2.engine import CTranslate2Engine
from heedful.workflows.sources import local_bundle

_PRECISIONS: dict[str, PrecisionChoice] = {name: name for name in get_args(PrecisionChoice)}
_ENGINES: dict[str, EngineChoice] = {name: name for name in get_args(EngineChoice)}
_CTRANSLATE2 = "ctranslate2"
_DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, kw_only=True)
class SamplingWishes:
    """What the user asked of chance; None leaves it at its default (see `Sampling`)."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    epsilon: float | None = None
    seed: int | None = None

    def sampling(self) -> Sampling:
        """Put the wishes over the defaults.

        Raises:
            InputError: values that cannot be.
        """
        return Sampling(**{name: value for name, value in vars(self).items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class SearchWishes:
    """What the user asked of the translation; None leaves it as the bundle has it.

    With `mbr_samples`, so many are drawn, and the best by minimum Bayes risk are taken of them. `shortlist`
    is a file that `heedful shortlist` wrote.
    """

    beam_size: int | None = None
    n_best: int | None = None
    length_penalty: float | None = None
    length_normalization: str | None = None
    coverage_penalty: float | None = None
    early_stopping: str | None = None
    max_length_offset: int | None = None
    max_length: int | None = None
    min_length: int | None = None
    no_repeat_ngram_size: int | None = None
    repetition_penalty: float | None = None
    replace_unknown: bool | None = None
    num_groups: int | None = None
    diversity_penalty: float | None = None
    sampling: SamplingWishes | None = None
    mbr_samples: int | None = None
    src_lang: str | None = None
    tgt_lang: str | None = None
    shortlist: Path | None = None

    def options(self, config: DecodeConfig) -> SearchOptions:
        """Put the wishes over the bundle's settings; where only the n-best list grows, so does the beam.

        Raises:
            InputError: values that cannot be or cannot go together.
        """
        n_best = config.n_best if self.n_best is None else self.n_best
        beam_size = max(config.beam_size, n_best) if self.beam_size is None else self.beam_size
        if self.n_best is None:
            n_best = min(n_best, beam_size)
        options = SearchOptions.from_config(
            config.model_copy(update={"beam_size": beam_size, "n_best": n_best})
        )
        wished = {name: value for name, value in vars(self).items() if value is not None}
        changes = {each.name: wished[each.name] for each in fields(options) if each.name in wished}
        if self.mbr_samples is not None:
            changes |= {"n_best": self.mbr_samples, "sampling": self.sampling or SamplingWishes()}
        if "sampling" in changes:
            changes["sampling"] = changes["sampling"].sampling()
        return replace(options, **changes)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How to compute: it changes the speed, and the results at most in their last digits.

    Attributes:
        precision: "float32", "bf16", "fp16", "int8", or "auto", the fastest of all but fp16 that costs no
            quality here.
        engine: "compiled", "torch", "auto", the compiled one where it can be used, or "ctranslate2", which
            searches in its own way (see `CTranslate2Generator`) and only on the processor.
        device: "cpu", "cuda", or "auto", a GPU where there is one.
        threads: of the processor; None leaves torch's own choice.
        batch_tokens: source pieces decoded together; None as in the bundle.
        batch_size: sentences decoded together; None leaves it to the pieces.
    """

    precision: str = "float32"
    engine: str = "auto"
    device: str = "auto"
    threads: int | None = None
    batch_tokens: int | None = None
    batch_size: int | None = None


def load_translator(
    run: Path, wishes: SearchWishes, runtime: Runtime, *, ensemble: Sequence[Path] = ()
) -> Translator:
    """Load the best bundle of a run, a bundle, or one of the hub, onto its device.

    Args:
        run: where the bundle is.
        wishes: the languages of a model that has many, and the shortlist; the rest is for the search.
        runtime: how to compute.
        ensemble: where more bundles are, whose models translate with that one.

    Raises:
        BundleError: nothing there, or a bundle that is damaged or too new.
        HubError: a name that is no path, and that the hub does not know.
        InputError: a precision or device that does not exist, a language that the model does not have,
            models that cannot translate together, or a shortlist that cannot be read or is another model's.
        MissingExtraError: the engine "ctranslate2", and it is not installed.
    """
    for name, value, known in (
        ("precision", runtime.precision, _PRECISIONS),
        ("engine", runtime.engine, (*_ENGINES, _CTRANSLATE2)),
    ):
        if value not in known:
            raise InputError(f"{name}={value!r}: must be one of {', '.join(known)}")
    with_ctranslate2 = runtime.engine == _CTRANSLATE2
    device = _device("cpu" if with_ctranslate2 and runtime.device == "auto" else runtime.device)
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    bundle, *others = (load_bundle(local_bundle(path)) for path in (run, *ensemble))
    for each in (bundle, *others):
        each.model.to(device)
    translator = Translator(
        bundle,
        precision=_PRECISIONS[runtime.precision],
        batch_tokens=runtime.batch_tokens,
        batch_size=runtime.batch_size,
        ensemble=others,
        engine=CTranslate2Engine() if with_ctranslate2 else _ENGINES[runtime.engine],
        shortlist=None if wishes.shortlist is None else Shortlist.load(wishes.shortlist),
    )
    return translator.for_languages(src_lang=wishes.src_lang, tgt_lang=wishes.tgt_lang)


def _device(name: str) -> torch.device:
    if name not in _DEVICES:
        raise InputError(f"device={name!r}: must be one of {', '.join(_DEVICES)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda': torch finds no GPU here; use --device cpu")
    return torch.device(name)
