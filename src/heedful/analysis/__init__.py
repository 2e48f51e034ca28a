"""What a model attended to and how it learned, as data and as pictures."""
