"""How sure a calibrated model is of an output: of the sentence, the words and the tokens.

The formulas are in `storage/calibration.py`. The probability of a word is the product over its tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from string import whitespace
from typing import Self

import numpy as np

from heedful.decoding.alignment import split_words, texts_of_tokens, words_between_spaces
from heedful.storage.calibration import Calibration, part_features, sentence_features
from heedful.text.tokenizer import Tokenizer

UNSURE = 0.8  # below this confidence of a sentence, the model is unsure (docs/confidence.md)


@dataclass(frozen=True)
class Confidence:
    """Probabilities that an output is right, as docs/confidence.md defines it.

    Attributes:
        sentence: the probability that the sentence is right; of several sentences, the lowest.
        words: the probability of each word of the text, between spaces.
        tokens: the probability of each id of the output, without end tokens.
    """

    sentence: float
    words: tuple[float, ...]
    tokens: tuple[float, ...]

    @property
    def is_unsure(self) -> bool:
        """Whether the model is unsure of the sentence."""
        return self.sentence < UNSURE

    def by_word(self, text: str) -> list[tuple[str, float]]:
        """Return each word of the text that this is about, and its probability."""
        return list(zip(split_words(text), self.words, strict=True))

    @classmethod
    def joined(cls, parts: Sequence[Self | None], texts: Sequence[str]) -> Self | None:
        """Return the confidence of outputs that form one text; None if one of them has none.

        Args:
            parts: the confidence of each output.
            texts: the text that each output adds, with the space before it. Without a space, its first word
                joins the word before it, and the lower confidence counts.
        """
        known = [each for each in parts if each is not None]
        if not known or len(known) < len(parts):
            return None
        words: list[float] = []
        text = ""
        for part, added in zip(known, texts, strict=True):
            own = list(part.words)
            if words and own and not ({text[-1:], added[:1]} & {*whitespace}):
                words[-1] = min(words[-1], own.pop(0))
            words += own
            text += added
        tokens = chain.from_iterable(part.tokens for part in known)
        return cls(min(part.sentence for part in known), tuple(words), tuple(tokens))


def confidence_of(
    calibration: Calibration, tokenizer: Tokenizer, text: str, ids: Sequence[int], log_probs: Sequence[float]
) -> Confidence | None:
    """Return the confidence in an output; None if it has no tokens.

    Args:
        calibration: the calibration of the model.
        tokenizer: the target tokenizer.
        text: the text of the output.
        ids: the ids of the output, without its end token.
        log_probs: the log-probability of each id, and of the end token if there is one.
    """
    if not log_probs:
        return None
    by_word = word_log_probs(text, texts_of_tokens(tokenizer, text, ids), log_probs[: len(ids)])
    of_words = calibration.word(part_features(by_word, log_probs))
    of_tokens = calibration.token(part_features(log_probs[: len(ids)], log_probs))
    of_sentence = calibration.sentence(sentence_features(log_probs))
    return Confidence(float(of_sentence), tuple(of_words.tolist()), tuple(of_tokens.tolist()))


def word_log_probs(text: str, texts: Sequence[str], log_probs: Sequence[float]) -> list[float]:
    """Return the log-probability of each word between spaces: the sum over its tokens.

    A word without tokens, which replaced an unknown token, has the mean probability of all tokens.

    Args:
        text: the text of the output.
        texts: the part of the text for each token.
        log_probs: the log-probability of each token.
    """
    words = words_between_spaces(text)
    if not words:
        return []
    sums, counts = [0.0] * len(words), [0] * len(words)
    at = word = 0
    for part, log_prob in zip(texts, log_probs, strict=True):
        start, at = at + len(part) - len(part.lstrip(whitespace)), at + len(part)
        while word < len(words) and words[word][1] <= start:
            word += 1
        for number in range(word, len(words)):
            if words[number][0] >= at or start >= at:
                break
            sums[number] += log_prob
            counts[number] += 1
    mean = float(np.log(np.exp(log_probs).mean()))
    return [total if count else mean for total, count in zip(sums, counts, strict=True)]
