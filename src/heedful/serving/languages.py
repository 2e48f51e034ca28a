"""Languages: the pairs that are served, routes between them, and the language of a text."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from heedful import Pair
from heedful.data.cleaning.pair import language_identifier
from heedful.documents import primary_language
from heedful.serving.refusals import LanguageError
from heedful.text.languages import closest_code, language_code

_FIRST_PIVOT = "en"


@dataclass(frozen=True)
class Route:
    """A way from one language to another: through one model, or through two.

    Attributes:
        legs: one pair for each model; the target of the first is the source of the second.
    """

    legs: tuple[Pair, ...]

    @property
    def pivot(self) -> str | None:
        """The language in between; None if there is none."""
        return self.legs[0].tgt if len(self.legs) > 1 else None

    @property
    def ends(self) -> Pair:
        """The language of the text, and that of its translation."""
        return Pair(self.legs[0].src, self.legs[-1].tgt)


@dataclass(frozen=True)
class Catalogue:
    """The pairs that are served."""

    pairs: frozenset[Pair]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The languages that can be translated from."""
        return tuple(sorted({pair.src for pair in self.pairs}))

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The languages that can be translated into."""
        return tuple(sorted({pair.tgt for pair in self.pairs}))

    @cached_property
    def all(self) -> tuple[str, ...]:
        """The languages that can be translated from or into."""
        return tuple(sorted({*self.sources, *self.targets}))

    @cached_property
    def _pivots(self) -> tuple[str, ...]:
        both = set(self.sources) & set(self.targets)
        return tuple(sorted(both, key=lambda code: (code != _FIRST_PIVOT, code)))

    def route(self, src: str, tgt: str) -> Route | None:
        """Return the way between two languages: direct, or through a third, English before others."""
        if Pair(src, tgt) in self.pairs:
            return Route((Pair(src, tgt),))
        for pivot in self._pivots:
            legs = (Pair(src, pivot), Pair(pivot, tgt))
            if src != tgt and self.pairs.issuperset(legs):
                return Route(legs)
        return None

    def targets_of(self, src: str) -> list[str]:
        """The languages that one can be translated into."""
        return [tgt for tgt in self.targets if self.route(src, tgt)]

    def sources_of(self, tgt: str) -> list[str]:
        """The languages that can be translated into one."""
        return [src for src in self.sources if self.route(src, tgt)]

    def languages(self, source: str | None, target: str) -> tuple[str | None, str]:
        """Return the codes of the languages that a client means; the source may be None, or the target.

        Raises:
            LanguageError: one is not served, or not from that source.
        """
        code = self._known_language(target, self.targets, "target", source=source)
        if source is None:
            return None, code
        fixed = self._known_language(source, {*self.sources, code}, "source")
        if fixed != code:
            self.required_route(fixed, code)
        return fixed, code

    def required_route(self, src: str, tgt: str) -> Route:
        """Return the way between two languages.

        Raises:
            LanguageError: there is none.
        """
        route = self.route(src, tgt)
        if route is None:
            raise LanguageError(
                f"{tgt} is not available as a target language from {src}; {_there_are(self.targets_of(src))}",
                parameter="target",
            )
        return route

    def _known_language(
        self, name: str, known: Collection[str], parameter: str, *, source: str | None = None
    ) -> str:
        """Return the known language that a client means; the refusals begin as LibreTranslate's do."""
        code = language_code(name)
        if code is not None and (closest := closest_code(code, known)):
            return closest
        message = f"{name[:20]} is not supported; {_there_are(known)}"
        if code is not None and (other := closest_code(code, self.all)):
            message = f"{other} is not available as a {parameter} language; {_there_are(known)}"
            if source and code == language_code(source) and code in self.sources:
                message = f"source and target are both {code}; give another target"
        raise LanguageError(message, parameter=parameter)


def _there_are(codes: Iterable[str]) -> str:
    return f"there are: {', '.join(sorted(codes))}"


_SURE = 0.5  # probability from which on a text is taken to be in the target language already
_LETTERS = 20  # of a text in the target language; a shorter one may look like it by chance
_MENTIONED = 0.01  # probability of the least language that is named


@dataclass(frozen=True)
class LanguageGuess:
    """A language, and how probable it is, from 0 to 1."""

    language: str
    probability: float


class Detector:
    """Identifies languages."""

    def __init__(self) -> None:
        """Load the identifier."""
        identifier = language_identifier()
        assert identifier is not None, "check_installed has found it"
        self._identifier = identifier

    def ranked(self, text: str) -> list[LanguageGuess]:
        """Return the probable languages of a text, the most probable first; none for one without letters."""
        if not any(map(str.isalpha, text)):
            return []
        probabilities = self._identifier.probabilities(text)
        guesses = [LanguageGuess(code, float(p)) for code, p in probabilities.items()]
        best, *others = sorted(guesses, key=lambda guess: -guess.probability)[:5]
        return [best, *(guess for guess in others if guess.probability >= _MENTIONED)]

    def source(self, text: str, sources: Sequence[str], target: str) -> LanguageGuess:
        """Return which of some languages a text is most probably in.

        The target is one of them if the text is long enough, and is surely in it: then there is nothing to
        translate.
        """
        letters = sum(map(str.isalpha, text))
        if not letters:
            return LanguageGuess(sources[0], 0.0)
        by_code = self._identifier.probabilities(text)
        known = {
            code: float(by_code.get(code, by_code.get(primary_language(code), 0.0)))
            for code in (*sources, target)
        }
        best = max(sources, key=known.__getitem__)
        is_translated = letters >= _LETTERS and known[target] > max(_SURE, known[best])
        language = target if is_translated else best
        return LanguageGuess(language, known[language])
