"""The options of a search: its strategy, and what all strategies share."""

from dataclasses import dataclass, field, fields
from typing import Self

from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.protocol import Strategy
from heedful.decoding.task import SharedOptions
from heedful.errors import InputError
from heedful.settings.run import DecodeConfig


@dataclass(frozen=True, kw_only=True)
class SearchOptions(SharedOptions):
    """How outputs are searched; the defaults are the paper's (section 6.1).

    The strategy has its own settings; the others are those that all strategies share.

    Attributes:
        strategy: the algorithm, with its own settings: a beam of four.
    """

    strategy: Strategy = field(default_factory=BeamSearch)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.strategy, "search"):
            raise InputError(f"strategy={self.strategy!r}: must be a strategy, such as BeamSearch()")
        self.strategy.check(self)

    @classmethod
    def from_config(cls, config: DecodeConfig) -> Self:
        """Return the search that a configuration asks for."""
        shared = [each.name for each in fields(SharedOptions) if each.name in DecodeConfig.model_fields]
        return cls(
            strategy=BeamSearch(beam_size=config.beam_size, early_stopping=config.early_stopping),
            **{name: getattr(config, name) for name in shared},
        )
