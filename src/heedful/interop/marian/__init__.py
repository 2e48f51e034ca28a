"""MarianMT: opus-mt models of transformers, in and out."""
