"""All filters, in the order of reports: a new one is a function elsewhere and a line here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from heedful.data.cleaning import corpus_filters as corpus
from heedful.data.cleaning import filters as characters
from heedful.data.cleaning import filters as content
from heedful.data.cleaning import filters as lengths
from heedful.data.cleaning.filters import mojibake
from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.survey import Survey

Check = Callable[[Pair], bool]


@dataclass(frozen=True)
class Filter:
    """A named check of pairs.

    Attributes:
        name: on the command line and in reports.
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


def _of_corpus(name: str, mask: Callable[[Survey], corpus.Mask | None], *, removes: bool = True) -> Filter:
    """Return a filter that marks pairs of a corpus."""

    def build(survey: Survey) -> Check | None:
        marks = mask(survey)
        if marks is None:
            return None
        flags = marks.tobytes()
        return lambda pair: flags[pair.index] != 0

    return Filter(name, _first_line(mask), build, removes)


def _of_survey(
    name: str, build: Callable[[Survey], Check | None], *, needs: str | None = None, removes: bool = True
) -> Filter:
    """Return a filter whose check of a pair depends on the corpus."""
    return Filter(name, _first_line(build), build, removes, needs)


def _first_line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().split("\n", 1)[0]


EMPTY = of_pair("empty", lengths.empty)

# `removes=False`: many of the pairs that it finds are correct, or a matter of taste (docs/corpus.md).
FILTERS: tuple[Filter, ...] = (
    EMPTY,
    of_pair("too-long", lengths.too_long, removes=False),
    of_pair("too-short", lengths.too_short, removes=False),
    of_pair("length-ratio", lengths.length_ratio),
    _of_corpus("outlier", corpus.outlier, removes=False),
    of_pair("long-word", lengths.long_word),
    of_pair("word-length", lengths.word_length),
    of_pair("no-letters", characters.no_letters),
    of_pair("many-digits", characters.many_digits, removes=False),
    of_pair("few-letters", characters.few_letters, removes=False),
    _of_survey("script", corpus.other_script),
    _of_survey("language", corpus.other_language, needs="py3langid"),
    _of_survey("swapped", corpus.swapped_languages, needs="py3langid"),
    of_pair("identical", content.identical),
    of_pair("only-addresses", content.only_addresses),
    of_pair("addresses-differ", content.addresses_differ, removes=False),
    of_pair("numbers-differ", content.numbers_differ, removes=False),
    of_pair("terminal-punctuation", content.terminal_punctuation, removes=False),
    of_pair("repeated-words", content.repeated_words),
    of_pair("brackets", content.brackets, removes=False),
    of_pair("control-characters", characters.control_characters),
    _of_survey("mojibake", mojibake, needs="ftfy"),
    of_pair("html", characters.html),
    of_pair("escaped-characters", characters.escaped_characters),
    of_pair("placeholders", characters.placeholders),
    of_pair("breadcrumbs", characters.breadcrumbs),
    of_pair("spaced-letters", characters.spaced_letters),
    of_pair("glued-words", characters.glued_words),
    _of_corpus("duplicate-pair", corpus.duplicate_pair),
    _of_corpus("near-duplicate", corpus.near_duplicate),
    _of_corpus("duplicate-source", corpus.duplicate_source, removes=False),
    _of_corpus("in-valid", corpus.in_valid),
    _of_corpus("nearly-in-valid", corpus.nearly_in_valid),
    _of_corpus("source-in-valid", corpus.source_in_valid, removes=False),
    _of_corpus("in-test", corpus.in_test),
    _of_corpus("nearly-in-test", corpus.nearly_in_test),
    _of_corpus("source-in-test", corpus.source_in_test, removes=False),
)


class PairChecker:
    """Checks each pair of a surveyed corpus with all filters.

    Attributes:
        applied: the filters that can be applied to the corpus.
        missing: the package that a filter needs and that is not installed, by filter.
    """

    def __init__(self, survey: Survey, filters: Sequence[Filter] = FILTERS) -> None:
        self.missing = {f.name: f.needs for f in filters if f.needs and find_spec(f.needs) is None}
        built = [(each, each.build(survey)) for each in filters]
        checks = [(each, check) for each, check in built if check is not None]
        self.applied = [each for each, _ in checks]
        self._checks = [(each.name, check) for each, check in checks if each is not EMPTY]

    def faults(self, pair: Pair) -> list[str]:
        """Return the names of the filters that find a fault; of an empty pair only "empty"."""
        if lengths.empty(pair):
            return [EMPTY.name]
        return [name for name, check in self._checks if check(pair)]
