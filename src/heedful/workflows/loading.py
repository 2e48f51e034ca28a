"""From a path and a few request to a translator: what every verb that uses a trained model starts with."""

from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from heedful.bundle import load_bundle
from heedful.config import DecodeConfig
from heedful.decoding.backend_choice import EngineChoice, PrecisionChoice, has_torch
from heedful.decoding.options import Sampling, SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.requests import Runtime, SamplingRequest, ScoreRequest
from heedful.threads import may_have_gpu, set_threads
from heedful.workflows.sources import local_bundle

if TYPE_CHECKING:
    from heedful.decoding.generator import ForeignEngine

_PRECISIONS: dict[str, PrecisionChoice] = {name: name for name in get_args(PrecisionChoice)}
_ENGINES: dict[str, EngineChoice] = {name: name for name in get_args(EngineChoice)}
_CTRANSLATE2 = "ctranslate2"
_DEVICES = ("auto", "cpu", "cuda")


def search_options(request: ScoreRequest, config: DecodeConfig) -> SearchOptions:
    """Return the options of a search: those of a request, and the bundle's where it says nothing.

    Where only the n-best list grows, so does the beam.

    Raises:
        InputError: values that cannot be or cannot go together.
    """
    asked = {name: value for name, value in vars(request).items() if value is not None}
    n_best = asked.get("n_best", config.n_best)
    if "sampling" in asked:  # which needs no beam
        n_best, asked["n_best"] = 1, n_best
    beam_size = asked.get("beam_size", max(config.beam_size, n_best))
    if "n_best" not in asked:
        n_best = min(n_best, beam_size)
    options = SearchOptions.from_config(config.model_copy(update={"beam_size": beam_size, "n_best": n_best}))
    changes = {each.name: asked[each.name] for each in fields(options) if each.name in asked}
    if "sampling" in changes:
        sampling: SamplingRequest = changes["sampling"]
        values = {each.name: getattr(sampling, each.name) for each in fields(Sampling)}
        changes["sampling"] = Sampling(**{name: value for name, value in values.items() if value is not None})
        if sampling.mbr is not None:
            changes["n_best"] = sampling.mbr
    return replace(options, **changes)


def load_translator(
    run: Path, request: ScoreRequest, runtime: Runtime, *, ensemble: Sequence[Path] = ()
) -> Translator:
    """Load the best bundle of a run, a bundle, or one of the hub, onto its device.

    Args:
        run: where the bundle is.
        request: the languages of a model that has many, and the shortlist; the rest is for the search.
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
        set_threads("threads", runtime.threads)
    bundle, *others = (load_bundle(local_bundle(path)) for path in (run, *ensemble))
    if device != "cpu":
        bundle, *others = (replace(each, network=each.model.to(device)) for each in (bundle, *others))
    translator = Translator(
        bundle,
        precision=_PRECISIONS[runtime.precision],
        batch_tokens=runtime.batch_tokens,
        batch_size=runtime.batch_size,
        ensemble=others,
        engine=_ctranslate2() if with_ctranslate2 else _ENGINES[runtime.engine],
        shortlist=None if request.shortlist is None else Shortlist.load(request.shortlist),
    )
    return translator.for_languages(src_lang=request.src_lang, tgt_lang=request.tgt_lang)


def _ctranslate2() -> "ForeignEngine":
    from heedful.interop.ctranslate2.engine import CTranslate2Engine

    return CTranslate2Engine()


def _device(name: str) -> str:
    if name not in _DEVICES:
        raise InputError(f"device={name!r}: must be one of {', '.join(_DEVICES)}")
    if name == "cpu" or (name == "auto" and not may_have_gpu()):
        return "cpu"
    has_gpu = has_torch() and import_module("torch").cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise InputError("device='cuda': torch finds no GPU here; use --device cpu")
    return "cuda" if has_gpu else "cpu"
