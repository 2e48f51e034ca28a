"""Translate with exported files: heedful's searches, over steps that ONNX Runtime computes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from heedful.decoding.beam import BeamSearch
from heedful.decoding.generator import StepwiseGenerator
from heedful.decoding.options import SearchOptions
from heedful.decoding.single_backend import SingleBackend
from heedful.decoding.text_generator import TextGenerator
from heedful.decoding.translation import Translation
from heedful.errors import InputError
from heedful.interop.onnx.backend import OnnxBackend, require_onnxruntime
from heedful.interop.onnx.settings import OnnxSettings, read_settings
from heedful.text import TokenizerPair
from heedful.text.framing import Framing


class OnnxTranslator:
    """Translates with an exported model; the outputs are those of `Translator`, up to rounding.

    >>> translator = OnnxTranslator.load("exported")  # doctest: +SKIP
    >>> translator.translate(["the cat sleeps ."], beam_size=5)  # doctest: +SKIP
    ['die Katze schläft .']
    """

    def __init__(self, backend: OnnxBackend, settings: OnnxSettings, tokenizers: TokenizerPair) -> None:
        """Take the graphs and what was exported with them."""
        self._search = settings.search
        framing = Framing(
            src_prefix=settings.src_prefix,
            src_suffix=settings.src_suffix,
            tgt_prefix=settings.tgt_prefix,
            tgt_suffix=(settings.eos_id,),
            start_id=settings.start_id,
        )
        generator = StepwiseGenerator(
            SingleBackend(
                backend, vocab_size=tokenizers.tgt.vocab_size, position_limit=settings.max_positions
            ),
            framing,
            tokenizers,
            batch_tokens=self._search.batch_tokens,
            batch_size=None,
        )
        self._texts = TextGenerator(generator, framing, tokenizers, SearchOptions.from_config(self._search))

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
        require_onnxruntime()
        directory = Path(directory)
        settings, tokenizers = read_settings(directory), TokenizerPair.load(directory)
        settings.check_ids(tokenizers)
        backend = OnnxBackend.load(
            directory, src_pad_id=settings.src_pad_id, threads=threads, providers=providers
        )
        return cls(backend, settings, tokenizers)

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
        return [each.text for each in self.translations(texts, beam_size=beam_size, options=options)]

    def translations(
        self, texts: Sequence[str], *, beam_size: int | None = None, options: SearchOptions | None = None
    ) -> list[Translation]:
        """Return the n-best list of each text; see `translate`."""
        if beam_size is not None and options is not None:
            raise InputError("give beam_size or options, not both")
        if beam_size is not None:
            default = SearchOptions.from_config(self._search)
            beam = BeamSearch(beam_size=beam_size, early_stopping=self._search.early_stopping)
            options = replace(default, strategy=beam, n_best=min(beam_size, default.n_best))
        return self._texts.translations(texts, options=options, prefixes=None)
