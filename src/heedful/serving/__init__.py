"""The translation service: several wire dialects over one batching queue for each model."""
