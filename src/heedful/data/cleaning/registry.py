"""All filters, in the order of reports: a new one is a function elsewhere and a line here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

import numpy as np

from heedful.data.cleaning import corpus_filters as corpus
from heedful.data.cleaning import filters as pair_filters
from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.survey import HeldOut, Survey

Check = Callable[[Pair], bool]


@dataclass(frozen=True)
class Filter:
    """A named check of pairs.

    Attributes:
        name: the name on the command line and in reports.
        finds: a description of the faults, the first sentence of its docstring.
        build: returns the check for a corpus, or None if the filter cannot be applied to it.
        removes: whether `--fix` removes the pairs by default.
        needs: an optional package that it needs, or None.
    """

    name: str
    finds: str
    build: Callable[[Survey], Check | None]
    removes: bool = True
    needs: str | None = None


def of_pair(name: str, check: Check, *, removes: bool = True) -> Filter:
    """Return a filter that looks only at the pair."""
    return Filter(name, _first_line(check), lambda survey: check, removes)


def _of_corpus(
    name: str,
    find: Callable[[Survey], corpus.Mask | Check | None],
    *,
    removes: bool = True,
    needs: str | None = None,
) -> Filter:
    """Return a filter that marks pairs of a corpus, or that checks a pair in a way that depends on it."""

    def build(survey: Survey) -> Check | None:
        found = find(survey)
        if not isinstance(found, np.ndarray):
            return found
        flags = found.tobytes()
        return lambda pair: flags[pair.index] != 0

    return Filter(name, _first_line(find), build, removes, needs)


def _of_held_out(name: str, description: str) -> Iterator[Filter]:
    """Yield the filters of the overlap with a held-out set."""
    for prefix, mask, removes in (
        ("in", corpus.in_held_out, True),
        ("nearly-in", corpus.nearly_in_held_out, True),
        ("source-in", corpus.source_in_held_out, False),
    ):
        marked = _of_corpus(f"{prefix}-{name}", partial(_overlap, mask=mask, name=name), removes=removes)
        yield replace(marked, finds=_first_line(mask).replace("held-out", description))


def _overlap(survey: Survey, mask: Callable[[Survey, HeldOut], corpus.Mask], name: str) -> corpus.Mask | None:
    """Return the mask of a held-out set; None if the survey has no such set."""
    return mask(survey, survey.held_out[name]) if name in survey.held_out else None


def _first_line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().split("\n", 1)[0]


EMPTY = of_pair("empty", pair_filters.empty)

# `removes=False`: many of the pairs that it finds are correct, or a matter of taste (docs/corpus.md).
FILTERS: tuple[Filter, ...] = (
    EMPTY,
    of_pair("too-long", pair_filters.too_long, removes=False),
    of_pair("too-short", pair_filters.too_short, removes=False),
    of_pair("length-ratio", pair_filters.length_ratio),
    _of_corpus("outlier", corpus.outlier, removes=False),
    of_pair("long-word", pair_filters.long_word),
    of_pair("word-length", pair_filters.word_length),
    of_pair("no-letters", pair_filters.no_letters),
    of_pair("many-digits", pair_filters.many_digits, removes=False),
    of_pair("few-letters", pair_filters.few_letters, removes=False),
    _of_corpus("script", corpus.other_script),
    _of_corpus("language", corpus.other_language, needs="py3langid"),
    _of_corpus("swapped", corpus.swapped_languages, needs="py3langid"),
    of_pair("identical", pair_filters.identical),
    of_pair("only-addresses", pair_filters.only_addresses),
    of_pair("addresses-differ", pair_filters.addresses_differ, removes=False),
    of_pair("numbers-differ", pair_filters.numbers_differ, removes=False),
    of_pair("terminal-punctuation", pair_filters.terminal_punctuation, removes=False),
    of_pair("repeated-words", pair_filters.repeated_words),
    of_pair("brackets", pair_filters.brackets, removes=False),
    of_pair("control-characters", pair_filters.control_characters),
    _of_corpus("mojibake", pair_filters.mojibake, needs="ftfy"),
    of_pair("decomposed", pair_filters.decomposed, removes=False),
    of_pair("html", pair_filters.html),
    of_pair("escaped-characters", pair_filters.escaped_characters),
    of_pair("placeholders", pair_filters.placeholders),
    of_pair("breadcrumbs", pair_filters.breadcrumbs),
    of_pair("spaced-letters", pair_filters.spaced_letters),
    of_pair("glued-words", pair_filters.glued_words),
    _of_corpus("duplicate-pair", corpus.duplicate_pair),
    _of_corpus("near-duplicate", corpus.near_duplicate),
    _of_corpus("duplicate-source", corpus.duplicate_source, removes=False),
    *_of_held_out("valid", "validation"),
    *_of_held_out("test", "test"),
)


class PairChecker:
    """Checks each pair of a surveyed corpus with all pair_filters.

    `missing` has the package that a filter needs and that is not installed, by filter.
    """

    def __init__(self, survey: Survey, *, filters: Sequence[Filter] = FILTERS) -> None:
        self.missing: dict[str, str] = {}
        self.applied: list[Filter] = []
        self._checks: dict[str, Check] = {}
        for pair_filter in filters:
            needs = pair_filter.needs
            if needs and find_spec(needs) is None:
                self.missing[pair_filter.name] = needs
            elif check := pair_filter.build(survey):
                self.applied.append(pair_filter)
                self._checks[pair_filter.name] = check
        self._checks.pop(EMPTY.name, None)

    def faults(self, pair: Pair) -> list[str]:
        """Return the names of the filters that find a fault; of an empty pair only "empty"."""
        if pair_filters.empty(pair):
            return [EMPTY.name]
        return [name for name, check in self._checks.items() if check(pair)]
