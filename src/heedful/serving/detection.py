"""The language of a text, among those that are served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.data.cleaning.pair import MIN_LETTERS, language_identifier
from heedful.errors import MissingExtraError, install_hint

_SURE = 0.5  # probability from which on a text is taken to be in the target language already
_MENTIONED = 0.01  # probability of the least language that is named


@dataclass(frozen=True)
class Detected:
    """A language, and how probable it is, from 0 to 1."""

    language: str
    probability: float


class Detector:
    """Identifies languages."""

    def __init__(self) -> None:
        """Load the identifier.

        Raises:
            MissingExtraError: it is not installed.
        """
        identifier = language_identifier()
        if identifier is None:
            raise MissingExtraError(f"serving needs py3langid: {install_hint('serve')}")
        self._identifier = identifier

    def ranked(self, text: str) -> list[Detected]:
        """Return the probable languages of a text, the most probable first; none for one without letters."""
        if not any(map(str.isalpha, text)):
            return []
        by_code = self._probabilities(text)
        ranked = sorted(by_code.items(), key=lambda item: -item[1])
        return [Detected(code, p) for code, p in ranked[:5] if p >= _MENTIONED] or [Detected(*ranked[0])]

    def source(self, text: str, sources: Sequence[str], target: str) -> Detected:
        """Return which of some languages a text is most probably in.

        The target is one of them where the text is long enough, and is surely in it: then there is nothing to
        translate.
        """
        letters = sum(map(str.isalpha, text))
        if not letters:
            return Detected(sources[0], 0.0)
        by_code = self._probabilities(text)
        best = max(sources, key=lambda code: _probability(code, by_code))
        in_target = _probability(target, by_code)
        if letters >= MIN_LETTERS and in_target > max(_SURE, _probability(best, by_code)):
            return Detected(target, in_target)
        return Detected(best, _probability(best, by_code))

    def _probabilities(self, text: str) -> Mapping[str, float]:
        return {code: float(p) for code, p in self._identifier.probabilities(text).items()}


def _probability(code: str, by_code: Mapping[str, float]) -> float:
    return by_code.get(code, by_code.get(code.split("-")[0], 0.0))
