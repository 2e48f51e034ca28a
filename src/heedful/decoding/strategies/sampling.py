"""Sampling: each next token is drawn. Minimum Bayes risk: the sample most similar to the others."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from array_api_compat import array_namespace
from typing_extensions import override

from heedful.decoding.constraints import Constraints
from heedful.decoding.steps import (
    Array,
    Floats,
    Ints,
    NextTokens,
    Start,
    StepFunction,
    check_numbers,
    kth_largest,
    like,
    on_host,
    softmax,
)
from heedful.decoding.strategies.options import MinimumBayesRiskOptions, SamplingOptions
from heedful.decoding.strategies.protocol import Strategy
from heedful.decoding.task import NO_CONTINUATION, Hypothesis, PartialOutputs, SearchTask
from heedful.decoding.translation import Translation
from heedful.errors import InputError, OptionError
from heedful.settings.options import SharedOptions

_ROWS_AT_ONCE = 1024  # of a step: each row has keys and values for all of its positions
_LOG_PROBS_AT_ONCE = 1 << 25  # of a step, 128 MiB in float32, or one row
_NUMBERS_AT_ONCE = 1 << 20  # of a distribution, 8 MiB in float64, or one row
_POSITIONS_AT_ONCE = 64  # positions of random numbers; a multiple of 4


@dataclass(frozen=True, kw_only=True)
class Sampling(SamplingOptions, Strategy):
    """Sampling: draw `n_best` outputs of each sentence, each independent of the others.

    The defaults sample from the model's distribution. The samples of a sentence depend on the model, the
    options and the source only, not on other sentences, the batch size or the order, because the random
    numbers come from the source (see `random_numbers`). The first k outputs are the same for every `n_best`
    of at least k. The same sentence has the same outputs each time; another seed gives other outputs.

    Attributes:
        temperature: the divisor of log-probabilities; below 1, probable tokens become more probable.
        top_k: sample from this number of most probable tokens; None: from all.
        top_p: sample from the fewest most probable tokens with at least this sum of probabilities.
        min_p: sample from tokens with at least this share of the best token's probability.
        epsilon: sample from tokens with at least this probability, and the best one.
        seed: the seed of the random generator.
    """

    @override
    def check(self, options: SharedOptions) -> None:
        if options.coverage_penalty:
            raise OptionError(
                f"coverage_penalty={options.coverage_penalty}: ranks no samples; leave out one of the two"
            )

    def default_n_best(self, n_best: int) -> int:
        """Return the size of the bundle's n-best list."""
        return n_best

    @override
    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        """Return the number of sentences with all samples drawn at once."""
        return max(1, samples_at_once(vocab_size) // n_best)

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Draw the outputs of each sentence: see `Strategy`.

        At most `samples_at_once` are drawn at once, or one for each sentence. Outputs are in the order of
        drawing. Their log-probabilities are the model's own, at temperature 1 and before cut-offs and
        penalties.
        """
        num_samples, drawn = task.options.n_best, [list[Hypothesis]() for _ in task.max_lengths]
        max_samples = max(1, samples_at_once(task.vocab_size or 1) // max(1, len(drawn)))
        for first in range(0, num_samples, max_samples):
            some = task.with_n_best(min(max_samples, num_samples - first))
            with start() as step:
                part = self._draw(step, some, first)
            for samples, more in zip(drawn, part, strict=True):
                samples += more
        return drawn

    def _draw(self, step: StepFunction, task: SearchTask, first: int) -> list[list[Hypothesis]]:
        """Draw `n_best` outputs of each sentence; the first one has the number `first`."""
        copies = task.options.n_best
        outputs = PartialOutputs(np.repeat(task.max_lengths, copies).tolist(), eos_id=task.eos_id)
        constraints = Constraints(task)
        random = _RandomNumbers(self.seed, task, copies, first)
        last_ids = task.start_ids()
        while num_live := len(outputs.live):
            task.options.check_cancelled()
            tokens, num_inputs = step(last_ids), len(last_ids)
            # The row of the step for each live output.
            input_rows = np.arange(num_live) // (num_live // num_inputs)
            drawn = [
                _draw(
                    *constraints.distribution(
                        _rows_of(tokens, input_rows[block]),
                        written=outputs.written[block],
                        sentences=outputs.live[block] // copies,
                    ),
                    random.of(outputs.live, outputs.length)[block],
                    self,
                )
                for block in _blocks(num_live, tokens.vocab_size)
            ]
            ids, own_values = map(np.concatenate, zip(*drawn, strict=True))
            rows = outputs.append(ids, own_values)
            if len(rows) and not np.array_equal(input_rows[rows], np.arange(num_inputs)):
                step.reorder(input_rows[rows])
            last_ids = ids[rows]
        samples = outputs.hypotheses(task.options.penalty)
        return [samples[i : i + copies] for i in range(0, len(samples), copies)]


def samples_at_once(vocab_size: int) -> int:
    """Return the maximum number of outputs to draw at once, by the memory for the rows of a step."""
    return max(1, min(_ROWS_AT_ONCE, _LOG_PROBS_AT_ONCE // vocab_size))


def probable(scores: Array, sampling: Sampling) -> Array:
    """Return log-probabilities (rows, V) in float64, -inf for tokens that the cut-offs exclude from sampling.

    The order of the cut-offs is as in transformers: temperature, top-k (Fan et al., 2018), top-p (Holtzman et
    al., 2020), min-p (Nguyen et al., 2024), epsilon (Hewitt et al., 2022). Each cut-off sees the renormalised
    probabilities of the previous one, and keeps at least the best token.
    """
    xp = array_namespace(scores)
    scores = xp.astype(scores, xp.float64) / sampling.temperature

    def without(is_out: Array) -> Array:
        return xp.where(is_out, xp.full_like(scores, -math.inf), scores)

    if sampling.top_k is not None:
        scores = without(scores < kth_largest(scores, min(sampling.top_k, scores.shape[-1])))
    if sampling.top_p < 1:
        order = xp.argsort(scores, axis=-1, descending=True, stable=True)
        probabilities = softmax(xp.take_along_axis(scores, order, axis=-1))
        is_out = xp.zeros_like(order, dtype=xp.bool)  # if the tokens before it are enough
        is_out[:, 1:] = xp.cumulative_sum(probabilities, axis=-1)[:, :-1] >= sampling.top_p
        scores = without(xp.take_along_axis(is_out, xp.argsort(order, axis=-1), axis=-1))
    if sampling.min_p > 0:
        scores = without(scores < xp.max(scores, axis=-1, keepdims=True) + math.log(sampling.min_p))
    if sampling.epsilon > 0:
        is_below_best = scores < xp.max(scores, axis=-1, keepdims=True)
        scores = without((softmax(scores) < sampling.epsilon) & is_below_best)
    return scores


def random_numbers(seed: int, source: Sequence[int], sample: int, count: int, *, start: int = 0) -> Floats:
    """Return the random numbers of one output: one in [0, 1) per token, the same on every machine.

    They come from Philox, a counter-based generator (Salmon et al., 2011), keyed by the hash of seed and
    source; each sample has its own range of the counter. With a larger `count`, the first numbers stay the
    same. `start`, a multiple of 4, skips numbers: the generator makes four per count.
    """
    assert start % 4 == 0
    named = " ".join(map(str, (seed, *source))).encode()
    key = int.from_bytes(hashlib.blake2b(named, digest_size=16).digest(), "little")
    generator = np.random.Philox(key=key, counter=(sample << 64) + start // 4)
    # 52 bits, so that a product with any positive number is below that number.
    return (generator.random_raw(count) >> np.uint64(12)).astype(np.float64) * 2.0**-52


class _RandomNumbers:
    """The random numbers of several outputs of each sentence, computed for some positions at a time."""

    def __init__(self, seed: int, task: SearchTask, copies: int, first: int) -> None:
        self._seed, self._sources, self._copies, self._first = seed, task.sources, copies, first
        self._numbers = np.zeros((len(task.sources) * copies, _POSITIONS_AT_ONCE))
        self._start = -_POSITIONS_AT_ONCE  # the first position of the numbers

    def of(self, outputs: Ints, position: int) -> Floats:
        """Return the numbers of some outputs at a position; positions never decrease."""
        if position >= self._start + _POSITIONS_AT_ONCE:
            self._start = position - position % _POSITIONS_AT_ONCE
            for each in outputs.tolist():
                sentence, sample = divmod(each, self._copies)
                self._numbers[each] = random_numbers(
                    self._seed,
                    self._sources[sentence],
                    self._first + sample,
                    _POSITIONS_AT_ONCE,
                    start=self._start,
                )
        numbers: Floats = self._numbers[outputs, position - self._start]
        return numbers


def _blocks(num_rows: int, vocab_size: int) -> list[slice]:
    """Return blocks of rows, since a distribution in float64 takes several times their memory."""
    max_rows = max(1, _NUMBERS_AT_ONCE // vocab_size)
    return [slice(start, min(start + max_rows, num_rows)) for start in range(0, num_rows, max_rows)]


def _rows_of(tokens: NextTokens, input_rows: Ints) -> NextTokens:
    """Return some rows of a step, in ascending order, with repetitions."""
    first, end = int(input_rows[0]), int(input_rows[-1]) + 1
    some = tokens[np.arange(first, end)]
    some = some.with_log_probs(some.log_probs())  # computed once for all outputs of a row
    return some[input_rows - first] if len(input_rows) > end - first else some


def _draw(scores: Array, own: Array, uniform: Floats, sampling: Sampling) -> tuple[Ints, Floats]:
    """Draw a token of each row: the first one with a cumulative probability above the random number.

    Args:
        scores: the scores of the search, (rows, V).
        own: the model's log-probabilities, (rows, V).
        uniform: the random numbers, (rows,).
        sampling: the cut-offs.

    Returns:
        The tokens and their log-probabilities by the model, each (rows,).
    """
    xp, scores = array_namespace(scores), probable(scores, sampling)
    cumulative = xp.cumulative_sum(softmax(scores), axis=-1)
    total = cumulative[:, -1:]
    is_before = xp.astype(cumulative <= total * like(uniform[:, None], scores), xp.int64)
    ids = xp.clip(xp.sum(is_before, axis=-1, keepdims=True), max=scores.shape[-1] - 1)
    values = xp.take_along_axis(own, ids, axis=-1)
    # One transfer: ids are exact in float64.
    packed = on_host(xp.concat([xp.astype(each, xp.float64) for each in (ids, values, total)], axis=-1))
    if np.isnan(packed[:, 2]).any():
        check_numbers(on_host(scores))
        raise InputError(NO_CONTINUATION)
    return packed[:, 0].astype(np.int64), packed[:, 1]


@dataclass(frozen=True, kw_only=True)
class MinimumBayesRisk(MinimumBayesRiskOptions, Strategy):
    """Minimum Bayes risk: draw samples, and return the text with the best expected utility (sentence chrF).

    Attributes:
        samples: the number of outputs to draw for each sentence.
        sampling: how the samples are drawn.
    """

    sampling: Sampling = field(default_factory=Sampling)

    @override
    def check(self, options: SharedOptions) -> None:
        self.sampling.check(options)

    def num_hypotheses(self, n_best: int) -> int:
        """Return the number of samples that `choose` ranks."""
        return self.samples

    @override
    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        return self.sampling.batch_limit(self.samples, vocab_size)

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Draw the samples of each sentence: see `Strategy`."""
        return self.sampling.search(start, task.with_n_best(self.samples))

    @override
    def choose(self, translation: Translation, n_best: int) -> Translation:
        """Return the best texts, with their expected utilities, from 0 to 100, as scores."""
        return least_risk(translation, sentence_chrf, n_best=n_best)


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """Return sacreBLEU's chrF of a hypothesis against a reference, for this one sentence: 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF  # slow to import

    return float(CHRF().sentence_score(hypothesis, [reference]).score)


def least_risk(
    translation: Translation, utility: Callable[[str, str], float], *, n_best: int = 1
) -> Translation:
    """Rank the distinct texts of samples by their expected utility (Eikema and Aziz, 2020, section 7).

    The expected utility is the mean over all samples as references, the text itself included. For n distinct
    texts, n * n utilities are computed.

    Args:
        translation: a translation with samples of the model's distribution as hypotheses.
        utility: returns the utility of a text, given a reference; higher is better.
        n_best: the number of texts to keep.

    Returns:
        The translation with hypotheses best first, and expected utilities as scores; ties are in the order of
        drawing. An empty line is unchanged.
    """
    counts = Counter(sample.text for sample in translation.hypotheses)
    expected = dict[str, float]()
    for text in counts:
        utilities = (count * utility(text, reference) for reference, count in counts.items())
        expected[text] = sum(utilities) / counts.total()
    first_drawn = {sample.text: sample for sample in reversed(translation.hypotheses)}
    ranked = sorted(counts, key=expected.__getitem__, reverse=True)[:n_best]
    if not ranked:
        return translation
    hypotheses = tuple(replace(first_drawn[text], score=expected[text]) for text in ranked)
    return Translation(translation.source, hypotheses[0].text, hypotheses[0].score, hypotheses)
