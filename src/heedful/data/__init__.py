"""From files of parallel text to batches of ids: corpus, store, sampler, batches."""
