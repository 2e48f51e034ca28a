"""CTranslate2 as the engine of a translator; the model is exported to it once, and kept."""

from typing import TYPE_CHECKING

from heedful.bundle import Bundle
from heedful.decoding.backend_choice import Backends
from heedful.decoding.generator import StepwiseGenerator
from heedful.errors import InputError, InteropError, MissingExtraError, install_hint
from heedful.interop.ctranslate2.export_cache import COMPUTE_TYPES, cached_export
from heedful.interop.ctranslate2.generator import CTranslate2Generator
from heedful.precision import Precision
from heedful.threads import num_threads

if TYPE_CHECKING:
    from ctranslate2 import Translator


class CTranslate2Engine:
    """Gives a `Translator` CTranslate2's search, on the CPU; see `CTranslate2Generator`.

    >>> translator = Translator(load_bundle("runs/demo"), engine=CTranslate2Engine())  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."])  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __call__(self, bundle: Bundle, own: StepwiseGenerator) -> CTranslate2Generator:
        """Return a generator, whose first search exports the model; see `ForeignEngine`.

        Raises:
            InputError: a precision that CTranslate2 does not have here, or "auto"; a model that is not on the
                CPU, an ensemble or a shortlist.
            MissingExtraError: ctranslate2 is not installed.
        """
        backends = own.backends
        assert isinstance(backends, Backends)  # a translator's own
        precision = backends.precision_choice
        if precision == "auto":
            raise InputError("engine='ctranslate2' tries no precisions out; give float32, bf16 or int8")
        for name, is_there in (
            ("an ensemble", len(backends.models) > 1),
            ("a shortlist", own.shortlist is not None),
        ):
            if is_there:
                raise InputError(f"engine='ctranslate2' cannot search with {name}; engine='auto' can")
        if backends.device != "cpu":
            raise InputError(f"engine='ctranslate2': computes on the CPU, not on {backends.device!r}")
        _check_precision(precision)
        load = _Loader(bundle, precision)
        return CTranslate2Generator(bundle, own, load, precision=precision, threads=num_threads())


class _Loader:
    """Loads the exported model once for each division of the threads."""

    def __init__(self, bundle: Bundle, precision: Precision) -> None:
        self._bundle = bundle
        self._precision: Precision = precision
        self._loaded: dict[int, Translator] = {}

    def __call__(self, parallel_batches: int, threads: int) -> "Translator":
        """Return the engine, with so many threads for each batch.

        Raises:
            InteropError: the model cannot be exported, or CTranslate2 cannot load it.
        """
        import ctranslate2

        if parallel_batches not in self._loaded:
            directory = cached_export(self._bundle, self._precision)
            try:
                self._loaded[parallel_batches] = ctranslate2.Translator(
                    str(directory),
                    compute_type=COMPUTE_TYPES[self._precision],
                    inter_threads=parallel_batches,
                    intra_threads=threads,
                )
            except RuntimeError as error:
                raise InteropError(
                    f"{directory}: CTranslate2 cannot load it ({error}); delete it and it is made anew"
                ) from error
        return self._loaded[parallel_batches]


def _check_precision(precision: Precision) -> None:
    try:
        from ctranslate2 import get_supported_compute_types
    except ImportError:
        raise MissingExtraError(
            f"engine='ctranslate2' needs ctranslate2: {install_hint('interop')}"
        ) from None
    known = get_supported_compute_types("cpu")
    if COMPUTE_TYPES[precision] not in known:
        here = ", ".join(name for name, type_ in COMPUTE_TYPES.items() if type_ in known)
        raise InputError(f"precision={precision!r}: CTranslate2 supports {here} on this CPU")
