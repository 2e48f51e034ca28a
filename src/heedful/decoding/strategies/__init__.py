"""Search strategies: frozen dataclasses of their settings, each with its algorithm over step functions."""
