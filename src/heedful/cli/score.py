"""`heedful score`: how probable given translations are."""

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import Lines, open_input, write_line

if TYPE_CHECKING:
    from heedful.workflows.score import Perplexity, ScoredPair


def score(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines; .gz too, - for stdin.")],
    tgt: Annotated[Path, typer.Option(help="Their translations, line by line; .gz too, - for stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each pair.")] = False,
    ensemble: opt.Ensemble = None,
    src_lang: opt.SrcLang = None,
    tgt_lang: opt.TgtLang = None,
    length_penalty: opt.LengthPenalty = None,
    length_normalization: opt.LengthNormalization = None,
    batch_tokens: opt.BatchTokens = None,
    threads: opt.Threads = None,
    precision: opt.Precision = "float32",
    engine: opt.Engine = "auto",
    device: opt.Device = "auto",
) -> None:
    """Score given translations: how probable does the model find them?

    One line for each pair, in order: `log-probability<TAB>score<TAB>target`, in nats. The log-probability is
    the sum over the target's tokens: its pieces and the end of the line. The score is that over the length
    penalty, as in translate --scores; with --length-normalization average --length-penalty 1 it is the mean
    of a token. Pieces are cut as the tokenizer does; a search may have written the same text in others, with
    another score.

    With --json, an object has the keys source, target, score, log_prob and tokens (piece and log_prob of
    each). null is the logarithm of 0, of what the model's search is told never to write.

    The last line on stderr has the perplexity of all pairs, per token and per word (between spaces; the end
    of each line is one too); with --json it is an object. A pair of empty lines has the score 0 and is not
    counted. Where one side alone is empty, the model says how probable that is.
    """
    from heedful.workflows.loading import Runtime, SearchWishes
    from heedful.workflows.score import Perplexity, ScoringTask
    from heedful.workflows.score import score as score_pairs

    if str(src) == str(tgt) == "-":
        raise typer.BadParameter("--src and --tgt cannot both be stdin")
    sources, src_name = _read(src)
    targets, tgt_name = _read(tgt)
    pairs = score_pairs(
        run,
        ScoringTask(sources=sources, targets=targets, src_name=src_name, tgt_name=tgt_name),
        wishes=SearchWishes(
            length_penalty=length_penalty,
            length_normalization=length_normalization,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
        ),
        runtime=Runtime(
            precision=precision, engine=engine, device=device, threads=threads, batch_tokens=batch_tokens
        ),
        ensemble=ensemble or (),
    )
    perplexity = Perplexity()
    for pair in pairs:
        perplexity.add(pair)
        line = _as_json(pair) if as_json else f"{pair.log_prob:.6f}\t{pair.score:.6f}\t{pair.target}"
        write_line(sys.stdout.buffer, line)
    sys.stdout.flush()
    print(_summary(perplexity, as_json=as_json), file=sys.stderr)


def _read(path: Path) -> tuple[list[str], str]:
    """All lines, so that both sides are known to be parallel before anything is computed; and their name."""
    with open_input(path) as (stream, name):
        return list(Lines(stream, name).strictly()), name


def _as_json(pair: "ScoredPair") -> str:
    found = {
        "source": pair.source,
        "target": pair.target,
        "score": _number(pair.score),
        "log_prob": _number(pair.log_prob),
        "tokens": [{"piece": token.piece, "log_prob": _number(token.log_prob)} for token in pair.tokens],
    }
    return json.dumps(found, ensure_ascii=False)


def _summary(found: "Perplexity", *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "pairs": found.num_pairs,
                "tokens": found.num_tokens,
                "words": found.num_words,
                "log_prob": _number(found.log_prob),
                "perplexity": _number(found.per_token),
                "word_perplexity": _number(found.per_word),
            }
        )
    counts = f"{found.num_pairs:,} pairs, {found.num_tokens:,} tokens, {found.num_words:,} words"
    return f"{counts}: perplexity {found.per_token:.6g} per token, {found.per_word:.6g} per word"


def _number(value: float) -> float | None:
    """JSON has no infinities."""
    return value if math.isfinite(value) else None
