"""The Transformer of "Attention Is All You Need": its formulas, and named departures from them."""

from heedful.model.transformer import Transformer

__all__ = ["Transformer"]
