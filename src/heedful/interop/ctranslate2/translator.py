"""A translator that searches with CTranslate2; the model is exported to it once, and kept."""

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import torch

from heedful.bundle import Bundle, unique_weights
from heedful.decoding.computation import EngineChoice, PrecisionChoice
from heedful.decoding.engine import EnginePrecision
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.text_search import TextSearch
from heedful.decoding.translator import Translator
from heedful.errors import InputError, InteropError, MissingExtraError
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.ctranslate2.search import CTranslate2Search
from heedful.text.framing import Framing

if TYPE_CHECKING:
    import ctranslate2

_NUM_KEPT = 4  # exported models in the user's cache: those that were in use last
_PREFIX = "ctranslate2-"
_FORMAT = "heedful-ctranslate2-1"  # a part of the name: another way to export never meets an old directory
_TYPES: dict[EnginePrecision, str] = {
    "float32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
}


class CTranslate2Translator(Translator):
    """A `Translator` whose search is CTranslate2's, on the processor; see `CTranslate2Search`.

    >>> translator = CTranslate2Translator(load_bundle("runs/demo"), precision="int8")  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."])  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        precision: PrecisionChoice = "float32",
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        ensemble: Sequence[Bundle] = (),
        engine: EngineChoice = "auto",
        shortlist: Shortlist | None = None,
    ) -> None:
        """Wrap a loaded bundle; what is not said here is as in `Translator`.

        The first search exports the model to a directory of the user's cache, where later ones find it. The
        four that were in use last are kept there.

        Args:
            bundle: model and tokenizers; the model is on the processor.
            precision: of the matrix products, one that CTranslate2 has on this processor.
            batch_tokens: source tokens of one batch.
            batch_size: sentences of one batch at most.
            ensemble: must be empty.
            engine: of heedful, for what is no search.
            shortlist: must be None.

        Raises:
            InputError: a precision that CTranslate2 does not have here, or "auto"; a model that is on no
                processor, an ensemble or a shortlist.
            MissingExtraError: ctranslate2 is not installed.
        """
        if precision == "auto":
            raise InputError("engine='ctranslate2' tries no precisions out; give float32, bf16 or int8")
        super().__init__(
            bundle, precision=precision, batch_tokens=batch_tokens, batch_size=batch_size, engine=engine
        )
        for name, given in (("an ensemble", bool(ensemble)), ("a shortlist", shortlist is not None)):
            if given:
                raise InputError(f"engine='ctranslate2' cannot search with {name}; engine='auto' can")
        if self.device.type != "cpu":
            raise InputError(f"engine='ctranslate2': computes on the processor, not on {self.device.type!r}")
        _check_precision(precision)
        self._precision: EnginePrecision = precision
        search = CTranslate2Search(
            bundle,
            self._load,
            self._computation,
            threads=torch.get_num_threads(),
            tokens=self.batch_tokens,
            size=batch_size,
        )
        self._texts = TextSearch(bundle, search)
        self._exported: Path | None = None
        self._loaded: dict[int, ctranslate2.Translator] = {}

    @property
    def engine_in_use(self) -> str:
        """What computes: "ctranslate2"."""
        return "ctranslate2"

    @property
    def directory(self) -> Path:
        """Where the exported model is; it is exported where it is not there, or not any more.

        Raises:
            InteropError: it cannot be written.
        """
        if self._exported is None or not self._exported.is_dir():
            self._exported = self._export()
        with suppress(OSError):
            os.utime(self._exported)
        return self._exported

    def _export(self) -> Path:
        cache = platformdirs.user_cache_path("heedful")
        path = cache / f"{_PREFIX}{_fingerprint(self.bundle, self._precision)}"
        if path.is_dir():
            return path
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{path.name}.") as temporary:
                complete = Path(temporary) / "model"
                quantization = None if self._precision == "float32" else _TYPES[self._precision]
                export_ctranslate2(self.bundle, complete, quantization=quantization)
                try:
                    complete.rename(path)
                except OSError:
                    if not path.is_dir():  # otherwise somebody else was faster, with the same
                        raise
        except OSError as error:
            raise InteropError(f"{cache}: the model cannot be written ({error}); free some space") from error
        _remove_unused(cache)
        return path

    def _load(self, at_once: int, threads: int) -> "ctranslate2.Translator":
        """The engine, for so many batches at once and threads for each of them."""
        import ctranslate2

        if at_once not in self._loaded:
            try:
                self._loaded[at_once] = ctranslate2.Translator(
                    str(self.directory),
                    compute_type=_TYPES[self._precision],
                    inter_threads=at_once,
                    intra_threads=threads,
                )
            except RuntimeError as error:
                raise InteropError(
                    f"{self.directory}: CTranslate2 cannot load it ({error}); delete it and it is made anew"
                ) from error
        return self._loaded[at_once]


def _check_precision(precision: EnginePrecision) -> None:
    try:
        from ctranslate2 import get_supported_compute_types
    except ImportError:
        raise MissingExtraError(
            "engine='ctranslate2' needs ctranslate2: pip install 'heedful[interop]'"
        ) from None
    known = get_supported_compute_types("cpu")
    if _TYPES[precision] not in known:
        here = ", ".join(name for name, type_ in _TYPES.items() if type_ in known)
        raise InputError(
            f"precision={precision!r}: CTranslate2 has none of that on this processor, but {here}"
        )


def _remove_unused(cache: Path) -> None:
    """Remove all exported models but those that were in use last, and what killed processes left of theirs.

    One that another process has loaded is in its memory, and one that it is about to load is among the last.
    Each vanishes as a whole, before its files are removed.
    """
    by_use = sorted(cache.glob(f"{_PREFIX}*"), key=_last_use, reverse=True)
    for path in by_use[_NUM_KEPT:]:
        with (
            suppress(OSError),  # another process is removing it, or has it open where that matters
            tempfile.TemporaryDirectory(
                dir=cache, prefix=f"{_PREFIX}removed.", ignore_cleanup_errors=True
            ) as removed,
        ):
            path.rename(Path(removed) / path.name)


def _last_use(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it is gone
        return 0


def _fingerprint(bundle: Bundle, precision: EnginePrecision) -> str:
    """What the export depends on, as a name."""
    framing = Framing.of(bundle.config, bundle.tokenizers)
    settings = [
        *(_FORMAT, precision, bundle.config.model.model_dump(), bundle.tokenizers.fingerprint()),
        *(framing.start_id, framing.src_suffix),
    ]
    digest = hashlib.sha256(json.dumps(settings).encode())
    for name, weight in unique_weights(bundle.model).items():
        digest.update(name.encode() + weight.numpy().tobytes())
    return digest.hexdigest()[:40]
