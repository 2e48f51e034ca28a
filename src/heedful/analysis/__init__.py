"""Attention maps, the importance of heads, learning curves, and pictures of the paper.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.analysis.attention_maps import AttentionKind
    from heedful.analysis.explanation import ExplainedSentence

__all__ = [
    "AttentionKind",
    "ExplainedSentence",
]
_HOMES = {
    "AttentionKind": "attention_maps",
    "ExplainedSentence": "explanation",
}


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
