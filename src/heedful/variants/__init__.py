"""Parts that later models have instead of the paper's: options, all of them off by default."""
