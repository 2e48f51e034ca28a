"""The Transformer of "Attention Is All You Need": its formulas, and named departures from them."""
