"""The options of a search: its strategy, and what all strategies share."""

from dataclasses import dataclass, field
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
        """The search that a configuration asks for."""
        return cls(
            strategy=BeamSearch(beam_size=config.beam_size, early_stopping=config.early_stopping),
            n_best=config.n_best,
            length_penalty=config.length_penalty,
            length_normalization=config.length_normalization,
            max_length_offset=config.max_length_offset,
            max_length=config.max_length,
            min_length=config.min_length,
            max_source_tokens=config.max_source_tokens,
            forced_first_id=config.forced_first_id,
            forced_last_id=config.forced_last_id,
            suppressed_ids=config.suppressed_ids,
            renormalize=config.renormalize,
            no_repeat_ngram_size=config.no_repeat_ngram_size,
            repetition_penalty=config.repetition_penalty,
        )
