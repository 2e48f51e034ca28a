"""Encoder-decoder Transformers: train, translate, score, explain."""
