"""Synthetic parallel text: random words with realistic sentence lengths."""

from pathlib import Path

import numpy as np

# Tokens of a sentence in Multi30k's training set, English to German, with a joint BPE vocabulary of 8,000,
# eos included: 15.3 and 15.8 on average. Both lengths and their ratio are log-normal.
_LOG_LENGTH, _LOG_LENGTH_DEVIATION = 2.682, 0.295
_LOG_RATIO, _LOG_RATIO_DEVIATION = 0.021, 0.169


def write_synthetic_text(src: Path, tgt: Path, *, num_pairs: int, num_words: int, seed: int) -> None:
    """Write two files of random words, parallel and with the sentence lengths of image captions.

    Args:
        src: the file for the source.
        tgt: the file for the target.
        num_pairs: the number of lines of each.
        num_words: the number of distinct words, about equally frequent and the same in source and target.
        seed: of words and lengths.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    log_lengths = rng.normal(_LOG_LENGTH, _LOG_LENGTH_DEVIATION, num_pairs)
    log_ratios = rng.normal(_LOG_RATIO, _LOG_RATIO_DEVIATION, num_pairs)
    for path, logarithms in ((src, log_lengths), (tgt, log_lengths + log_ratios)):
        lengths = np.maximum(np.exp(logarithms).round().astype(int) - 1, 1)  # without eos
        words = rng.permutation(np.arange(lengths.sum()) % num_words)  # each word occurs
        lines = (" ".join(map(str, part)) for part in np.split(words, lengths.cumsum()[:-1]))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
