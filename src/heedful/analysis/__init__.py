"""Attention maps, the importance of heads, learning curves, and pictures of the paper."""

from typing import Literal

AttentionKind = Literal["cross", "encoder", "decoder"]
