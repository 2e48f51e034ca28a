"""A run of training on disk and what it needs: set-up, directory, model card, prepared text."""
