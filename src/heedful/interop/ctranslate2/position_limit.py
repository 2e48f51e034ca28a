"""How long sequences may be in an exported model."""

from heedful.config import ModelConfig

NUM_POSITIONS = 2048  # twice the source tokens after which CTranslate2 truncates by default


def position_limit(config: ModelConfig) -> int | None:
    """Return the maximum length of source and target in the exported model, in tokens; None: no limit."""
    if config.positions == "learned":
        return config.max_positions
    return None if config.positions in ("rotary", "relative") else NUM_POSITIONS
