"""Parts that later models have in place of the paper's: options, all of them off by default."""
