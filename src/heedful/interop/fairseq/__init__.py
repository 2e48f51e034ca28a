"""Checkpoints and dictionaries of fairseq's transformer."""
