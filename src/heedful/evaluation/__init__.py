"""Scores that can be published, and reports of them."""
