"""Train tokenizers on the training text."""

import io
import random
import re
from collections.abc import Iterable, Sequence
from itertools import chain

import sentencepiece

from heedful.config import TokenizerConfig
from heedful.errors import TokenizerError
from heedful.text.pair import TokenizerPair
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
_SMALLEST = 5
MAX_LINES = 2_000_000  # of one model; more text hardly changes the vocabulary but needs much more memory
_MAX_LINE_BYTES = 1 << 30  # the most that SentencePiece accepts; a longer line would be skipped silently
_NUM_THREADS = 4  # fixed, never the machine's count: the unigram model's sums depend on it
_QUIET = 2


def train_tokenizers(
    src_lines: Sequence[str], tgt_lines: Sequence[str], config: TokenizerConfig, *, seed: int
) -> TokenizerPair:
    """Train one tokenizer for source and target (`config.joint`) or one for each.

    Pass the training split only. The result is a pure function of the arguments; `seed` matters only if there
    are more than MAX_LINES lines, of which a random sample is used. The vocabulary has exactly
    `config.vocab_size` tokens for the kinds bpe and unigram, at most that many for char and word.

    Raises:
        TokenizerError: the text is empty, or too small for the vocabulary size.
    """
    if config.vocab_size < _SMALLEST:
        raise TokenizerError(
            f"tokenizer.vocab_size={config.vocab_size} has no space besides pad, unk, bos and eos; "
            f"the smallest possible is {_SMALLEST}"
        )
    if config.joint:
        lines = _sample_lines((src_lines, tgt_lines), seed)
        joint = _train(lines, config, text="source and target")
        return TokenizerPair(joint, joint)
    tokenizers: list[SentencePieceTokenizer] = []
    too_large: list[_VocabularyTooLargeError] = []
    for text, lines in (("source", src_lines), ("target", tgt_lines)):
        try:
            tokenizers.append(_train(_sample_lines((lines,), seed), config, text=text))
        except _VocabularyTooLargeError as error:
            too_large.append(error)
    if too_large:
        raise min(too_large, key=lambda error: error.largest)
    return TokenizerPair(*tokenizers)


class _VocabularyTooLargeError(TokenizerError):
    """The vocabulary is larger than the text supports; `largest` is possible."""

    def __init__(self, vocab_size: int, text: str, largest: int) -> None:
        super().__init__(
            f"tokenizer.vocab_size={vocab_size} is more than the {text} training text supports; "
            f"the largest possible is {largest}: set tokenizer.vocab_size={largest} or use more text"
        )
        self.largest = largest


def _sample_lines(texts: Sequence[Sequence[str]], seed: int) -> Iterable[str]:
    """Return all lines of the texts, or a random sample of MAX_LINES, in order."""
    total = sum(len(text) for text in texts)
    if total <= MAX_LINES:
        return chain.from_iterable(texts)
    chosen = sorted(random.Random(seed).sample(range(total), MAX_LINES))
    first = len(texts[0])
    return (texts[0][i] if i < first else texts[1][i - first] for i in chosen)


def _train(lines: Iterable[str], config: TokenizerConfig, *, text: str) -> SentencePieceTokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab_size,
            hard_vocab_limit=config.kind in ("bpe", "unigram"),
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            byte_fallback=config.byte_fallback,
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            # A word includes the space before it, so ⁇ must too.
            unk_surface=" ⁇" if config.kind == "word" else "⁇",
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=_QUIET,
        )
    except RuntimeError as error:
        raise _explain(str(error), config.vocab_size, text) from error
    return SentencePieceTokenizer.from_bytes(model.getvalue())


def _explain(problem: str, vocab_size: int, text: str) -> TokenizerError:
    """Return the exception for an error message of SentencePiece."""
    if too_high := re.search(r"set it to a value <= (\d+)", problem):
        return _VocabularyTooLargeError(vocab_size, text, int(too_high[1]))
    where = f"tokenizer.vocab_size={vocab_size}"
    if too_low := re.search(r"smaller than required_chars\. \d+ vs (\d+)", problem):
        return TokenizerError(
            f"{where} has no space for the single characters of the {text} text; "
            f"the smallest possible is {too_low[1]}: raise it, or lower tokenizer.character_coverage"
        )
    if "sentences_.empty()" in problem or "all_chars_count" in problem:
        return TokenizerError(f"tokenizer: the {text} training text is empty; nothing can be learned from it")
    return TokenizerError(
        f"{where}: SentencePiece cannot train on the {text} text: {' '.join(problem.split())}"
    )
