"""Translate from exported ONNX files with heedful's search and ONNX Runtime."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.batch_plan import plan_batches
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.search import search
from heedful.decoding.steps import ArrayTokens
from heedful.decoding.task import SearchTask
from heedful.errors import InputError, InteropError, MissingExtraError
from heedful.interop.onnx.settings import ENCODER_FILE, STEP_FILE, OnnxSettings, read_settings
from heedful.text import TokenizerPair
from heedful.text.padding import pad

if TYPE_CHECKING:
    from onnxruntime import InferenceSession


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


class OnnxTranslator:
    """Translates with an exported model; the outputs are those of `Translator`, up to rounding.

    >>> translator = OnnxTranslator.load("exported")  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."], beam_size=5)  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __init__(
        self,
        encoder: "InferenceSession",
        decoder: "InferenceSession",
        settings: OnnxSettings,
        tokenizers: TokenizerPair,
    ) -> None:
        self.settings = settings
        self.tokenizers = tokenizers
        self._encoder = encoder
        self._decoder = decoder

    @classmethod
    def load(
        cls,
        directory: str | Path,
        *,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> Self:
        """Load a model that `export_onnx` wrote.

        Args:
            directory: of the files.
            threads: of the CPU, for one operation; None: ONNX Runtime's default.
            providers: ONNX Runtime's execution providers, in order of preference.

        Raises:
            InteropError: files are missing or damaged.
            TokenizerError: tokenizer files are missing or damaged.
            MissingExtraError: onnxruntime is not installed.
        """
        try:
            from onnxruntime import SessionOptions
        except ImportError:
            raise MissingExtraError(
                "running ONNX needs onnxruntime: pip install 'heedful[interop]'"
            ) from None
        directory = Path(directory)
        settings = read_settings(directory)
        options = SessionOptions()
        options.log_severity_level = 3  # errors only
        if threads is not None:
            options.intra_op_num_threads = threads
        encoder, decoder = (
            _session(directory / name, options, providers) for name in (ENCODER_FILE, STEP_FILE)
        )
        return cls(encoder, decoder, settings, TokenizerPair.load(directory))

    def translate(
        self, texts: Sequence[str], *, beam_size: int | None = None, options: SearchOptions | None = None
    ) -> list[str]:
        """Return the best translation of each text; an empty one for an empty text.

        Args:
            texts: one sentence or line each.
            beam_size: instead of the model's default; 1 is greedy search.
            options: of the search; by default the model's.

        Raises:
            InputError: a text is longer than learned positions allow, or the options are invalid.
        """
        return [
            self.tokenizers.tgt.decode(n_best[0].ids).replace("\r", " ").replace("\n", " ") if n_best else ""
            for n_best in self.hypotheses(texts, beam_size=beam_size, options=options)
        ]

    def hypotheses(
        self, texts: Sequence[str], *, beam_size: int | None = None, options: SearchOptions | None = None
    ) -> list[list[Hypothesis]]:
        """Return the n-best hypotheses of each text, none for an empty text; see `translate`."""
        if isinstance(texts, str):
            raise InputError("texts: one string given; give a list of strings, as in translate([text])")
        if beam_size is not None and options is not None:
            raise InputError("give beam_size or options, not both")
        options = options or self._default_options(beam_size)
        if self.settings.tgt_prefix:
            options = replace(options, forced_first_id=self.settings.tgt_prefix[0])
        sources = self._encode(texts)
        n_best_lists: list[list[Hypothesis]] = [[] for _ in texts]
        for batch in plan_batches([len(ids) for ids in sources], tokens=self.settings.search.batch_tokens):
            for i, hypotheses in zip(batch, self._search([sources[i] for i in batch], options), strict=True):
                n_best_lists[i] = hypotheses
        return n_best_lists

    def _default_options(self, beam_size: int | None) -> SearchOptions:
        options = SearchOptions.from_config(self.settings.search)
        if beam_size is None:
            return options
        return replace(options, beam_size=beam_size, n_best=min(beam_size, options.n_best))

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        settings = self.settings
        sources = [
            [*settings.src_prefix, *ids, *settings.src_suffix] if ids and text.strip() else []
            for ids, text in zip(self.tokenizers.src.encode_batch(texts), texts, strict=True)
        ]
        limit = settings.max_positions
        for line, ids in enumerate(sources, start=1):
            if limit is not None and len(ids) > limit:
                raise InputError(
                    f"line {line:,}: {len(ids):,} tokens, but this model's learned positions end at "
                    f"{limit:,}; split the line"
                )
        return sources

    def _search(self, sources: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        settings = self.settings
        src = pad(sources, settings.src_pad_id)
        caps = [cap for cap in (options.max_length, settings.max_positions) if cap is not None]
        task = SearchTask(
            max_lengths=[min([len(ids) + options.max_length_offset, *caps]) for ids in sources],
            start_id=settings.start_id,
            eos_id=settings.eos_id,
            pad_id=settings.tgt_pad_id,
            options=options,
            sources=sources,
        )
        return search(OnnxStep(self._encoder, self._decoder, src), task)


def _session(file: Path, options: object, providers: Sequence[str]) -> "InferenceSession":
    from onnxruntime import InferenceSession

    if not file.is_file():
        raise InteropError(f"{file}: missing; export the model again")
    try:
        return InferenceSession(file, options, providers=list(providers))
    except Exception as error:  # onnxruntime's exceptions have no common base class
        raise InteropError(f"{file}: ONNX Runtime cannot load it: {str(error).splitlines()[0]}") from error
