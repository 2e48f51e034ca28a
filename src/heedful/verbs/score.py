"""`heedful score`: how probable given translations are."""

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.options import ScoreOverrides
from heedful.cli.streams import bar_of_pairs, check_stdin_once, notify, open_pairs, warnings_on_stderr
from heedful.data.streams import Lines, count_pairs, open_input, write_line
from heedful.errors import InputError
from heedful.settings.options import (
    AdapterOfBase,
    Ensemble,
    Languages,
    Option,
    Prefix,
    Run,
    Runtime,
    ShortlistFile,
)

if TYPE_CHECKING:
    from heedful.evaluation.scoring import ScoredPair


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score given translations: how probable are they?

    Prints a line for each pair, in order: `log-probability<TAB>score<TAB>target`, in nats. The
    log-probability is the model's own: the sum over the target's tokens and the end of the line. The score is
    the same as in translate --scores: the log-probability divided by the length penalty, plus the coverage
    penalty if there is one. With --length-normalization power --length-penalty 1, it is the mean per token.

    The score is the one that a search with the same settings would give this output. Forced tokens cost
    nothing, and suppressed tokens make it -inf. With renormalisation, the probabilities of the remaining
    tokens sum to 1. Beam, groups, sampling and repetition penalty change no score. The score of --mbr is no
    probability and is not computed here. The tokenizer splits each text into tokens. If a search wrote it
    with other tokens, its score differs; use --tgt-ids.

    With --json, each line is an object with the keys source, target, score, log_prob (the score before the
    penalties), model_log_prob and tokens (each with piece, log_prob and model_log_prob). It also has
    confidence, like translate --json. The logarithm of 0 is null. With --shortlist, all tokens outside the
    shortlist are impossible.

    With --flag, only the pairs to check first are printed, the least confident first, as `line
    number<TAB>confidence<TAB>source<TAB>target`. RUN must be calibrated (docs/confidence.md).

    The last line on stderr has the perplexity of all pairs, from the model's own log-probabilities, per token
    and per word. Words are separated by spaces, and the end of each line counts as one. With --json it is an
    object. A pair of empty lines has the score 0 and is not counted. If only one of the two is empty, the
    pair is scored like any other. A pair with a line that is too long is left out: its numbers are nan (null
    with --json), a warning names the line, and the last line has the number of such pairs.

    Examples:
        heedful score runs/en-de --src test.en --tgt test.de
    """

    run: Run
    src: Annotated[Path, Option("Source lines; .gz too, - for stdin. A TMX file may be source and target.")]
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
    adapter: AdapterOfBase = None
    prefix: Prefix = None
    runtime: Runtime = field(default_factory=Runtime)


def command(task: Score) -> None:
    """Score files, and print their perplexity; the pairs before a bad line are printed."""
    from heedful.decoding.options import search_options
    from heedful.evaluation.scoring import Flagged, Perplexity, score_pairs
    from heedful.tasks.loading import load_translator
    from heedful.tasks.output_checks import check_output

    check_stdin_once(src=task.src, tgt=task.tgt, prefix=task.prefix)
    check_output(None, inputs=[task.src, task.tgt, task.prefix])
    flagged = None if task.flag is None else Flagged.parse(task.flag)
    total = count_pairs(task.src, task.tgt)
    perplexity = Perplexity()
    with ExitStack() as stack:
        stack.enter_context(warnings_on_stderr())
        prefixes = None
        if task.prefix is not None:
            prefixes = Lines(*stack.enter_context(open_input(task.prefix))).strictly()
        translator = load_translator(
            task.run,
            task.languages,
            task.runtime,
            shortlist=task.shortlist,
            adapter=task.adapter,
            ensemble=task.ensemble or (),
            notify=notify,
        )
        if flagged is not None and translator.codec.calibration is None:
            raise InputError(
                f"{task.run}: not calibrated (an ensemble never is), so that its confidence is not known; "
                "first give heedful evaluate --calibrate lines with references"
            )
        config = translator.bundle.config
        lines, tgt_name = open_pairs(stack, task.src, task.tgt, config, task.languages)
        pairs = score_pairs(
            translator,
            lines,
            tgt_ids=task.tgt_ids,
            options=search_options(task.search, config.decode),
            prefixes=prefixes,
            name=tgt_name,
        )
        # On a terminal, the lines themselves show the progress.
        show = stack.enter_context(bar_of_pairs(None if sys.stdout.isatty() else total))
        for number, pair in enumerate(pairs, start=1):
            perplexity.add(pair)
            if flagged is not None:
                flagged.add(number, pair)
            else:
                line = f"{pair.model_log_prob:.6f}\t{pair.score:.6f}\t{pair.target}"
                write_line(sys.stdout.buffer, _as_json(pair) if task.as_json else line)
            show(number)
        if prefixes is not None and next(prefixes, None) is not None:
            raise InputError(f"{task.prefix}: has more lines than the sources; give one for each line")
    for number, pair in flagged.pairs() if flagged is not None else ():
        sentence = "" if pair.confidence is None else f"{pair.confidence.sentence:.4f}"
        line = f"{number}\t{sentence}\t{pair.source}\t{pair.target}"
        write_line(sys.stdout.buffer, _as_json(pair, line=number) if task.as_json else line)
    sys.stdout.flush()
    notify(json.dumps(perplexity.as_dict()) if task.as_json else perplexity)


def _as_json(pair: "ScoredPair", **more: int) -> str:
    return json.dumps(more | pair.as_dict(), ensure_ascii=False)
