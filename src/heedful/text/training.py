"""Train tokenizers on the training text."""

import io
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import sentencepiece

from heedful.errors import TokenizerError
from heedful.settings.run import TokenizerConfig
from heedful.text.pair import TokenizerPair
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer
from heedful.text.vocabulary_tokenizer import ByteTokenizer

_CACHED_WORDS = 1 << 17
_CACHED_LENGTH = 32  # in symbols; longer words are rarely repeated and would fill the cache
# No token of our models crosses a space, so each word is segmented by itself.
_WORD = re.compile("▁?[^▁]+|▁")
_UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character scores this much below the worst token

Symbols = tuple[str, ...]


class SegmentationSampler:
    """Samples segmentations: `sampler(text, rng)` returns ids and is a pure function of `rng`'s state.

    Args:
        tokenizer: a bpe or unigram model; char and word models have only one segmentation.
        rate: for bpe, the probability that a merge is dropped (Provilkov et al. use 0.1); for unigram, the
            exponent of the probabilities (Kudo uses 0.1 to 0.5; the smaller, the more uniform). 0 is off:
            the tokenizer's own segmentation.

    Raises:
        TokenizerError: it is not a SentencePiece tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        if not isinstance(tokenizer, SentencePieceTokenizer):
            raise TokenizerError(
                f"tokenizer.sampling={rate}: an imported tokenizer cannot sample segmentations; "
                "set tokenizer.sampling=0"
            )
        self._tokenizer = tokenizer
        self._rate = rate
        self._scores = tokenizer.token_scores()
        self._byte_ids = tokenizer.byte_ids()
        self._longest = max((len(token) for token in self._scores), default=1)
        self._unknown_score = (
            min((score for _, score in self._scores.values()), default=0.0) - _UNKNOWN_PENALTY
        )
        self._merges = lru_cache(maxsize=_CACHED_WORDS)(self._find_merges)
        self._lattice = lru_cache(maxsize=_CACHED_WORDS)(self._build_lattice)

    def __call__(self, text: str, rng: random.Random) -> list[int]:
        """Return the ids of a sampled segmentation, without bos and eos."""
        if self._rate == 0.0 or self._tokenizer.kind in ("char", "word"):
            return self._tokenizer.encode(text)
        segment = self._drop_merges if self._tokenizer.kind == "bpe" else self._walk_lattice
        words = _WORD.findall(self._tokenizer.normalize(text))
        return self._to_ids([symbol for word in words for symbol in segment(word, rng)])

    def _to_ids(self, symbols: list[str]) -> list[int]:
        """Return the ids as SentencePiece: unknown characters become bytes, or one unk for each run."""
        ids: list[int] = []
        after_unknown = False
        for symbol in symbols:
            known = self._scores.get(symbol)
            if known is not None:
                ids.append(known[0])
            elif self._byte_ids:
                ids.extend(self._byte_ids[byte] for byte in symbol.encode("utf-8"))
            elif not after_unknown:
                ids.append(self._tokenizer.unk_id)
            after_unknown = known is None
        return ids

    def _drop_merges(self, word: str, rng: random.Random) -> Symbols:
        """Apply algorithm 1 of Provilkov et al.: before each step, each possible merge may be dropped.

        Taking the best of the merges that are left equals trying them from the best on until one is not
        dropped, which needs far fewer random numbers.
        """
        symbols = tuple(word)
        while True:
            find = self._merges if len(symbols) <= _CACHED_LENGTH else self._find_merges
            for i in find(symbols):
                if rng.random() >= self._rate:
                    symbols = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
                    break
            else:
                return symbols

    def _find_merges(self, symbols: Symbols) -> tuple[int, ...]:
        """Return the indices of symbols that may merge with the next: the earliest learned, then leftmost."""
        merges = []
        for i in range(len(symbols) - 1):
            known = self._scores.get(symbols[i] + symbols[i + 1])
            if known is not None:
                merges.append((-known[1], i))
        return tuple(i for _, i in sorted(merges))

    def _walk_lattice(self, word: str, rng: random.Random) -> Symbols:
        """Sample a segmentation in proportion to (product of its tokens' probabilities)^rate."""
        lattice = self._lattice(word)
        end = len(word)
        symbols = []
        while end > 0:
            starts, cumulative = lattice[end]
            (start,) = rng.choices(starts, cum_weights=cumulative)
            symbols.append(word[start:end])
            end = start
        return tuple(reversed(symbols))

    def _build_lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return, for each end position, the possible starts of the last token and their cumulative weights.

        A weight is the sum over all segmentations up to the end with that start (the forward algorithm), so
        sampling backwards from the end samples whole segmentations exactly.
        """
        log_sums = [0.0]
        lattice: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, log_weights = [], []
            for start in range(max(0, end - self._longest), end):
                known = self._scores.get(word[start:end])
                if known is None and end - start > 1:
                    continue
                score = self._unknown_score if known is None else known[1]
                starts.append(start)
                log_weights.append(log_sums[start] + self._rate * score)
            best = max(log_weights)
            weights = [math.exp(weight - best) for weight in log_weights]
            cumulative = list(accumulate(weights))
            lattice.append((starts, cumulative))
            log_sums.append(best + math.log(cumulative[-1]))
        return lattice


BOS_ID, EOS_ID = 2, 3
_SMALLEST = 5
MAX_LINES = 2_000_000  # of one model; more text hardly changes the vocabulary but needs much more memory
_MAX_LINE_BYTES = 1 << 30  # the most that SentencePiece accepts; a longer line would be skipped silently
# SentencePiece skips lines with this character, its sign for an unknown one.
_RESERVED = "▅"
_MAX_WORD = 1000  # characters
_NAMES = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}  # in the order of their ids
_BOUNDARY = "\x1f"  # which SentencePiece takes into no token
_NUM_THREADS = 4  # fixed, never the machine's count: the unigram model's sums depend on it
_QUIET = 2


def train_tokenizers(
    src_lines: Sequence[str],
    tgt_lines: Sequence[str],
    config: TokenizerConfig,
    *,
    seed: int,
    tags: Sequence[str] = (),
    notify: Callable[[str], None] = lambda _: None,
) -> TokenizerPair:
    """Train one tokenizer for source and target (`config.joint`) or one for each.

    Pass the training split only. The result is a pure function of the arguments; `seed` matters only if there
    are more than MAX_LINES lines: then a random sample is used. The vocabulary has `config.vocab_size` tokens
    for the kinds bpe and unigram, at most that many for char and word. If the size is not set, a small text
    gets as many tokens as it supports, and `notify` receives a line about it. The kind byte has 384 tokens
    and needs no training. `tags` are tokens of the source's vocabulary that no text contains.

    Raises:
        TokenizerError: the text is empty, or too small for the vocabulary size.
    """
    if config.kind == "byte":
        one = ByteTokenizer()
        return TokenizerPair(one, one if config.joint else ByteTokenizer())
    if config.vocab_size < _SMALLEST:
        raise TokenizerError(
            f"tokenizer.vocab_size={config.vocab_size} has no space besides pad, unk, bos and eos; "
            f"the smallest possible is {_SMALLEST}"
        )
    try:
        return _trained(src_lines, tgt_lines, config, seed=seed, tags=tags)
    except _VocabularyTooLargeError as error:
        if "vocab_size" in config.model_fields_set:
            raise
        fitting = config.replace(vocab_size=error.largest)
    notify(f"{fitting.vocab_size:,} tokens in the vocabulary: this text supports no more")
    return _trained(src_lines, tgt_lines, fitting, seed=seed, tags=tags)


def _trained(
    src_lines: Sequence[str],
    tgt_lines: Sequence[str],
    config: TokenizerConfig,
    *,
    seed: int,
    tags: Sequence[str],
) -> TokenizerPair:
    if config.joint:
        both = _SampledLines((src_lines, tgt_lines), seed)
        joint = _train(both, config, text="source and target", tags=tags)
        return TokenizerPair(joint, joint)
    tokenizers: list[SentencePieceTokenizer] = []
    too_large: list[_VocabularyTooLargeError] = []
    for text, lines, own_tags in (("source", src_lines, tags), ("target", tgt_lines, ())):
        try:
            tokenizers.append(_train(_SampledLines((lines,), seed), config, text=text, tags=own_tags))
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


@dataclass(frozen=True)
class _SampledLines:
    """All lines of one text or two, or a random sample of MAX_LINES, in order."""

    texts: Sequence[Sequence[str]]
    seed: int

    def __iter__(self) -> Iterator[str]:
        total = sum(len(text) for text in self.texts)
        if total <= MAX_LINES:
            yield from chain.from_iterable(self.texts)
            return
        first, *others = self.texts
        for i in sorted(random.Random(self.seed).sample(range(total), MAX_LINES)):
            yield first[i] if i < len(first) else others[0][i - len(first)]


@dataclass(frozen=True)
class _ShortWords:
    """Lines without words that SentencePiece cannot have as a token, which stay unknown."""

    lines: Iterable[str]

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            is_usual = len(line) <= _MAX_WORD
            yield line if is_usual else " ".join(word for word in line.split(" ") if len(word) <= _MAX_WORD)


def _train(
    lines: Iterable[str], config: TokenizerConfig, *, text: str, tags: Sequence[str]
) -> SentencePieceTokenizer:
    """Train one model on lines, which are iterated over twice.

    A text may spell the names of the special tokens, and SentencePiece learns nothing from what looks like
    one: in training they have names of the same length that no text has.
    """
    model = io.BytesIO()
    hidden = {name: f"{_BOUNDARY}{name[1:-1]}{_BOUNDARY}" for name in _NAMES.values()}
    special: dict[str, Any] = {f"{kind}_id": i for i, kind in enumerate(_NAMES)}
    special |= {f"{kind}_piece": hidden[name] for kind, name in _NAMES.items()}
    if config.kind == "word":
        lines = _ShortWords(lines)
    reserved = [_RESERVED] if config.kind != "word" and any(_RESERVED in line for line in lines) else []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line.replace(_RESERVED, " ") for line in lines),
            model_writer=model,
            model_type=config.kind,
            vocab_size=config.vocab_size,
            hard_vocab_limit=config.kind in ("bpe", "unigram"),
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            remove_extra_whitespaces=not config.keep_spaces,
            byte_fallback=config.byte_fallback,
            **special,
            # A word includes the space before it, so ⁇ must too.
            unk_surface=" ⁇" if config.kind == "word" else "⁇",
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=_QUIET,
            control_symbols=list(tags),
            user_defined_symbols=reserved,
        )
    except RuntimeError as error:
        raise _explain(str(error), config.vocab_size, text) from error
    trained = model.getvalue()
    for name, in_training in hidden.items():
        trained = trained.replace(in_training.encode(), name.encode())
    return SentencePieceTokenizer(trained)


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
