"""Translate with exported files: heedful's searches, over steps that ONNX Runtime computes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from typing_extensions import override

from heedful.decoding.backends.protocol import Adapters, Allowed, Backend
from heedful.decoding.generator import Generator
from heedful.decoding.options import SearchOptions, SearchSettings, search_options
from heedful.decoding.steps import ArrayTokens, StepFunction
from heedful.decoding.texts import TextCodec
from heedful.decoding.translation import Translation
from heedful.errors import InputError, InteropError, needing
from heedful.settings.arguments import checked
from heedful.settings.options import Count
from heedful.settings.run import DecodeConfig
from heedful.settings.section import Positive, Section
from heedful.storage.bundle import Bundle
from heedful.text import TokenizerPair
from heedful.text.special_tokens import SpecialTokens, suppressed_ids
from heedful.text.tokenizer import pad

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

ENCODER_FILE = "encoder.onnx"
STEP_FILE = "decoder_step.onnx"
SETTINGS_FILE = "onnx_model.json"


class OnnxSettings(Section):
    """The special-token template, the maximum length, and the default search."""

    format_version: Literal[1] = 1
    src_prefix: tuple[Count, ...]  # before the ids of a source text
    src_suffix: tuple[Count, ...]  # after the ids of a source text
    src_pad_id: Count  # pads the shorter rows of a batch on the right
    tgt_prefix: tuple[Count, ...]  # a language tag at the start of every output, also search.forced_first_id
    start_id: Count  # the decoder's first input
    eos_id: Count  # ends an output
    tgt_pad_id: Count
    max_positions: Positive | None  # of learned positions, source and target; None: unlimited
    search: DecodeConfig  # suppressed and forced ids, beam, length penalty, limits

    def check_ids(self, tokenizers: TokenizerPair) -> None:
        """Check that the tokenizers, and so the model, have all of the ids.

        Raises:
            InteropError: one is beyond their vocabulary.
        """
        search = self.search
        forced = [i for i in (search.forced_first_id, search.forced_last_id) if i is not None]
        src = [*self.src_prefix, *self.src_suffix, self.src_pad_id]
        tgt = [*self.tgt_prefix, self.start_id, self.eos_id, *(search.suppressed_ids or ()), *forced]
        for ids, size in ((src, tokenizers.src.vocab_size), (tgt, tokenizers.tgt.vocab_size)):
            if max(ids) >= size:
                raise InteropError(
                    f"{SETTINGS_FILE}: id {max(ids):,} is beyond the vocabulary of {size:,}; "
                    "export the model again"
                )


def onnx_settings(bundle: Bundle) -> OnnxSettings:
    """Return the settings of a bundle, with all ids.

    Raises:
        TokenizerError: the tokenizer lacks a language tag.
    """
    model, search, tgt = bundle.config.model, bundle.config.decode, bundle.tokenizers.tgt
    special = SpecialTokens.of(bundle.config, bundle.tokenizers)
    never = suppressed_ids(
        search.suppressed_ids, start_id=special.start_id, pad_id=tgt.pad_id, eos_id=tgt.eos_id
    )
    first_id = search.forced_first_id
    if special.tgt_prefix:
        (first_id,) = special.tgt_prefix
    return OnnxSettings(
        src_prefix=special.src_prefix,
        src_suffix=special.src_suffix,
        src_pad_id=model.src_pad_id,
        tgt_prefix=special.tgt_prefix,
        start_id=special.start_id,
        eos_id=tgt.eos_id,
        tgt_pad_id=tgt.pad_id,
        max_positions=model.max_positions if model.positions == "learned" else None,
        search=search.replace(suppressed_ids=never, forced_first_id=first_id),
    )


def read_settings(directory: Path) -> OnnxSettings:
    """Read the settings of an exported model.

    Raises:
        InteropError: there are none, they are damaged, or they are of a newer format.
    """
    file = directory / SETTINGS_FILE
    try:
        return OnnxSettings.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InteropError(
            f"{file}: {error.strerror}; give a directory that heedful export --to onnx wrote"
        ) from None
    except (ValidationError, UnicodeError):
        raise InteropError(f"{file}: damaged, or of a newer heedful; export the model again") from None


class OnnxBackend(Backend):
    """Steps computed by ONNX Runtime, one batch at a time: it has its own threads."""

    name = "onnx"

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
            directory: the directory with the files.
            src_pad_id: pads the shorter rows of a batch.
            threads: the number of CPU threads for one operation; None: ONNX Runtime's default.
            providers: ONNX Runtime's execution providers, in order of preference.

        Raises:
            InteropError: a file is missing or damaged.
            MissingExtraError: onnxruntime is not installed.
        """
        with needing("running ONNX needs onnxruntime", extra="interop"):
            from onnxruntime import InferenceSession, SessionOptions
        options = SessionOptions()
        options.log_severity_level = 3  # errors only
        if threads is not None:
            options.intra_op_num_threads = threads
        sessions = []
        for name, needed in ((ENCODER_FILE, "src"), (STEP_FILE, "ids")):
            try:
                session = InferenceSession(directory / name, options, providers=list(providers))
            except Exception as error:  # onnxruntime's exceptions have no common base class
                reason = str(error).splitlines()[0]
                raise InteropError(f"{directory / name}: ONNX Runtime cannot load it: {reason}") from error
            if needed not in {each.name for each in session.get_inputs()}:
                raise InteropError(f"{directory / name}: it has no input {needed!r}; export the model again")
            sessions.append(session)
        return cls(*sessions, src_pad_id=src_pad_id)

    @contextmanager
    def step(
        self,
        sources: Sequence[Sequence[int]],
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> Iterator[StepFunction]:
        """Return the steps of a search; the sessions have their own threads.

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
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> Iterator[StepFunction]:
        """Return the steps of given outputs, computed position by position, as in a search."""
        with self.step(sources, threads=threads, allowed=allowed) as step:
            yield step


class OnnxStep(StepFunction):
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

    @override
    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        log_probs, *present = self._decoder.run(None, {"ids": last_ids} | self._source | self._past)
        self._past = dict(zip(self._past, present, strict=True))
        return ArrayTokens(log_probs)

    @override
    def reorder(self, rows: NDArray[np.int64]) -> None:
        """If every row stays with its sentence, the encoder's output is not copied."""
        self._past = {name: past[rows] for name, past in self._past.items()}
        sentences = self._sentences[rows]
        if not np.array_equal(sentences, self._sentences):
            self._source = {name: array[rows] for name, array in self._source.items()}
            self._sentences = sentences


class OnnxTranslator:
    """Translates with an exported model; outputs equal `Translator`'s up to rounding.

    >>> translator = OnnxTranslator.load("exported")  # doctest: +SKIP
    >>> translator.translate(["The house is small."], beam_size=4)  # doctest: +SKIP
    ['Das Haus ist klein.']
    """

    def __init__(self, backend: OnnxBackend, settings: OnnxSettings, tokenizers: TokenizerPair) -> None:
        """Take the graphs and what was exported with them."""
        self._search = settings.search
        special = SpecialTokens(
            src_prefix=settings.src_prefix,
            src_suffix=settings.src_suffix,
            tgt_prefix=settings.tgt_prefix,
            tgt_suffix=(settings.eos_id,),
            start_id=settings.start_id,
        )
        self._codec = TextCodec(
            tokenizers=tokenizers,
            special_tokens=special,
            default=SearchOptions.from_config(self._search),
            position_limit=settings.max_positions,
        )
        self._generator = Generator(
            backend=backend,
            start_id=settings.start_id,
            eos_id=tokenizers.tgt.eos_id,
            pad_id=tokenizers.tgt.pad_id,
            vocab_size=tokenizers.tgt.vocab_size,
            batch_tokens=self._search.batch_tokens,
        )

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
            directory: the directory with the files.
            threads: the number of CPU threads for one operation; None: ONNX Runtime's default.
            providers: ONNX Runtime's execution providers, in order of preference.

        Raises:
            InteropError: files are missing or damaged.
            TokenizerError: tokenizer files are missing or damaged.
            MissingExtraError: onnxruntime is not installed.
        """
        directory = Path(directory)
        settings, tokenizers = read_settings(directory), TokenizerPair.load(directory)
        settings.check_ids(tokenizers)
        backend = OnnxBackend.load(
            directory, src_pad_id=settings.src_pad_id, threads=threads, providers=providers
        )
        return cls(backend, settings, tokenizers)

    @checked
    def translate(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        **search: Unpack[SearchSettings],
    ) -> list[str]:
        """Return the best translation of each text; an empty one for an empty text.

        Args:
            texts: one sentence or line each.
            options: the options of the search; by default the model's.
            search: changes of the options, as for `Translator.translations`: beam_size=1, max_length=40.

        Raises:
            InputError: a text is longer than learned positions allow, or the options are invalid.
        """
        return [translation.text for translation in self.translations(texts, options=options, **search)]

    @checked
    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        **search: Unpack[SearchSettings],
    ) -> list[Translation]:
        """Return the n-best list of each text; see `translate`."""
        if options is None and search:
            options = search_options(search, self._search)
        elif options is not None and search:
            options = replace(options, **dict[str, Any](search))
        options = self._codec.resolved(options)
        lines = self._codec.encode(texts, None, options, first_line=1)
        n_best_lists = self._generator.search(lines.sources, options)
        return self._codec.decode(lines, n_best_lists, options, attention_of=self._generator.attention)
