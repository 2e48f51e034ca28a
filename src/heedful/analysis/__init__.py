"""Attention maps, the importance of heads, learning curves, and pictures of the paper.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

if TYPE_CHECKING:
    from heedful.analysis.attention_maps import AttentionKind
    from heedful.analysis.explanation import ExplainedSentence

__all__ = [
    "AttentionKind",
    "ExplainedSentence",
]

__getattr__ = front(
    __name__,
    {
        "attention_maps": ("AttentionKind",),
        "explanation": ("ExplainedSentence",),
    },
)
