"""Models that translate by a rule, for tests of the service around them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from heedful.decoding.alignment import Alignment, Span, words_between_spaces
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translation import TextHypothesis, Translation
from heedful.errors import InputError
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ServedModel, ServedPair
from heedful.serving.service import TranslationService
from heedful.text.languages import Pair


class RuleTranslator:
    """Translates by a function; it waits for `gate`, and remembers each batch.

    A text with the word `endless` is cut at its length limit.
    """

    def __init__(self, rule: Callable[[str], str], *, backwards: bool = False) -> None:
        self.rule = rule
        self.can_align = True
        self.backwards = backwards  # whether it aligns the first word with the last
        self.batches: list[list[str]] = []
        self.threads: list[int | None] = []  # that may compute each batch
        self.gate = threading.Event()
        self.gate.set()

    def translations(
        self,
        texts: Sequence[str],
        *,
        options: SearchOptions | None = None,
        prefixes: Sequence[str] | None = None,
        aligned: bool | Sequence[bool] = False,
        split: Callable[[str], list[Span]] = words_between_spaces,
    ) -> list[Translation]:
        self.batches.append(list(texts))
        self.threads.append(None if options is None else options.threads)
        assert self.gate.wait(60)
        if "too long" in texts:
            raise InputError("line 1: too long")
        n_best = 1 if options is None else options.n_best
        marked = [aligned] * len(texts) if isinstance(aligned, bool) else aligned
        return [
            self._translation(text, n_best, split if is_marked else None, prefix)
            for text, is_marked, prefix in zip(texts, marked, prefixes or [""] * len(texts), strict=True)
        ]

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: Callable[[str], list[Span]]
    ) -> list[Alignment]:
        """Align each word with the one at its place, and what is beyond the source with its last word."""
        return [
            self._alignment(source, target, split) for source, target in zip(sources, targets, strict=True)
        ]

    def _alignment(self, source: str, target: str, split: Callable[[str], list[Span]]) -> Alignment:
        return Alignment(tuple(self._links(len(split(source)), len(split(target)))))

    def _links(self, num_source: int, num_target: int) -> Iterator[tuple[int, int]]:
        for i in range(num_target if num_source else 0):
            word = min(i, num_source - 1)
            yield (num_source - 1 - word if self.backwards else word), i

    def _translation(
        self, text: str, n_best: int, split: Callable[[str], list[Span]] | None, prefix: str
    ) -> Translation:
        hypotheses: list[TextHypothesis] = []
        for rank in range(n_best):
            output = prefix + self.rule(text) + "!" * rank
            alignment = None if split is None else self._alignment(text, output, split)
            given = TextHypothesis.given(output, alignment)
            hypotheses.append(replace(given, finished="endless" not in text.split()))
        return Translation(text, hypotheses[0].text, 0.0, tuple(hypotheses))


def rule_model(
    name: str,
    translator: RuleTranslator,
    pairs: Sequence[tuple[str, str]] = (("en", "de"),),
    *,
    threads: int = 1,
) -> ServedModel:
    """Return a model of those pairs, all with one translator."""

    def options(n_best: int) -> SearchOptions:
        return SearchOptions(strategy=BeamSearch(beam_size=max(4, n_best)), n_best=n_best)

    pairs_of_model = frozenset(Pair(*each) for each in pairs)
    return ServedModel(name, pairs_of_model, lambda pair: ServedPair(translator, options), threads=threads)


def rule_service(rule: Callable[[str], str] = str.upper, **limits: float) -> TranslationService:
    """Return a service from English to German by a rule."""
    model = rule_model("a rule", RuleTranslator(rule))
    return TranslationService([model], Limits(**limits), Metrics())  # type: ignore[arg-type]
