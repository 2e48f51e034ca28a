"""`heedful score`: how probable given translations are."""

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import tee
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from heedful.cli.options import ScoreOverrides
from heedful.cli.streams import bar, check_stdin_once, print_precision, warnings_on_stderr
from heedful.data.streams import Lines, count_pairs, open_input, write_line
from heedful.errors import InputError
from heedful.settings.options import Ensemble, Languages, Option, Prefix, Run, Runtime, ShortlistFile

if TYPE_CHECKING:
    from heedful.decoding.confidence import Confidence
    from heedful.decoding.translation import ScoredText
    from heedful.text import Tokenizer

_LARGEST_EXPONENT = 700.0  # of a number that floats can hold
_PAIRS_SHOWN = 64  # between two movements of the bar
_FLAG = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)%?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score given translations: how probable are they?

    Prints a line for each pair, in order: `log-probability<TAB>score<TAB>target`, in nats. The
    log-probability is the model's own: the sum over the target's tokens and the end of the line. The score is
    that of translate --scores: divided by the length penalty, plus the coverage penalty if there is one. With
    --length-normalization power --length-penalty 1, it is the mean per token.

    The score is the one that a search with the same settings would give this output. Forced tokens cost
    nothing, and suppressed tokens make it -inf. With renormalisation, the probabilities of the remaining
    tokens sum to 1. Beam, groups, sampling and repetition penalty change no score. The score of --mbr is no
    probability and is not computed here. The tokenizer splits each text into tokens. If a search wrote it
    with other tokens, its score differs; use --tgt-ids.

    With --json, each line is an object with the keys source, target, score, log_prob (that of the score,
    before the penalties), model_log_prob and tokens (each with piece, log_prob and model_log_prob). It also
    has confidence, as translate --json does. The logarithm of 0 is null. With --shortlist, all tokens outside
    the shortlist are impossible.

    With --flag, only the pairs to check first are printed, the least confident first, as `line
    number<TAB>confidence<TAB>source<TAB>target`. RUN must be calibrated (docs/confidence.md).

    The last line on stderr has the perplexity of all pairs, from the model's own log-probabilities, per token
    and per word. Words are separated by spaces, and the end of each line counts as one. With --json it is an
    object. A pair of empty lines has the score 0 and is not counted. If only one of the two is empty, the
    pair is scored like any other. A pair with a line that is too long is left out: its numbers are nan (null
    with --json), a warning names the line, and the last line has the number of such pairs.
    """

    run: Run
    src: Annotated[Path, Option("Source lines; .gz too, - for stdin.")]
    tgt: Annotated[Path, Option("Their translations, line by line; .gz too, - for stdin.")]
    tgt_ids: Annotated[
        bool,
        Option(
            "Translations are ids separated by spaces, as in translate --json; the last one is the end token "
            "unless the output was truncated."
        ),
    ] = False
    as_json: Annotated[bool, Option("Print a JSON object for each pair.", flags=("--json",))] = False
    flag: Annotated[
        str | None,
        Option(
            "Print only the least confident pairs, a number of them or a share such as 10%.", metavar="N|N%"
        ),
    ] = None
    ensemble: Ensemble = None
    languages: Languages = field(default_factory=Languages)
    search: ScoreOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    prefix: Prefix = None
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True)
class ScoredToken:
    """One token as the tokenizer writes it.

    `log_prob` is what a search says: 0 where the token is forced, -inf where it is suppressed;
    `model_log_prob` is what the model says, whatever the options.
    """

    token: str
    log_prob: float
    model_log_prob: float


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the numbers of its target.

    Attributes:
        source: its line.
        target: its line; the text of it, where it was given as ids.
        score: `log_prob` over the length penalty, plus the coverage penalty: what a search gives this output.
        log_prob: the sum over the tokens.
        model_log_prob: the same of the model alone, whatever the options.
        tokens: those that the model writes, the end token the last unless the output is truncated; none where
            both lines are empty, or where one is too long to be scored: then the numbers are NaN.
        confidence: in the target; None where the model has no calibration, or there are no tokens.
    """

    source: str
    target: str
    score: float
    log_prob: float
    model_log_prob: float
    tokens: tuple[ScoredToken, ...]
    confidence: "Confidence | None" = None


class Perplexity:
    """The perplexity of the pairs that are added and scored, by the model's log-probabilities alone."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.num_left_out = 0  # too long to be scored
        self.num_tokens = 0
        self.num_words = 0  # between spaces; the end of a line counts as one, as it is predicted too
        self.model_log_prob = 0.0

    def add(self, pair: ScoredPair) -> None:
        """Count a pair; one of empty lines has nothing to be counted."""
        self.num_left_out += math.isnan(pair.model_log_prob)
        if pair.tokens:
            self.num_pairs += 1
            self.num_tokens += len(pair.tokens)
            self.num_words += len(pair.target.encode().split()) + 1  # bytes are split at ASCII spaces alone
            self.model_log_prob += pair.model_log_prob

    @property
    def per_token(self) -> float:
        """The exponential of the mean negative log-probability of a token; NaN if there is none."""
        return self._per(self.num_tokens)

    @property
    def per_word(self) -> float:
        """The same for words: comparable between models with different tokenizers."""
        return self._per(self.num_words)

    def _per(self, count: int) -> float:
        if not count:
            return math.nan
        nll = -self.model_log_prob / count
        return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf


class Flagged:
    """The pairs to check first: those with the least confidence, of equal ones the first."""

    def __init__(self, number: Fraction, *, is_share: bool) -> None:
        """Flag so many pairs, or this share of them, rounded up."""
        self._number, self._is_share = number, is_share
        self._pairs: list[tuple[float, int, ScoredPair]] = []

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `--flag` asks for.

        Raises:
            InputError: it is neither a number of pairs nor a share of them.
        """
        match = _FLAG.fullmatch(text)
        number, is_share = Fraction(match[1] if match else 0), text.endswith("%")
        if is_share:
            number /= 100
        if number <= 0 or (number > 1 if is_share else number.denominator > 1):
            raise InputError(f"--flag {text}: give a number of pairs, or a share of them such as 10%")
        return cls(number, is_share=is_share)

    def add(self, line: int, pair: ScoredPair) -> None:
        """Add a pair; one of empty lines has nothing to be checked."""
        if pair.confidence is not None:
            self._pairs.append((pair.confidence.sentence, line, pair))

    def pairs(self) -> list[tuple[int, ScoredPair]]:
        """Return the pairs with their lines, the least confident first."""
        exact = self._number * len(self._pairs) if self._is_share else self._number
        return [
            (line, pair) for _, line, pair in sorted(self._pairs, key=itemgetter(0, 1))[: math.ceil(exact)]
        ]


def score(
    task: Score,
    pairs: Iterable[tuple[str, str]],
    *,
    prefixes: Iterable[str] | None = None,
    name: str = "targets",
    chunk_lines: int = 1024,
) -> Iterator[ScoredPair]:
    """Load a model, then score pair by pair, in order, empty lines kept.

    Loading comes first, before any line is read and before anything is given. Lines are read a chunk ahead.

    Args:
        task: the models, the settings of the search that scores depend on, and how to compute.
        pairs: of lines, read once.
        prefixes: for each source what a search had to begin with, if anything.
        name: of the targets, for messages.
        chunk_lines: how many pairs are read and scored at a time.

    Raises:
        BundleError: no usable bundle.
        InputError: settings that cannot be, models that cannot work together, a line that holds no ids, or
            one without a prefix.
    """
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator

    translator = load_translator(
        task.run, task.languages, task.runtime, shortlist=task.shortlist, ensemble=task.ensemble or ()
    )
    if task.runtime.precision == "auto":
        print_precision(translator.precision_in_use)
    if task.flag is not None and task.ensemble:
        raise InputError("an ensemble has no confidence; leave out --ensemble, or --flag")
    if task.flag is not None and translator.codec.calibration is None:
        raise InputError(
            f"{task.run}: not calibrated, so that its confidence is not known; first give heedful evaluate "
            "--calibrate lines with references"
        )
    options = search_options(task.search, translator.bundle.config.decode)
    reading, scored = tee(pairs)
    targets = (
        (source, _ids(target, line, name) if task.tgt_ids else target)
        for line, (source, target) in enumerate(scored, start=1)
    )
    results = translator.score_lines(targets, options=options, prefixes=prefixes, chunk_lines=chunk_lines)
    return (
        ScoredPair(
            source=source,
            target=each.text if task.tgt_ids else target,
            score=each.score,
            log_prob=each.log_prob,
            model_log_prob=each.model_log_prob,
            tokens=_tokens(each, translator.bundle.tokenizers.tgt),
            confidence=each.confidence,
        )
        for (source, target), each in zip(reading, results, strict=True)
    )


def _ids(line: str, number: int, name: str) -> list[int]:
    try:
        return [int(word) for word in line.split()]
    except ValueError:
        raise InputError(f"{name}: line {number:,}: not ids between spaces, as in 5 12 2") from None


def _tokens(scored: "ScoredText", tokenizer: "Tokenizer") -> tuple[ScoredToken, ...]:
    if not scored.token_log_probs:
        return ()
    texts = tokenizer.tokens(scored.written_ids)
    return tuple(map(ScoredToken, texts, scored.token_log_probs, scored.model_log_probs))


def command(task: Score) -> None:
    """Score files, and print their perplexity; earlier pairs come out where a later line is bad."""
    check_stdin_once(src=task.src, tgt=task.tgt, prefix=task.prefix)
    from heedful.data.files import parallel_lines
    from heedful.runs.output_checks import check_output

    check_output(None, inputs=[task.src, task.tgt, task.prefix])
    flagged = None if task.flag is None else Flagged.parse(task.flag)
    total = count_pairs(task.src, task.tgt)
    perplexity = Perplexity()
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        src, src_name = stack.enter_context(open_input(task.src))
        tgt, tgt_name = stack.enter_context(open_input(task.tgt))
        sources, targets, prefixes = Lines(src, src_name).strictly(), Lines(tgt, tgt_name).strictly(), None
        if task.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(task.prefix))).strictly()
        lines = parallel_lines(sources, targets, src_name=src_name, tgt_name=tgt_name)
        pairs = score(task, lines, prefixes=prefixes, name=tgt_name)
        # Where the lines themselves are to be seen, they show how far it is.
        show = stack.enter_context(bar()) if total and not sys.stdout.isatty() else None
        for number, pair in enumerate(pairs, start=1):
            perplexity.add(pair)
            if flagged is not None:
                flagged.add(number, pair)
            else:
                line = f"{pair.model_log_prob:.6f}\t{pair.score:.6f}\t{pair.target}"
                write_line(sys.stdout.buffer, _as_json(pair) if task.as_json else line)
            if show and total and number % _PAIRS_SHOWN == 0:
                show(f"{number:,} of {total:,} pairs", number / total)
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{task.prefix}: has more lines than the sources; give one for each line")
    for number, pair in flagged.pairs() if flagged is not None else ():
        sentence = "" if pair.confidence is None else f"{pair.confidence.sentence:.4f}"
        line = f"{number}\t{sentence}\t{pair.source}\t{pair.target}"
        write_line(sys.stdout.buffer, _as_json(pair, line=number) if task.as_json else line)
    sys.stdout.flush()
    print(_summary(perplexity, as_json=task.as_json), file=sys.stderr)


def _as_json(pair: ScoredPair, **more: int) -> str:
    line = {
        **more,
        "source": pair.source,
        "target": pair.target,
        "score": _number(pair.score),
        "log_prob": _number(pair.log_prob),
        "model_log_prob": _number(pair.model_log_prob),
        "tokens": [
            {
                "piece": token.token,
                "log_prob": _number(token.log_prob),
                "model_log_prob": _number(token.model_log_prob),
            }
            for token in pair.tokens
        ],
        "confidence": pair.confidence and asdict(pair.confidence),
    }
    return json.dumps(line, ensure_ascii=False)


def _summary(perplexity: Perplexity, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "pairs": perplexity.num_pairs,
                "left_out": perplexity.num_left_out,
                "tokens": perplexity.num_tokens,
                "words": perplexity.num_words,
                "model_log_prob": _number(perplexity.model_log_prob),
                "perplexity": _number(perplexity.per_token),
                "word_perplexity": _number(perplexity.per_word),
            }
        )
    counts = (
        f"{perplexity.num_pairs:,} pairs, {perplexity.num_tokens:,} tokens, {perplexity.num_words:,} words"
    )
    if perplexity.num_left_out:
        counts += f" (too long and left out: {perplexity.num_left_out:,})"
    return f"{counts}: perplexity {perplexity.per_token:.6g} per token, {perplexity.per_word:.6g} per word"


def _number(value: float) -> float | None:
    """JSON has no infinities, and no NaN."""
    return value if math.isfinite(value) else None
