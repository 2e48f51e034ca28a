"""The options of a search: its strategy, and what all strategies share."""

from dataclasses import dataclass, field
from typing import Self

from heedful.decoding.glossary import Glossary
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.protocol import Strategy, with_settings
from heedful.errors import InputError
from heedful.settings.options import SharedOptions
from heedful.settings.run import Config, DecodeConfig


@dataclass(frozen=True, kw_only=True)
class SearchOptions(SharedOptions):
    """How outputs are searched; the defaults are the paper's (section 6.1).

    Fields that are not given are the paper's, not the bundle's. To change the bundle's own search, begin with
    `Translator.default_options`: `replace(translator.default_options, n_best=4)`.

    The strategy has its own settings; the others are those that all strategies share.

    Attributes:
        strategy: the algorithm, with its own settings: a beam of four.
        glossary: whose terms the outputs must contain, where a text has them; None: no terms.
    """

    strategy: Strategy = field(default_factory=BeamSearch)
    glossary: Glossary | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.strategy, "search"):
            raise InputError(f"strategy={self.strategy!r}: must be a strategy, such as BeamSearch()")
        self.strategy.check(self)
        if self.glossary is not None and not getattr(self.strategy, "supports_terms", False):
            raise InputError("glossary: only beam search keeps to it; use a beam, which may be of one")

    @classmethod
    def from_config(cls, config: DecodeConfig) -> Self:
        """Return the search that a configuration asks for; its beam holds at least the n-best list."""
        values = {**dict(config), "beam_size": max(config.beam_size, config.n_best)}
        return with_settings(cls, values | {"strategy": with_settings(BeamSearch, values)})

    def source_limit(self, config: Config) -> int:
        """Return `max_source_tokens`; where it is not set, that of the bundle or of its training."""
        return self.max_source_tokens or config.decode.max_source_tokens or config.data.max_length


def longest_output(config: Config) -> int | None:
    """Return the one limit of all outputs that other programs have: that of the longest source.

    None: the bundle states neither a limit nor the ratio of its training text.
    """
    search = SearchOptions.from_config(config.decode)
    if search.max_length is None and search.max_length_ratio is None:
        return None
    limit = search.length_limit(search.source_limit(config))
    return min(limit, config.model.max_positions) if config.model.positions == "learned" else limit
