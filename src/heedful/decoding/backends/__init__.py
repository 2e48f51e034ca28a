"""Backends: what computes the next tokens of a search."""
