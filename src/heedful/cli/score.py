"""`heedful score`: how probable given translations are."""

import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import Lines, count_pairs, open_input, tell_precision, write_line
from heedful.errors import InputError
from heedful.settings.options import Runtime, ScoreRequest

if TYPE_CHECKING:
    from heedful.workflows.score import Perplexity, ScoredPair

_PAIRS_SHOWN = 64  # between two movements of the bar


def score(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines; .gz too, - for stdin.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line; .gz too, - for stdin.")],
    tgt_ids: Annotated[
        bool,
        typer.Option(
            "--tgt-ids",
            help="Translations are ids between spaces, such as translate --json gives: the very tokens, the "
            "end token the last unless an output was truncated.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each pair.")] = False,
    ensemble: opt.Ensemble = None,
    request: ScoreRequest = ScoreRequest(),
    prefix: opt.Prefix = None,
    runtime: Runtime = Runtime(),
) -> None:
    """Score given translations: how probable does the model find them?

    One line for each pair, in order: `log-probability<TAB>score<TAB>target`, in nats. The log-probability is
    the model's own, summed over the target's tokens: its tokens and the end of the line. The score is that of
    translate --scores, over the length penalty, plus the coverage penalty where one is asked for; with
    --length-normalization average --length-penalty 1 it is the mean of a token.

    A score is what a search with the same settings gives this output. A token that the settings force costs
    nothing in it, one that they suppress makes it -inf, and where they renormalise, the probabilities of the
    tokens that remain sum to 1. Beam, groups, sampling and repetition penalty decide which outputs result,
    and change no score; that of --mbr is no probability, and is not computed here. A text is tokenised by the
    tokenizer; a search may have written it in other tokens, with another score: --tgt-ids.

    With --json, an object has the keys source, target, score, log_prob (the score's, before the penalties),
    model_log_prob and tokens (piece, log_prob and model_log_prob of each). null is the logarithm of 0. With
    --shortlist, the model is one that knows no other tokens, and finds the others impossible.

    The last line on stderr has the perplexity of all pairs by the model's own log-probabilities, per token
    and per word (between spaces; the end of each line is one too); with --json it is an object. A pair of
    empty lines has the score 0 and is not counted. Where one of the two is empty, the model says how probable
    that is.
    """
    if str(src) == str(tgt) == "-":
        raise typer.BadParameter("--src and --tgt cannot both be stdin")
    files = _Files(src, tgt, prefix, are_ids=tgt_ids)
    _score_files([run, *(ensemble or ())], files, request, runtime, as_json=as_json)


@dataclass(frozen=True)
class _Files:
    src: Path
    tgt: Path
    prefix: Path | None
    are_ids: bool


def _score_files(
    runs: Sequence[Path], files: _Files, request: ScoreRequest, runtime: Runtime, *, as_json: bool
) -> None:
    from heedful.cli.bar import bar
    from heedful.workflows.outputs import check_output
    from heedful.workflows.score import Perplexity, ScoringTask
    from heedful.workflows.score import score as score_pairs

    check_output(None, [files.src, files.tgt, files.prefix])
    total = count_pairs(files.src, files.tgt)
    perplexity = Perplexity()
    with ExitStack() as stack:
        src, src_name = stack.enter_context(open_input(files.src))
        tgt, tgt_name = stack.enter_context(open_input(files.tgt))
        prefixes = None
        if files.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(files.prefix))).strictly()
        task = ScoringTask(
            sources=Lines(src, src_name).strictly(), targets=Lines(tgt, tgt_name).strictly(),
            prefixes=prefixes, are_ids=files.are_ids, src_name=src_name, tgt_name=tgt_name,
        )  # fmt: skip
        pairs = score_pairs(
            runs[0], task, request=request, runtime=runtime, ensemble=runs[1:], on_precision=tell_precision
        )
        # Where the lines themselves are to be seen, they show how far it is.
        show = stack.enter_context(bar()) if total and not sys.stdout.isatty() else None
        for number, pair in enumerate(pairs, start=1):
            perplexity.add(pair)
            log_prob, score_ = f"{pair.model_log_prob:.6f}", f"{pair.score:.6f}"
            line = _as_json(pair) if as_json else f"{log_prob}\t{score_}\t{pair.target}"
            write_line(sys.stdout.buffer, line)
            if show and total and number % _PAIRS_SHOWN == 0:
                show(f"{number:,} of {total:,} pairs", number / total)
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{files.prefix}: has more lines than the sources; give one for each line")
    sys.stdout.flush()
    print(_summary(perplexity, as_json=as_json), file=sys.stderr)


def _as_json(pair: "ScoredPair") -> str:
    line = {
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
    }
    return json.dumps(line, ensure_ascii=False)


def _summary(perplexity: "Perplexity", *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "pairs": perplexity.num_pairs,
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
    return f"{counts}: perplexity {perplexity.per_token:.6g} per token, {perplexity.per_word:.6g} per word"


def _number(value: float) -> float | None:
    """JSON has no infinities."""
    return value if math.isfinite(value) else None
