"""Memory: how much is free, how much was used, what fits, and what to do when it runs out."""
