"""fairseq: checkpoints and dictionaries of its transformer."""
