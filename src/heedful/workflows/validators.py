"""Validators for the trainer: negative log-likelihood, and metrics of decoded text."""

from collections.abc import Sequence

from heedful.data.batches import BatchSource
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.evaluation.metrics import evaluate_texts
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.text import TokenizerPair
from heedful.training import measure_nll
from heedful.training.execution import Precision

DECODED_METRICS = ("bleu", "chrf", "exact")


class NllValidator:
    """Measures nll and perplexity on a fixed set of batches."""

    def __init__(self, source: BatchSource, precision: Precision) -> None:
        self._batches = list(source.batches(epoch=0))
        self._precision: Precision = precision

    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return nll and perplexity."""
        return measure_nll(model, self._batches, precision=self._precision)


class DecodingValidator:
    """Translates sentences greedily and scores them; stores the signatures of the scores."""

    def __init__(
        self,
        config: Config,
        tokenizers: TokenizerPair,
        sources: Sequence[str],
        references: Sequence[str],
        precision: Precision,
    ) -> None:
        self._config = config
        self._tokenizers = tokenizers
        self._sources = list(sources)
        self._references = list(references)
        self._precision: Precision = precision
        self.signatures: dict[str, str] = {}

    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return BLEU, chrF and the percentage of exact matches."""
        bundle = Bundle(self._config, self._tokenizers, model)
        translator = Translator(bundle, precision=self._precision)
        greedy = self._config.decode.model_copy(update={"beam_size": 1, "n_best": 1})
        options = SearchOptions.from_config(greedy)
        outputs = translator.translate(self._sources, options=options)
        report = evaluate_texts(self._sources, outputs, [self._references], list(DECODED_METRICS))
        self.signatures.update(report.signatures)
        return report.scores
