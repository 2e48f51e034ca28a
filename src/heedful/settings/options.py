"""The options that commands share, each defined once, with its type, range, help text and default.

The command line makes its options from these classes (`cli/options.py`), which are fields of a verb's task. A
key of the configuration that is the same setting has its text and range from here (`settings/run.py`), and a
search its ranges (`decoding/ranges.py`). None leaves a setting as the bundle has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

Precision = Literal["float32", "bf16", "fp16", "int8"]
TrainingPrecision = Literal["float32", "bf16"]


# Headings of the help.
SEARCH, OUTPUTS, SAMPLING, COMPUTING = "Search", "Output constraints", "Sampling", "Computing"
TEXT = "Parallel text"
_BUNDLE = "as in the bundle"
# Where source and target are given, neither can be split; longer ones would take memory and time squared.
PAIR_TOKENS = 2000

LengthNormalization = Literal["gnmt", "average"]
EarlyStopping = Literal["optimal", "estimate", "first"]
Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Option:
    """How the command line shows a setting.

    Attributes:
        help: one or two sentences; one, where the setting is a key of the configuration too.
        heading: of the help, under which it stands; None: among the command's own options.
        minimum: of a number.
        maximum: of a number.
        above: of a number that must be greater than this; the search says so, not the command line.
        metavar: what stands for the value in the help; None: its type.
        default: what holds where it is not set, in words; None: the value itself says so.
        flags: such as --output and -o; none: the name of the field.
        is_argument: whether the value stands by itself, without a flag.
        is_file: whether it names a file that is written, and so does not end in a slash.
    """

    help: str
    heading: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    metavar: str | None = None
    default: str | None = None
    flags: tuple[str, ...] = ()
    is_argument: bool = False
    is_file: bool = False


@cache
def options_of(group: type) -> Mapping[str, Option]:
    """Return the option of each field of a dataclass that has one, by the field's name."""
    hints = get_type_hints(group, include_extras=True)
    options = {
        field.name: next((each for each in get_args(hints[field.name]) if isinstance(each, Option)), None)
        for field in fields(group)
    }
    return {name: option for name, option in options.items() if option is not None}


def _choices(*kinds: object) -> str:
    """Return the values of literal types, as the help shows them."""
    return "|".join(value for kind in kinds for value in get_args(kind))


Run = Annotated[
    Path,
    Option(
        "A run directory (its best bundle is used), a bundle, or USER/MODEL[@REVISION] on the hub.",
        metavar="RUN",
        is_argument=True,
    ),
]
Prefix = Annotated[
    Path | None,
    Option(
        "For each line of the input what its output begins with: whole words, or nothing.",
        OUTPUTS,
        metavar="FILE",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    Option(
        "Another model, whose probabilities are averaged with those of RUN; give it again for more.",
        metavar="RUN",
    ),
]
AsJson = Annotated[bool, Option("Print JSON.", flags=("--json",))]
Overwrite = Annotated[bool, Option("Start anew; an existing run is renamed to NAME.old-N.")]
PRESET = Option("tiny, small, base, big, a row of Table 3, or a published system.")
DEVICE = Option("Where to compute; auto: a GPU where there is one.", COMPUTING, metavar=_choices(Device))
OUTPUT = ("--output", "-o")


def settings_like(text: str) -> Option:
    """Return the option `--set`, with this help."""
    return Option(text, metavar="KEY=VALUE", flags=("--set",))


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The languages of a model that has many, as its own tags for them: fra_Latn, or fr."""

    src_lang: Annotated[str | None, Option("Language to translate from.", metavar="TAG", default=_BUNDLE)] = (
        None
    )
    tgt_lang: Annotated[str | None, Option("Language to translate into.", metavar="TAG", default=_BUNDLE)] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ScoreRequest(Languages):
    """Options that the score of an output depends on."""

    length_penalty: Annotated[
        float | None,
        # A power of a length: a float holds it.
        Option("Alpha of the length penalty.", SEARCH, minimum=0, maximum=30, default=_BUNDLE),
    ] = None
    length_normalization: Annotated[
        str | None,
        Option(
            "Scores over ((5 + length) / 6)^alpha, or over length^alpha.",
            SEARCH,
            metavar=_choices(LengthNormalization),
            default=_BUNDLE,
        ),
    ] = None
    coverage_penalty: Annotated[
        float | None,
        Option(
            "Beta of the coverage penalty: outputs should attend to all of the input; 0.2 where "
            "--length-normalization is gnmt, and far less with average.",
            SEARCH,
            minimum=0,
            maximum=1000,
            default="0",
        ),
    ] = None
    max_length_offset: Annotated[
        int | None,
        Option(
            "Maximum output length beyond that of the input, in tokens.",
            OUTPUTS,
            minimum=0,
            maximum=1_000_000,
            default=_BUNDLE,
        ),
    ] = None
    max_length: Annotated[
        int | None,
        Option("Maximum output length in tokens.", OUTPUTS, minimum=1, maximum=1_000_000, default=_BUNDLE),
    ] = None
    min_length: Annotated[
        int | None,
        Option("Minimum output length in tokens.", OUTPUTS, minimum=0, maximum=1_000_000, default=_BUNDLE),
    ] = None
    max_source_tokens: Annotated[
        int | None,
        Option(
            "Maximum length of a source in tokens; longer lines are translated in segments, and refused "
            "where a translation is given.",
            SEARCH,
            minimum=1,
            maximum=1_000_000,
            default=f"data.max_length of the training, and {PAIR_TOKENS:,} where a translation is given",
        ),
    ] = None
    no_repeat_ngram_size: Annotated[
        int | None,
        Option("Forbid repeating any n-gram of this size; 0 disables.", OUTPUTS, minimum=0, default=_BUNDLE),
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
            "strategy's own defaults.",
            SEARCH,
            metavar="NAME[:KEY=VALUE,...]",
            default="the bundle's beam search",
        ),
    ] = None
    sample: Annotated[
        bool, Option("Sample each next token; --n-best says how many outputs to draw.", SAMPLING)
    ] = False
    temperature: Annotated[
        float | None, Option("Below 1, the probable becomes more probable.", SAMPLING, default="1")
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
            "Random seed; the samples of a line do not depend on the other lines.",
            SAMPLING,
            minimum=0,
            default="0",
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
class BeamRequest:
    """The width of a beam search, where that alone may be asked for."""

    beam_size: Annotated[
        int | None,
        Option(
            "Hypotheses kept in the search; 1 is greedy.", SEARCH, minimum=1, maximum=1000, default=_BUNDLE
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SearchRequest(BeamRequest, ScoreRequest):
    """How outputs are searched.

    Attributes:
        n_best: how many hypotheses of each line.
        sampling: the strategy in place of beam search.
    """

    early_stopping: Annotated[
        str | None,
        Option(
            "When to end a sentence: optimal, when no live hypothesis can win; estimate, when none would win "
            "now; first, when beam-size hypotheses have finished.",
            SEARCH,
            metavar=_choices(EarlyStopping),
            default=_BUNDLE,
        ),
    ] = None
    num_groups: Annotated[
        int | None,
        Option(
            "Groups of diverse beam search, which divide the beam.",
            SEARCH,
            minimum=1,
            maximum=1000,
            default="2 with --diversity-penalty, else 1",
        ),
    ] = None
    diversity_penalty: Annotated[
        float | None,
        Option(
            "Penalty of a token that an earlier group writes in the same position.",
            SEARCH,
            minimum=0,
            maximum=1000,
            default="0.5 with --num-groups",
        ),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        Option(
            "Above 1, tokens that were written already are penalised.",
            OUTPUTS,
            above=0,
            maximum=1000,  # times a log-probability
            default=_BUNDLE,
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
    """How to compute. Results may change: slightly with bf16 and fp16, more with int8."""

    batch_tokens: Annotated[
        int | None, Option("Source tokens of a batch.", COMPUTING, minimum=1, default=_BUNDLE)
    ] = None
    batch_size: Annotated[
        int | None,
        Option("Sentences of a batch.", COMPUTING, minimum=1, default="as many as fit --batch-tokens"),
    ] = None
    threads: Annotated[
        int | None, Option("CPU threads.", COMPUTING, minimum=1, default="as many as there are cores")
    ] = None
    precision: Annotated[
        str,
        Option(
            "Arithmetic; bf16 and int8 are faster on some CPUs; auto is the fastest for this class of CPU "
            "that loses at most about 0.1 BLEU; fp16 is for GPUs, and slow elsewhere.",
            COMPUTING,
            metavar=f"{_choices(Precision)}|auto",
        ),
    ] = "float32"
    engine: Annotated[
        str,
        Option(
            "native: the native library's, on CPUs; torch; auto: the native engine where it supports the "
            "model, else torch.",
            COMPUTING,
            metavar="auto|native|torch",
        ),
    ] = "auto"
    device: Annotated[str, DEVICE] = "auto"


ValidSrc = Annotated[Path | None, Option("Source side of the validation text.", TEXT)]
ValidTgt = Annotated[Path | None, Option("Target side of the validation text.", TEXT)]
ValidPairs = Annotated[
    Path | None, Option("Source and target of the validation text in one .tsv or .jsonl file.", TEXT)
]


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """The two files of a training text; None: as in the configuration."""

    src: Annotated[Path | None, Option("Source side of the training text; .gz too.", TEXT)] = None
    tgt: Annotated[Path | None, Option("Target side, parallel line by line.", TEXT)] = None

    def overrides(self) -> list[tuple[str, str]]:
        """Return what is set as keys of the configuration and their values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        section = {"init": "train"}  # all others: data
        return [
            (f"{section.get(name, 'data')}.{name}", str(value))
            for name, value in values.items()
            if value is not None
        ]


@dataclass(frozen=True, kw_only=True)
class TrainingRequest(TrainingText):
    """The options of a training that are keys of its configuration."""

    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    pairs: Annotated[
        Path | None, Option("Source and target of the training text in one .tsv or .jsonl file.", TEXT)
    ] = None
    valid_pairs: ValidPairs = None
    init: Annotated[
        str | None,
        Option(
            "Bundle or run to fine-tune; architecture and tokenizers are those of the bundle.",
            metavar="BUNDLE",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Validation and test text, to find overlap, and how files of pairs are read."""

    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    valid_pairs: ValidPairs = None
    test_src: Annotated[Path | None, Option("Source side of the test text.", TEXT)] = None
    test_tgt: Annotated[Path | None, Option("Target side of the test text.", TEXT)] = None
    test_pairs: Annotated[
        Path | None, Option("Source and target of the test text in one .tsv or .jsonl file.", TEXT)
    ] = None
    src_key: Annotated[str, Option("Key of the source in a .jsonl line.", TEXT)] = "src"
    tgt_key: Annotated[str, Option("Key of the target in a .jsonl line.", TEXT)] = "tgt"


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Filters of parallel text, and what to do with the pairs that they find."""

    src_lang: Annotated[
        str | None,
        Option(
            "Expected language of the source, such as en.",
            TEXT,
            metavar="CODE",
            default="that of most lines",
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        Option(
            "Expected language of the target, such as de.",
            TEXT,
            metavar="CODE",
            default="that of most lines",
        ),
    ] = None
    examples: Annotated[int, Option("Examples shown of each filter.", TEXT, minimum=0)] = 3
    fix: Annotated[
        Path | None,
        Option("Write the text without faulty pairs into a new directory.", TEXT, metavar="DIR"),
    ] = None
    keep: Annotated[
        list[str] | None,
        Option("With --fix, keep the pairs that this filter finds; can be repeated.", TEXT, metavar="FILTER"),
    ] = None
    remove: Annotated[
        list[str] | None,
        Option(
            "With --fix, remove the pairs that this filter finds; can be repeated.", TEXT, metavar="FILTER"
        ),
    ] = None
