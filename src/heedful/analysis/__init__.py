"""Attention maps and learning curves, as data and as images."""
