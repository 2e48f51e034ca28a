"""Hugging Face: models as transformers saves them, and the hub."""
