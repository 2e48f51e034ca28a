"""The backend of exported files: ONNX Runtime computes the steps of heedful's searches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backend import Allowed
from heedful.decoding.steps import ArrayTokens, StepFunction
from heedful.errors import InputError, InteropError, MissingExtraError, install_hint
from heedful.interop.onnx.settings import ENCODER_FILE, STEP_FILE
from heedful.precision import Precision
from heedful.text.padding import pad

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


class OnnxBackend:
    """Steps computed by ONNX Runtime; see `Backend`."""

    name = "onnx"
    precision: Precision = "float32"
    parallel_batches = 1  # ONNX Runtime has its own threads

    def __init__(self, encoder: "InferenceSession", decoder: "InferenceSession", *, src_pad_id: int) -> None:
        """Take both graphs, and the id that pads the shorter rows of a batch."""
        self._encoder = encoder
        self._decoder = decoder
        self._src_pad_id = src_pad_id

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        src_pad_id: int,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> Self:
        """Load the graphs that `export_onnx` wrote.

        Args:
            directory: of the files.
            src_pad_id: pads the shorter rows of a batch.
            threads: of the CPU, for one operation; None: ONNX Runtime's default.
            providers: ONNX Runtime's execution providers, in order of preference.

        Raises:
            InteropError: a file is missing or damaged.
            MissingExtraError: onnxruntime is not installed.
        """
        require_onnxruntime()
        from onnxruntime import SessionOptions

        options = SessionOptions()
        options.log_severity_level = 3  # errors only
        if threads is not None:
            options.intra_op_num_threads = threads
        encoder, decoder = (
            _session(directory / name, options, providers, needed)
            for name, needed in ((ENCODER_FILE, "src"), (STEP_FILE, "ids"))
        )
        return cls(encoder, decoder, src_pad_id=src_pad_id)

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        """See `Backend`; the threads are those of the sessions.

        Raises:
            InputError: a shortlist, which the graphs do not take.
        """
        if allowed is not None:
            raise InputError("exported ONNX files take no shortlist; the bundle they were made from does")
        yield OnnxStep(self._encoder, self._decoder, pad(sources, self._src_pad_id))

    @contextmanager
    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
    ) -> Iterator[StepFunction]:
        """See `Backend`; computed position by position, as in a search."""
        with self.step(sources, threads=threads, allowed=allowed) as step:
            yield step


class OnnxStep:
    """The step function of an exported model (see `heedful.decoding.steps.StepFunction`)."""

    def __init__(
        self, encoder: "InferenceSession", decoder: "InferenceSession", src: NDArray[np.int64]
    ) -> None:
        """Encode `src` (B, S), padded on the right."""
        num_rows = src.shape[0]
        self._decoder = decoder
        outputs = [output.name for output in encoder.get_outputs()]
        self._source = dict(zip(outputs, encoder.run(None, {"src": src}), strict=True))
        self._past: dict[str, NDArray[np.float32]] = {}
        for each in decoder.get_inputs():
            if each.name.startswith("past_"):
                _, heads, _, size = each.shape
                self._past[each.name] = np.zeros((num_rows, heads, 0, size), dtype=np.float32)
        self._sentences = np.arange(num_rows)

    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        """See `StepFunction`."""
        log_probs, *present = self._decoder.run(None, {"ids": last_ids} | self._source | self._past)
        self._past = dict(zip(self._past, present, strict=True))
        return ArrayTokens(log_probs)

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`; if every row stays with its sentence, the encoder's output is not copied."""
        self._past = {name: past[rows] for name, past in self._past.items()}
        sentences = self._sentences[rows]
        if not np.array_equal(sentences, self._sentences):
            self._source = {name: array[rows] for name, array in self._source.items()}
            self._sentences = sentences


def require_onnxruntime() -> None:
    """Check that ONNX Runtime is installed.

    Raises:
        MissingExtraError: it is not.
    """
    if find_spec("onnxruntime") is None:
        raise MissingExtraError(f"running ONNX needs onnxruntime: {install_hint('interop')}")


def _session(file: Path, options: object, providers: Sequence[str], needed: str) -> "InferenceSession":
    from onnxruntime import InferenceSession

    if not file.is_file():
        raise InteropError(f"{file}: missing; export the model again")
    try:
        session = InferenceSession(file, options, providers=list(providers))
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise InteropError(f"{file}: ONNX Runtime cannot load it: {str(error).splitlines()[0]}") from error
    if needed not in {each.name for each in session.get_inputs()}:
        raise InteropError(f"{file}: another graph, without the input {needed!r}; export the model again")
    return session
