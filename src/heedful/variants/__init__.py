"""Architecture variants of later models, all off by default."""
