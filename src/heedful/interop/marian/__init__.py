"""MarianMT: import and export of transformers' opus-mt models."""
