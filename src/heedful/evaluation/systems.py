"""The systems that are compared on a test set: outputs of models, with their confidence, and of files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.evaluation.calibration import CalibrationReport, calibrate, measure_calibration
from heedful.evaluation.tokenization import References
from heedful.storage.bundle import Bundle
from heedful.storage.description import store_calibration


@dataclass(frozen=True)
class System:
    """The outputs of a system.

    Attributes:
        name: the path of its run or file.
        outputs: a line for each source.
        precision: the precision that it computes with; None for a file.
        bundle: the model; None for a file.
        translations: the translations that the outputs are from; none for a file.
        calibration: how well its confidence is calibrated; None if it has no confidence.
    """

    name: str
    outputs: Sequence[str]
    precision: str | None = None
    bundle: Bundle | None = None
    translations: Sequence[Translation] = ()
    calibration: CalibrationReport | None = None

    @classmethod
    def translating(
        cls, name: str, translator: Translator, sources: Sequence[str], search: Mapping[str, Any]
    ) -> "System":
        """Return the system of a model: it translates each distinct source once.

        For example, a pronunciation dictionary has a line for each reference.
        """
        first = {source: i for i, source in reversed([*enumerate(sources)])}
        # Empty lines cost nothing, and the numbers of lines in messages stay right.
        texts = [source if first[source] == i else "" for i, source in enumerate(sources)]
        distinct = translator.translations(texts, **search)
        translations = [distinct[first[source]] for source in sources]
        outputs = [each.text for each in translations]
        return cls(name, outputs, translator.precision_in_use, translator.bundle, translations)

    @property
    def num_cut(self) -> int:
        """How many outputs the length limit has cut."""
        return sum(not each.finished for each in self.translations)

    def as_dict(self) -> dict[str, Any]:
        """Return how many outputs of a model its length limit has cut, and its calibration if it has one."""
        values: dict[str, Any] = {} if self.bundle is None else {"cut_outputs": self.num_cut}
        return values if self.calibration is None else values | {"calibration": self.calibration.as_dict()}

    def calibrated(self, references: References, *, fit: bool = False) -> "System":
        """Return the system with how well its confidence is calibrated on these lines.

        Args:
            references: one list of lines for each reference file.
            fit: whether the confidence is first fitted to the lines, and stored in the bundle.

        Raises:
            CorpusError: too few lines that are errors, or that are none, to fit it.
        """
        bundle = self.bundle
        if bundle is None:
            return self
        tgt, of_languages = bundle.tokenizers.tgt, bundle.config.languages
        if fit and bundle.path is not None:
            tags = of_languages.src_tag, of_languages.tgt_tag
            calibration, report = calibrate(self.translations, references, tgt, tags=tags)
            store_calibration(bundle.path, calibration)
        elif (known := bundle.calibration_in_use) is not None:
            report = measure_calibration(self.translations, references, tgt, level=known.level)
        else:
            return self
        return replace(self, calibration=report)
