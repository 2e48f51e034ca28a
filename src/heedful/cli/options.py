"""Arguments and options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

# Headings of the help.
SEARCH, OUTPUTS, SAMPLING, COMPUTING = "Search", "What may be written", "Sampling", "Computing"

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run directory (its best bundle is used), a bundle, or USER/MODEL[@REVISION] on the hub.",
    ),
]
NBest = Annotated[
    int, typer.Option(min=1, help="Outputs for each line; above 1 as lines of `number ||| text ||| score`.")
]
LineBuffered = Annotated[
    bool,
    typer.Option(
        "--line-buffered",
        help="Answer each line before the next is read, for a program that waits; slower. Without it, 1,024 "
        "lines are translated together, unless somebody types them.",
    ),
]
BeamSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Hypotheses kept in the search; 1 is greedy. [default: as in the bundle]",
        rich_help_panel=SEARCH,
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        min=0.0, help="Alpha of the length penalty. [default: as in the bundle]", rich_help_panel=SEARCH
    ),
]
LengthNormalization = Annotated[
    str | None,
    typer.Option(
        metavar="gnmt|average",
        help="Scores over ((5 + length) / 6)^alpha, or over length^alpha. [default: as in the bundle]",
        rich_help_panel=SEARCH,
    ),
]
CoveragePenalty = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Beta of the coverage penalty: outputs should attend to all of the input; 0.2 where "
        "--length-normalization is gnmt, and far less with average. [default: 0]",
        rich_help_panel=SEARCH,
    ),
]
EarlyStopping = Annotated[
    str | None,
    typer.Option(
        metavar="optimal|estimate|first",
        help="When a search may end: nothing can win, would win now, or enough ended. "
        "[default: as in the bundle]",
        rich_help_panel=SEARCH,
    ),
]
NumGroups = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Groups of the beam, each with its share, that write different things. [default: 1]",
        rich_help_panel=SEARCH,
    ),
]
DiversityPenalty = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="What a piece costs in a group that an earlier one writes in the same place. [default: 0]",
        rich_help_panel=SEARCH,
    ),
]
MaxLengthOffset = Annotated[
    int | None,
    typer.Option(
        min=0, help="An output may be this much longer than its input, in pieces.", rich_help_panel=OUTPUTS
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(min=1, help="And at most this long. [default: as in the bundle]", rich_help_panel=OUTPUTS),
]
MinLength = Annotated[
    int | None,
    typer.Option(
        min=0, help="The fewest pieces of an output. [default: as in the bundle]", rich_help_panel=OUTPUTS
    ),
]
NoRepeatNgramSize = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="No so many pieces in a row come twice; 0: they may. [default: as in the bundle]",
        rich_help_panel=OUTPUTS,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        help="Above 1, what is written already is held back. [default: as in the bundle]",
        rich_help_panel=OUTPUTS,
    ),
]
ReplaceUnknown = Annotated[
    bool,
    typer.Option(
        "--replace-unknown",
        help="Write for an unknown word (or character) the one of the input that it attends to most.",
        rich_help_panel=OUTPUTS,
    ),
]
Prefix = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="For each line of the input what its output begins with: whole words, or nothing.",
        rich_help_panel=OUTPUTS,
    ),
]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="Draw each next piece by chance; --n-best says how many outputs to draw.",
        rich_help_panel=SAMPLING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Below 1, the probable becomes more probable. [default: 1]", rich_help_panel=SAMPLING),
]
TopK = Annotated[
    int | None,
    typer.Option(min=1, help="Only so many pieces, the most probable.", rich_help_panel=SAMPLING),
]
TopP = Annotated[
    float | None,
    typer.Option(help="Only the best pieces that have this probability together.", rich_help_panel=SAMPLING),
]
MinP = Annotated[
    float | None,
    typer.Option(help="Only pieces of this share of the best one's probability.", rich_help_panel=SAMPLING),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Only pieces of at least this probability.", rich_help_panel=SAMPLING),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Another seed draws others; with the same one, a line draws the same anywhere. [default: 0]",
        rich_help_panel=SAMPLING,
    ),
]
Mbr = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Draw so many outputs, and take the one that is most like all of them (minimum Bayes risk, "
        "sentence chrF); scores are that likeness, 0 to 100.",
        rich_help_panel=SAMPLING,
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Source pieces decoded together. [default: as in the bundle]", rich_help_panel=COMPUTING
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="Processor threads. [default: as many as there are cores]", rich_help_panel=COMPUTING
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="float32|bf16|fp16|int8|auto",
        help="Arithmetic; bf16 and int8 are faster on some processors, and auto tries out which; fp16 is for "
        "GPUs, and slow elsewhere.",
        rich_help_panel=COMPUTING,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="auto|compiled|torch|ctranslate2",
        help="What computes: the compiled engine, torch, auto: the former where it can, or CTranslate2.",
        rich_help_panel=COMPUTING,
    ),
]
Shortlist = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Of heedful shortlist: write each sentence with a few pieces only; scores are those of a model "
        "that knows no others.",
        rich_help_panel=COMPUTING,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda",
        help="Where to compute; auto: a GPU where there is one.",
        rich_help_panel=COMPUTING,
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="RUN",
        help="Another model, whose probabilities are averaged with those of RUN; give it again for more.",
    ),
]
SrcLang = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="Language to translate from. [default: as in the bundle]"),
]
TgtLang = Annotated[
    str | None,
    typer.Option(metavar="TAG", help="Language to translate into. [default: as in the bundle]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
