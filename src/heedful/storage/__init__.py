"""Bundles and weights on disk, and their checks."""
