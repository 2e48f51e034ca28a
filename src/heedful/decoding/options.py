"""The options of a search: its strategy, and what all strategies share."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar, Unpack, cast

from heedful.decoding.glossary import Glossary
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.options import DiverseBeamOptions
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import InputError, OptionError, suggestion
from heedful.settings.arguments import checked, fits
from heedful.settings.keywords import StrategySettings
from heedful.settings.options import BeamOptions, SharedOptions, kinds_of
from heedful.settings.plugins import plugin_part
from heedful.settings.run import Config, DecodeConfig
from heedful.settings.words import SEARCH_WORDS

T = TypeVar("T")
STRATEGIES: dict[str, type[Strategy]] = {
    "greedy": Greedy,
    "beam": BeamSearch,
    "diverse-beam": DiverseBeamSearch,
    "sampling": Sampling,
    "mbr": MinimumBayesRisk,
}


class StrategyChoice(StrategySettings, total=False):
    """The strategy, or its name, with its settings; or whether to sample."""

    strategy: Strategy | str
    sample: bool


class SearchSettings(StrategyChoice, total=False):
    """Changes of a search, as keyword arguments: `StrategyChoice`, and terms."""

    glossary: Glossary | None


@dataclass(frozen=True, kw_only=True, init=False)
class SearchOptions(SharedOptions):
    """How outputs are searched; the defaults are the paper's (section 6.1).

    >>> SearchOptions(beam_size=5, n_best=5).strategy
    BeamSearch(beam_size=5, early_stopping='optimal')
    >>> SearchOptions(strategy=Sampling(), temperature=0.7).strategy.temperature
    0.7

    Fields that are not given have the paper's value, not the bundle's. To change the bundle's search, give
    the fields to `Translator.translate`, or change `Translator.default_options`:
    `replace(translator.default_options, n_best=4)`, with `replace` from `dataclasses`.

    Attributes:
        strategy: the algorithm with its own settings; by default, a beam of four.
        glossary: terms and their translations: if a text has a term, its outputs must contain the
            translation.
    """

    strategy: Strategy = field(default_factory=BeamSearch)
    glossary: Glossary | None = None

    @checked
    def __init__(
        self,
        *,
        strategy: Strategy | None = None,
        glossary: Glossary | None = None,
        **settings: Unpack[StrategySettings],
    ) -> None:
        """Check the options.

        Args:
            strategy: the algorithm; None: `BeamSearch`.
            glossary: terms and the translations that the outputs must contain.
            settings: fields of `SharedOptions`, and settings of the strategy, such as beam_size=5.

        Raises:
            OptionError: an option that does not exist, or an invalid value.
            InputError: a glossary with a strategy that cannot force terms.
        """
        strategy = strategy or BeamSearch()
        of_strategy = names_of(type(strategy))
        check_names(settings, of_strategy | names_of(SharedOptions), ("strategy",))
        shared: dict[str, Any] = {**settings}
        if changes := {name: shared.pop(name) for name in of_strategy & shared.keys()}:
            strategy = replace(cast(Any, strategy), **changes)
        vars(self).update(strategy=strategy, glossary=glossary)
        super().__init__(**shared)
        strategy.check(self)
        if glossary is not None and not strategy.supports_terms:
            raise InputError("glossary: only beam search keeps to it; use a beam, of one or more hypotheses")

    def resolved(self, *, forced_first_id: int | None, max_source_tokens: int | None) -> "SearchOptions":
        """Return the search with these values, which are right: nothing is checked again."""
        changed = copy(self)
        vars(changed).update(forced_first_id=forced_first_id, max_source_tokens=max_source_tokens)
        return changed

    @property
    def beam_size(self) -> int:
        """The number of hypotheses that the strategy keeps for a sentence; 1 without a beam."""
        return getattr(self.strategy, "beam_size", 1)

    @classmethod
    def from_config(cls, config: DecodeConfig, **search: Unpack[SearchSettings]) -> "SearchOptions":
        """Return the search of a configuration, changed by options as for `Translator.translate`.

        The beam is at least as large as the n-best list.
        """
        return search_options(search, config)

    def source_limit(self, config: Config) -> int:
        """Return `max_source_tokens`; if not set, the limit of the bundle or of its training."""
        return self.max_source_tokens or config.decode.max_source_tokens or config.data.max_length


def names_of(kind: type) -> set[str]:
    """Return the names of the fields of a dataclass; none of another class."""
    return {setting.name for setting in fields(kind)} if is_dataclass(kind) else set()


def check_names(
    settings: Mapping[str, object], known: AbstractSet[str], parameters: Iterable[str] = ()
) -> None:
    """Check that a search or a function has these options.

    Raises:
        OptionError: an unknown option; the message names the first one, and a close one: a known one, or one
            of the function's own `parameters`.
    """
    for name in sorted(settings.keys() - known):
        close = suggestion(name, sorted({*known, *parameters}), SEARCH_WORDS)
        raise OptionError(f"unknown option {name!r}{close}")


def search_options(overrides: Mapping[str, Any], config: DecodeConfig) -> SearchOptions:
    """Return the options of a search: the bundle's, changed by overrides.

    If only the n-best list grows, the beam grows with it.

    Args:
        overrides: values of `SearchOptions` and of strategies, by the names of the settings. `strategy` (a
            strategy or its name), `sample` or `samples` replace the bundle's beam search.
        config: the bundle's search.

    Raises:
        OptionError: options that do not exist, invalid values, or contradictory options.
    """
    check_names(overrides, SEARCH_NAMES)
    given = {name: value for name, value in overrides.items() if (name, value) != ("sample", False)}
    chosen = given.get("strategy")
    if chosen is not None or not given.keys().isdisjoint(("sample", "samples")):
        sampling = MinimumBayesRisk if "samples" in given else Sampling
        strategy = with_settings(sampling, given) if chosen is None else parse_strategy(chosen)
        # The bundle's n-best list is for a beam; sampling draws the same number by default.
        n_best = strategy.default_n_best(config.n_best)
    else:
        kind = BeamSearch if _DIVERSITY.isdisjoint(given) else DiverseBeamSearch
        beam_size = min(max(config.beam_size, given.get("n_best", config.n_best)), _LARGEST_BEAM)
        strategy = with_settings(kind, {**dict(config), "beam_size": beam_size, **given})
        n_best = min(config.n_best, strategy.beam_size)
    _check_settings(given, strategy)
    return with_settings(SearchOptions, {**dict(config), "n_best": n_best, **given, "strategy": strategy})


def _check_settings(given: Mapping[str, Any], strategy: Strategy) -> None:
    """Check that a strategy has the settings that are given beside it; a named one takes none."""
    names = types_of_settings(type(strategy)).keys() | {"sample"}
    is_named = given.get("strategy") is not None
    for name in given.keys() - names_of(SearchOptions) - (set() if is_named else names):
        why = f"{type(strategy).__name__} has no such setting; for samples, set sample or samples"
        if name in names and name != "sample":
            why = "give it with the strategy, as in strategy='beam:beam_size=8'"
        raise OptionError(f"{name}: {why}")


def parse_strategy(text: str | Strategy) -> Strategy:
    """Return the strategy of a text NAME or NAME:KEY=VALUE,...; a strategy is returned unchanged.

    Raises:
        OptionError: an unknown name or setting, or an invalid value.
    """
    if not isinstance(text, str):
        if not fits(text, Strategy):
            raise OptionError(f"strategy={text!r}: must be a strategy, such as BeamSearch()")
        return text
    name, _, settings = text.partition(":")
    strategy = STRATEGIES.get(name)
    if strategy is None:
        part, _, settings = settings.partition(":")
        strategy = _plugged(name, part)
    known, values = types_of_settings(strategy), dict[str, object]()
    for setting in settings.split(",") if settings else ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise OptionError(f"strategy {name!r}: {setting!r} is not KEY=VALUE")
        if key not in known:
            hint = suggestion(key, known) if known else "; it has no settings"
            raise OptionError(f"strategy {name!r}: unknown setting {key!r}{hint}")
        if key in values:
            raise OptionError(f"strategy {name!r}: {key!r} is set twice")
        values[key] = _value(key, value, known[key])
    return with_settings(strategy, values)


def with_settings(kind: type[T], values: Mapping[str, object]) -> T:
    """Return a dataclass of settings made from the values that are its fields, or fields of one inside it.

    Raises:
        OptionError: a setting that has neither a value nor a default.
    """
    chosen, kinds = dict[str, object](), kinds_of(cast(type, kind))
    for setting in fields(cast(Any, kind)):
        name, inner = setting.name, kinds[setting.name][0]
        if name in values:
            chosen[name] = values[name]
        elif is_dataclass(inner) and setting.default is not None:
            chosen[name] = with_settings(cast(type, inner), values)
        elif setting.default is setting.default_factory is MISSING:
            raise OptionError(f"{name}: missing; this strategy has no default for it")
    return kind(**chosen)


def _plugged(plugin: str, name: str) -> type[Strategy]:
    """Return the strategy of a plugin."""
    if not name or "=" in name:
        raise OptionError(f"strategy {plugin!r}: unknown{suggestion(plugin, STRATEGIES)}")
    strategy = plugin_part(f"{plugin}:{name}", "strategy")
    if not (isinstance(strategy, type) and is_dataclass(strategy) and hasattr(strategy, "search")):
        raise OptionError(f"strategy {plugin}:{name}: is not a strategy (a dataclass with the method search)")
    return cast(type[Strategy], strategy)


def types_of_settings(kind: type) -> dict[str, Sequence[object]]:
    """Return the types of a strategy's settings, also of a strategy inside it, for example in MBR."""
    settings = dict[str, Sequence[object]]()
    for name in names_of(kind):
        kinds = kinds_of(kind)[name]
        settings |= types_of_settings(cast(type, kinds[0])) if is_dataclass(kinds[0]) else {name: kinds}
    return settings


def _value(name: str, text: str, kinds: Sequence[object]) -> object:
    """Return the value of a setting of these types: a number, a truth value, a text, or none."""
    if isinstance(kinds[0], str):  # the values of a literal type
        return text
    if type(None) in kinds and text == "none":
        return None
    if bool in kinds and text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            if kind in kinds:
                return kind(text)
    if str in kinds:
        return text
    expected = "true or false" if bool in kinds else "a number" if int not in kinds else "a whole number"
    raise OptionError(f"{name}={text!r}: must be {expected}")


def longest_output(config: Config) -> int | None:
    """Return a length limit for programs with one limit for all outputs: the limit of the longest source.

    None: the bundle has neither a limit nor the length ratio of its training text.
    """
    search = config.decode
    if search.max_length is None and search.max_length_ratio is None:
        return None
    limit = search.length_limit(search.max_source_tokens or config.data.max_length)
    return min(limit, config.model.max_positions) if config.model.positions == "learned" else limit


_DIVERSITY = names_of(DiverseBeamOptions) - names_of(BeamOptions)
_LARGEST_BEAM = 1000  # the maximum of `BeamOptions.beam_size`
SEARCH_NAMES = set(SearchSettings.__annotations__)
