"""The options that commands share, each defined once, with its type, range, help text and default.

The command line makes its options from these classes (`cli/option_groups.py`), and the workflows take their
values. None leaves a setting as the bundle has it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

# Headings of the help.
SEARCH, OUTPUTS, SAMPLING, COMPUTING = "Search", "Output constraints", "Sampling", "Computing"


@dataclass(frozen=True)
class Option:
    """How the command line shows a setting.

    Attributes:
        help: one or two sentences; "[default: ...]" at its end where the default is not a plain value.
        heading: of the help, under which it stands; None: among the command's own options.
        minimum: of a number.
        metavar: what stands for the value in the help; None: its type.
    """

    help: str
    heading: str | None = None
    minimum: float | None = None
    metavar: str | None = None


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The languages of a model that has many, as its own tags for them: fra_Latn, or fr."""

    src_lang: Annotated[
        str | None, Option("Language to translate from. [default: as in the bundle]", metavar="TAG")
    ] = None
    tgt_lang: Annotated[
        str | None, Option("Language to translate into. [default: as in the bundle]", metavar="TAG")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(Languages):
    """Options that the score of an output depends on."""

    length_penalty: Annotated[
        float | None,
        Option("Alpha of the length penalty. [default: as in the bundle]", SEARCH, minimum=0.0),
    ] = None
    length_normalization: Annotated[
        str | None,
        Option(
            "Scores over ((5 + length) / 6)^alpha, or over length^alpha. [default: as in the bundle]",
            SEARCH,
            metavar="gnmt|average",
        ),
    ] = None
    coverage_penalty: Annotated[
        float | None,
        Option(
            "Beta of the coverage penalty: outputs should attend to all of the input; 0.2 where "
            "--length-normalization is gnmt, and far less with average. [default: 0]",
            SEARCH,
            minimum=0.0,
        ),
    ] = None
    max_length_offset: Annotated[
        int | None,
        Option(
            "Maximum output length beyond that of the input, in tokens. [default: as in the bundle]",
            OUTPUTS,
            minimum=0,
        ),
    ] = None
    max_length: Annotated[
        int | None,
        Option("Maximum output length in tokens. [default: as in the bundle]", OUTPUTS, minimum=1),
    ] = None
    min_length: Annotated[
        int | None,
        Option("Minimum output length in tokens. [default: as in the bundle]", OUTPUTS, minimum=0),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        Option(
            "Forbid repeating any n-gram of this size; 0 disables. [default: as in the bundle]",
            OUTPUTS,
            minimum=0,
        ),
    ] = None
    shortlist: Annotated[
        Path | None,
        Option(
            "A file of heedful shortlist: write each sentence with a few tokens only; scores are those of a "
            "model that knows no others.",
            COMPUTING,
            metavar="FILE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SamplingRequest:
    """Strategies in place of beam search: sampling, minimum Bayes risk, or one by its registered name."""

    strategy: Annotated[
        str | None,
        Option(
            "Search strategy: greedy, beam, diverse-beam, sampling, mbr, or one that another package "
            "registers, with its settings, as in mbr:samples=50,temperature=0.8; those not named are the "
            "strategy's own defaults. [default: the bundle's beam search]",
            SEARCH,
            metavar="NAME[:KEY=VALUE,...]",
        ),
    ] = None
    sample: Annotated[
        bool, Option("Sample each next token; --n-best says how many outputs to draw.", SAMPLING)
    ] = False
    temperature: Annotated[
        float | None, Option("Below 1, the probable becomes more probable. [default: 1]", SAMPLING)
    ] = None
    top_k: Annotated[int | None, Option("Only the k most probable tokens.", SAMPLING, minimum=1)] = None
    top_p: Annotated[
        float | None, Option("Only the most probable tokens that have this probability together.", SAMPLING)
    ] = None
    min_p: Annotated[
        float | None, Option("Only tokens of at least this share of the best one's probability.", SAMPLING)
    ] = None
    epsilon: Annotated[float | None, Option("Only tokens of at least this probability.", SAMPLING)] = None
    seed: Annotated[
        int | None,
        Option(
            "Random seed; the samples of a line do not depend on the other lines. [default: 0]",
            SAMPLING,
            minimum=0,
        ),
    ] = None
    mbr: Annotated[
        int | None,
        Option(
            "Sample so many outputs, and take the one that is most like all of them (minimum Bayes risk, "
            "sentence chrF); scores are that likeness, 0 to 100.",
            SAMPLING,
            minimum=1,
            metavar="N",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchRequest(ScoreRequest):
    """How outputs are searched.

    Attributes:
        n_best: how many hypotheses of each line.
        sampling: the strategy in place of beam search.
    """

    beam_size: Annotated[
        int | None,
        Option("Hypotheses kept in the search; 1 is greedy. [default: as in the bundle]", SEARCH, minimum=1),
    ] = None
    early_stopping: Annotated[
        str | None,
        Option(
            "When to end a sentence: optimal, when no live hypothesis can win; estimate, when none would win "
            "now; first, when beam-size hypotheses have finished. [default: as in the bundle]",
            SEARCH,
            metavar="optimal|estimate|first",
        ),
    ] = None
    num_groups: Annotated[
        int | None,
        Option(
            "Groups of diverse beam search, which divide the beam. [default: 2 with --diversity-penalty, "
            "else 1]",
            SEARCH,
            minimum=1,
        ),
    ] = None
    diversity_penalty: Annotated[
        float | None,
        Option(
            "Penalty of a token that an earlier group writes in the same position. [default: 0.5 with "
            "--num-groups]",
            SEARCH,
            minimum=0.0,
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Option(
            "Above 1, tokens that were written already are penalised. [default: as in the bundle]", OUTPUTS
        ),
    ] = None
    replace_unknown: Annotated[
        bool,
        Option(
            "Write for an unknown word (or character) the one of the input that it attends to most.", OUTPUTS
        ),
    ] = False
    n_best: int | None = None
    sampling: SamplingRequest | None = None


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How to compute. Results may change: slightly with bf16 and fp16, more with int8 and CTranslate2."""

    batch_tokens: Annotated[
        int | None,
        Option("Source tokens of a batch. [default: as in the bundle]", COMPUTING, minimum=1),
    ] = None
    batch_size: Annotated[
        int | None,
        Option("Sentences of a batch. [default: as many as fit --batch-tokens]", COMPUTING, minimum=1),
    ] = None
    threads: Annotated[
        int | None, Option("CPU threads. [default: as many as there are cores]", COMPUTING, minimum=1)
    ] = None
    precision: Annotated[
        str,
        Option(
            "Arithmetic; bf16 and int8 are faster on some CPUs, and auto tries out which; fp16 is for "
            "GPUs, and slow elsewhere.",
            COMPUTING,
            metavar="float32|bf16|fp16|int8|auto",
        ),
    ] = "float32"
    engine: Annotated[
        str,
        Option(
            "compiled: the native engine, on CPUs; torch; auto: the native engine where it supports the "
            "model, else torch; ctranslate2: CTranslate2's own search.",
            COMPUTING,
            metavar="auto|compiled|torch|ctranslate2",
        ),
    ] = "auto"
    device: Annotated[
        str,
        Option("Where to compute; auto: a GPU where there is one.", COMPUTING, metavar="auto|cpu|cuda"),
    ] = "auto"
