"""Options: their ranges, how they are shown, and the options that searches or commands share.

A setting has its type, range, help text and default once, in a field of the dataclass that uses it: one of a
search in `settings/options.py` or `decoding/strategies/`, one of a verb in its task. The command line
(`cli/options.py`), the keys of a configuration (`settings/run.py`) and docs/reference/ are made from these
fields; [decode] inherits them. In the classes here, None leaves a setting as the bundle has it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt

from heedful.errors import OptionError, SearchCancelledError, refuse_if
from heedful.settings.arguments import fits, name_of

Precision = Literal["float32", "bf16", "fp16", "int8"]
PrecisionChoice = Literal[Precision, "auto"]
EngineChoice = Literal["auto", "native", "torch"]
TrainingPrecision = Literal["float32", "bf16"]

# Headings of the help.
SEARCH, OUTPUTS, SAMPLING, COMPUTING = "Search", "Output constraints", "Sampling", "Computing"
KEEPING = "Marks"
TEXT = "Parallel text"
BUNDLE = "as in the bundle"

LengthNormalization = Literal["gnmt", "power"]
EarlyStopping = Literal["optimal", "estimate", "first"]
Device = Literal["auto", "cpu", "cuda"]
BleuTokenizer = Literal[
    "auto", "13a", "zh", "ja-mecab", "ko-mecab", "char", "intl", "none", "flores101", "flores200", "spBLEU-1K"
]
TOKENIZE = "Tokenizer of sacreBLEU for BLEU; auto: the one for the language of the references."

# If source and target are given, neither can be split; memory and time grow by the square.
PAIR_TOKENS = 2000
_MAX_COUNT = 2**31

Whole = Annotated[int, Lt(2**63)]
AtLeastOne = Annotated[int, Ge(1)]
Count = Annotated[int, Ge(0), Lt(2**63)]


@dataclass(frozen=True)
class Option(GroupedMetadata):
    """How the command line shows a setting, and the range that a configuration checks.

    Attributes:
        help: one or two sentences; one, if the setting is a key of the configuration too.
        heading: the heading in the help; None: among the command's own options.
        minimum: the least number.
        maximum: the greatest number.
        outer_maximum: the greatest number in a file or on the command line; Python takes greater ones.
        above: a number must be greater than this; `check_options` checks it, the command line does not.
        metavar: what stands for the value in the help; None: its type.
        default: the default in words; None: the field's default is shown.
        flags: the flags, such as --output and -o; none: made from the field's name.
        is_argument: whether the value has no flag.
        is_file: whether it names a file to write, which does not end in a slash.
        is_common: whether `--help` shows it, not `--help-all` alone; None: if it has no heading. A required
            option is always shown.
    """

    help: str
    heading: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    outer_maximum: float | None = None
    above: float | None = None
    metavar: str | None = None
    default: str | None = None
    flags: tuple[str, ...] = ()
    is_argument: bool = False
    is_file: bool = False
    is_common: bool | None = None

    def __iter__(self) -> Iterator[object]:
        """Yield the range, for pydantic."""
        most = self.outer_maximum or self.maximum
        for kind, bound in ((Ge, self.minimum), (Gt, self.above), (Le, most)):
            if bound is not None:
                yield kind(bound)

    def flags_of(self, name: str) -> tuple[str, ...]:
        """Return the flags of the field with this name."""
        return self.flags or (f"--{name.replace('_', '-')}",)


@cache
def options_of(group: type) -> Mapping[str, Option]:
    """Return the option of each field of a dataclass that has one, by the field's name."""
    return {
        name: option
        for name, hint in get_type_hints(group, include_extras=True).items()
        for option in get_args(hint)
        if isinstance(option, Option)
    }


@cache
def hints_of(group: type) -> Mapping[str, Any]:
    """Return the type of each field of a dataclass, by the field's name."""
    return get_type_hints(group)


@cache
def kinds_of(group: type) -> Mapping[str, Sequence[Any]]:
    """Return the types of each field of a dataclass, or the values of a literal type, by the field's name."""
    forms = (UnionType, Union, Literal)
    hints = hints_of(group).items()
    return {name: get_args(hint) if get_origin(hint) in forms else (hint,) for name, hint in hints}


def check_options(group: object) -> None:
    """Check the fields that have an option; an `OptionError` names the first with a wrong type or value."""
    kind: type = type(group)
    for name, option in options_of(kind).items():
        value, hint, kinds = getattr(group, name), hints_of(kind)[name], kinds_of(kind)[name]
        if value is None and type(None) in kinds:
            continue
        if int in kinds or float in kinds:
            expected = _other_number(value, option, is_whole=int in kinds)
        else:
            expected = "" if fits(value, hint) else name_of(hint)
        if expected:
            shown = value if isinstance(value, Real) else repr(value)
            raise OptionError(f"{name}={shown}: must be {expected}")


def _other_number(number: object, option: Option, *, is_whole: bool) -> str:
    """Return the numbers that the option takes, in words; "" if the value is one of them."""
    if isinstance(number, bool) or not isinstance(number, Real):
        return "a whole number" if is_whole and number is None else "a number"
    value, most, above = cast(float, number), option.maximum or math.inf, option.above
    if above is not None:
        return "" if above < value <= most else f"above {above} and at most {most}"
    least = -math.inf if option.minimum is None else option.minimum
    mistakes = (
        (value < least, f"at least {least}"),
        (not value < math.inf, "a finite number"),
        (value > most, f"at most {most:,}"),
        (is_whole and not isinstance(number, Integral), "a whole number"),
    )
    return next((expected for is_broken, expected in mistakes if is_broken), "")


def _choices(kind: object) -> str:
    """Return the values of a literal type, as the help shows them."""
    return "|".join(get_args(kind))


def _length(text: str, least: int, *, heading: str = OUTPUTS, default: str = BUNDLE) -> Option:
    return Option(text, heading, minimum=least, maximum=_MAX_COUNT, outer_maximum=1_000_000, default=default)


@dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """The options of all strategies that a bundle may set, by the keys of [decode]; beams have more.

    The defaults are the paper's (section 6.1). Lengths count the end-of-sequence token of source and target,
    as the model does, and never the start token.

    Attributes:
        length_penalty: alpha of the penalty that divides log-probabilities, at least 0.
        length_normalization: the penalty of an output Y: "gnmt" is ((5 + |Y|) / 6) ** alpha, "power"
            |Y| ** alpha, which for alpha = 1 makes scores the mean log-probability of a token.
        max_length_ratio: an output has at most this many tokens for each token of its input, and
            `max_length_offset` more; None: 1, as in the paper.
        max_length_offset: tokens that an output may have beyond that.
        max_length: the maximum output length in tokens; None sets no such limit.
        min_length: the fewest tokens before the end of the output.
        max_source_tokens: the maximum length of a source in tokens, its special tokens included. A longer
            text is split at ends of sentences, else at punctuation, spaces or between tokens, and each
            segment is searched by itself. If the target is given, the limit is of both, and a longer pair
            is left out. None: as the bundle says.
        forced_first_id: the first token of every output; None leaves the choice to the model.
        forced_last_id: the token at the last position that the length limit allows; None leaves the choice to
            the model: the output may then be truncated, without an end token.
        suppressed_ids: tokens that are never chosen; None: the start and padding tokens.
        renormalize: whether the probabilities of the tokens that may be chosen are scaled up to a sum of 1.
        no_repeat_ngram_size: forbids repeating any n-gram of this size; 0 disables it.
        encoder_no_repeat_ngram_size: forbids the n-grams of this size that the source has, compared by ids;
            the start token counts as the output's first. 0 disables it. For chat models with one vocabulary.
        repetition_penalty: multiplies the log-probability of the start token and of each token that the
            output has already, as far as the search chooses by it (Keskar et al., 2019, section 4.1, on
            log-probabilities, as beam search in transformers has it); above 1 repeats less, and 1 changes
            nothing.
        replace_unknown: whether texts have, instead of an unknown token, the word of the source that it
            attends to most (see `TextCodec.decode`); ids and numbers are as without it.
        n_best: how many hypotheses to return; a beam has no more than its size.
    """

    length_penalty: Annotated[
        float,
        # A power of a length: a float holds it.
        Option("Alpha of the length penalty.", SEARCH, minimum=0, maximum=30, default=BUNDLE, is_common=True),
    ] = 0.6
    length_normalization: Annotated[
        LengthNormalization,
        Option(
            "Divide scores by ((5 + length) / 6)^alpha (gnmt) or by length^alpha (power).",
            SEARCH,
            default=BUNDLE,
        ),
    ] = "gnmt"
    max_length_ratio: Annotated[
        float | None,
        Option(
            "Maximum output tokens for each token of the input, before the offset is added; training takes "
            "the ratio from its text.",
            OUTPUTS,
            above=0,
            maximum=1000,
            default=f"{BUNDLE}, else 1",
        ),
    ] = None
    max_length_offset: Annotated[
        int, _length("Output tokens allowed beyond the input's length times the ratio.", 0)
    ] = 50
    max_length: Annotated[int | None, _length("Maximum output length in tokens.", 1)] = None
    min_length: Annotated[int, _length("Minimum output length in tokens.", 0)] = 0
    max_source_tokens: Annotated[
        int | None,
        _length(
            "Maximum source length in tokens; longer lines are translated in segments. If a translation is "
            "given, the maximum of both, and longer pairs are left out.",
            1,
            heading=SEARCH,
            default=f"data.max_length of the training; {PAIR_TOKENS:,} if a translation is given",
        ),
    ] = None
    forced_first_id: Annotated[
        int | None, Option("First token of every output.", minimum=0, maximum=_MAX_COUNT)
    ] = None
    forced_last_id: Annotated[
        int | None,
        Option("Last token of an output that is as long as allowed.", minimum=0, maximum=_MAX_COUNT),
    ] = None
    suppressed_ids: Annotated[
        tuple[Count, ...] | None, Option("Tokens that are never written; none: the begin and padding tokens.")
    ] = None
    renormalize: Annotated[
        bool, Option("Scale the probabilities of the tokens that may be written to a sum of 1.")
    ] = False
    no_repeat_ngram_size: Annotated[
        Whole,
        Option("Forbid repeating any n-gram of this size; 0 disables.", OUTPUTS, minimum=0, default=BUNDLE),
    ] = 0
    encoder_no_repeat_ngram_size: Annotated[
        Whole,
        Option(
            "Forbid the n-grams of this size that the source has; 0 disables.",
            OUTPUTS,
            minimum=0,
            default=BUNDLE,
        ),
    ] = 0
    repetition_penalty: Annotated[
        float,
        Option(
            "Penalise tokens that the output already contains, if above 1.",
            OUTPUTS,
            above=0,
            maximum=1000,  # times a log-probability
            default=BUNDLE,
        ),
    ] = 1.0
    replace_unknown: Annotated[
        bool,
        Option(
            "Replace each unknown token by the source word (or character) it attends to most.",
            OUTPUTS,
            default=BUNDLE,
        ),
    ] = False
    n_best: Annotated[
        int, Option("Outputs of each sentence.", minimum=1, maximum=100_000, outer_maximum=1000)
    ] = 1

    def length_limit(self, num_src_tokens: int) -> int:
        """Return the maximum length of the output of a source, in tokens with their end tokens."""
        limit = math.ceil((self.max_length_ratio or 1.0) * num_src_tokens) + self.max_length_offset
        return limit if self.max_length is None else min(limit, self.max_length)

    def penalty(self, length: int) -> float:
        """Return the divisor of the log-probability of an output of `length` tokens, its end token counted.

        ((5 + length) / 6) ** alpha of GNMT (Wu et al., 2016, section 7), or length ** alpha; an output of the
        end token alone has the penalty 1.
        """
        base = length if self.length_normalization == "power" else (5 + length) / 6
        return float(base**self.length_penalty)


@dataclass(frozen=True, kw_only=True)
class SharedOptions(DecodingOptions):
    """The options that all strategies share.

    Attributes:
        coverage_penalty: beta of GNMT's (Wu et al., 2016, equation 14), at least 0. An output that ends has
            beta * sum over i of log(min(sum over j of p_ij, 1)) added to its score, where p_ij is the
            attention that its token j pays to token i of the source (see `Backend.attention`). Live
            hypotheses are compared without it, as in the paper: they may still cover the rest.
        threads: how many of the backend's may compute; None: all. They change no output.
        cancelled: whether the caller no longer needs the outputs; searches ask before each step. None: they
            run to their end.
    """

    coverage_penalty: Annotated[
        float,
        Option(
            "Beta of the coverage penalty, which favours outputs that attend to all of the input; try "
            "0.2 with gnmt, and far less with power.",
            SEARCH,
            minimum=0,
            maximum=1000,
        ),
    ] = 0.0
    threads: int | None = field(default=None, compare=False)
    cancelled: Callable[[], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_options(self)
        is_longer = self.max_length is not None and self.min_length > self.max_length
        is_negative = min(self.suppressed_ids or (), default=0) < 0
        refuse_if(
            (is_longer, f"min_length={self.min_length}: must be at most max_length={self.max_length}"),
            (self.threads is not None and self.threads < 1, f"threads={self.threads}: must be at least 1"),
            (is_negative, f"suppressed_ids={self.suppressed_ids}: must be at least 0"),
        )

    def check_cancelled(self) -> None:
        """Check that the outputs are still needed; strategies do so before each step.

        Raises:
            SearchCancelledError: they are not.
        """
        if self.cancelled is not None and self.cancelled():
            raise SearchCancelledError("the search was cancelled")


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The options of every beam search.

    Attributes:
        beam_size: live hypotheses of one sentence.
        early_stopping: when to end a sentence. "optimal": when no live hypothesis can still enter its
            n-best list. "estimate": when it has `beam_size` finished hypotheses and the best live one,
            scored at its present length and as if it covered its source, is no better than the worst of
            these. "first": when it has `beam_size` finished hypotheses.
    """

    beam_size: Annotated[
        int,
        Option(
            "Hypotheses kept in the search; 1 is greedy.",
            SEARCH,
            minimum=1,
            maximum=1000,
            default=BUNDLE,
            is_common=True,
        ),
    ] = 4
    early_stopping: Annotated[
        EarlyStopping,
        Option(
            "When a sentence ends: optimal, when no live hypothesis can win; estimate, when none "
            "would win now; first, when beam-size hypotheses have finished.",
            SEARCH,
            default=BUNDLE,
        ),
    ] = "optimal"

    def __post_init__(self) -> None:
        check_options(self)


RUN = Option(
    "A run directory (its best bundle is used), a bundle, or USER/MODEL[@REVISION] on the hub.",
    metavar="RUN",
    is_argument=True,
)
Run = Annotated[Path, RUN]
Prefix = Annotated[
    Path | None,
    Option(
        "A file with a prefix for each input line, which the output starts with: whole words, or nothing.",
        OUTPUTS,
        metavar="FILE",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    Option(
        "Another model for an ensemble; probabilities are averaged; repeatable.",
        metavar="RUN",
        is_common=False,
    ),
]
ShortlistFile = Annotated[
    Path | None,
    Option(
        "File of `heedful shortlist`: limits each sentence to a few tokens; scores treat all "
        "others as impossible.",
        COMPUTING,
        metavar="FILE",
    ),
]
AdapterOfBase = Annotated[
    Path | None,
    Option(
        "A run that was fine-tuned from this model with LoRA (lora.rank), its adapter.safetensors, or a LoRA "
        "adapter of PEFT: its products are added to this model, which stays as it is.",
        COMPUTING,
        metavar="RUN",
    ),
]
AsJson = Annotated[bool, Option("Print JSON.", flags=("--json",))]
Overwrite = Annotated[bool, Option("Start again; an existing run is renamed to NAME.old-N.")]
PRESET = Option("tiny, small, base, big, a row of Table 3, or a published system.")
DEVICE = Option(
    "Device; auto uses a GPU if there is one.", COMPUTING, metavar=_choices(Device), is_common=True
)
OUTPUT = ("--output", "-o")


File = str | Path
# Settings by their whole keys; on the command line as --set KEY=VALUE
Settings = Mapping[str, Any] | Sequence[tuple[str, Any]]


def settings_like(text: str) -> Option:
    """Return the option `--set`, with this help."""
    return Option(text, metavar="KEY=VALUE", flags=("--set",))


@dataclass(frozen=True, kw_only=True)
class Languages:
    """The languages of a model that has many, as its own tags for them: fra_Latn, or fr."""

    src_lang: Annotated[str | None, Option("Language to translate from.", metavar="TAG", default=BUNDLE)] = (
        None
    )
    tgt_lang: Annotated[str | None, Option("Language to translate into.", metavar="TAG", default=BUNDLE)] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How to compute. Results may change: slightly with bf16 and fp16, more with int8."""

    batch_tokens: Annotated[
        int | None, Option("Source tokens per batch.", COMPUTING, minimum=1, default=BUNDLE)
    ] = None
    batch_size: Annotated[
        int | None,
        Option("Sentences per batch.", COMPUTING, minimum=1, default="as many as fit --batch-tokens"),
    ] = None
    threads: Annotated[
        int | None,
        Option("Number of CPU threads.", COMPUTING, minimum=1, default="one for each core", is_common=True),
    ] = None
    precision: Annotated[
        PrecisionChoice,
        Option(
            "Arithmetic. auto picks the fastest that loses at most about 0.1 BLEU on this class of "
            "CPU. fp16 is for GPUs, and slow elsewhere.",
            COMPUTING,
            metavar=_choices(PrecisionChoice),
            is_common=True,
        ),
    ] = "float32"
    engine: Annotated[
        EngineChoice,
        Option(
            "native: the native library, on CPUs. torch: PyTorch. auto: native if it supports the "
            "model, else torch.",
            COMPUTING,
            metavar=_choices(EngineChoice),
        ),
    ] = "auto"
    device: Annotated[Device, DEVICE] = "auto"


SRC_KEY = (
    "Key of the source in JSON, or its column in a table; in a .tsv also its number; in TMX its language."
)
TGT_KEY = (
    "Key of the target in JSON, or its column in a table; in a .tsv also its number; in TMX its language."
)
ValidSrc = Annotated[Path | None, Option("Source side of the validation text.", TEXT, is_common=True)]
ValidTgt = Annotated[Path | None, Option("Target side of the validation text.", TEXT, is_common=True)]
ValidPairs = Annotated[
    Path | None, Option("Source and target of the validation text in one file of pairs.", TEXT)
]


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """The options of a training that are keys of its configuration; None: as in the configuration."""

    src: Annotated[
        Path | None, Option("Source side of the training text; .gz too.", TEXT, is_common=True)
    ] = None
    tgt: Annotated[Path | None, Option("Target side, parallel line by line.", TEXT, is_common=True)] = None
    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    pairs: Annotated[
        Path | None,
        Option(
            "Source and target of the training text in one file (.tsv, .tmx, .xlf, .po, .jsonl, .parquet), "
            "or a directory of Parquet files or of the datasets library.",
            TEXT,
            is_common=True,
        ),
    ] = None
    valid_pairs: ValidPairs = None
    src_key: Annotated[str | None, Option(SRC_KEY, TEXT, default="src")] = None
    tgt_key: Annotated[str | None, Option(TGT_KEY, TEXT, default="tgt")] = None
    init: Annotated[
        str | None,
        Option("Fine-tune this bundle or run; its architecture and tokenizers are kept.", metavar="BUNDLE"),
    ] = None

    def overrides(self) -> dict[str, str]:
        """Return what is set as keys of the configuration and their values."""
        given = {name: str(value) for name, value in vars(self).items() if value is not None}
        return {f"{'train' if name == 'init' else 'data'}.{name}": text for name, text in given.items()}


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Validation and test text, to find overlap, and how files of pairs are read."""

    valid_src: ValidSrc = None
    valid_tgt: ValidTgt = None
    valid_pairs: ValidPairs = None
    test_src: Annotated[Path | None, Option("Source side of the test text.", TEXT)] = None
    test_tgt: Annotated[Path | None, Option("Target side of the test text.", TEXT)] = None
    test_pairs: Annotated[
        Path | None,
        Option("Source and target of the test text in one .tsv, .tmx, .xlf, .po or .jsonl file.", TEXT),
    ] = None
    src_key: Annotated[str, Option(SRC_KEY, TEXT)] = "src"
    tgt_key: Annotated[str, Option(TGT_KEY, TEXT)] = "tgt"


Keep = Annotated[
    list[str] | None,
    Option(
        "Keep the pairs that this filter finds when others are removed; repeatable.", TEXT, metavar="FILTER"
    ),
]
Remove = Annotated[
    list[str] | None,
    Option(
        "Also remove the pairs that this filter, or PLUGIN:NAME of a plugin, finds, when faulty pairs are "
        "removed; repeatable.",
        TEXT,
        metavar="FILTER",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Filters of parallel text, and what to do with the pairs that they find."""

    src_lang: Annotated[
        str | None,
        Option(
            "Expected language of the source, such as en.",
            TEXT,
            metavar="CODE",
            default="the language of most lines",
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        Option(
            "Expected language of the target, such as de.",
            TEXT,
            metavar="CODE",
            default="the language of most lines",
        ),
    ] = None
    examples: Annotated[int, Option("Examples shown of each filter.", TEXT, minimum=0)] = 3
    fix: Annotated[
        Path | None, Option("Write the text without faulty pairs into a new directory.", TEXT, metavar="DIR")
    ] = None
    keep: Keep = None
    remove: Remove = None
