"""Options: their ranges, how they are shown, and those that commands share.

A setting has its type, range, help text and default once, in a field of the dataclass that uses it: one of a
search in `settings/search.py` or `decoding/strategies/`, one of a verb in its task. The command line
(`cli/options.py`), the keys of a configuration (`settings/run.py`) and docs/reference/ are made from these
fields. In the classes here, None leaves a setting as the bundle has it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from heedful.errors import InputError

Precision = Literal["float32", "bf16", "fp16", "int8"]
TrainingPrecision = Literal["float32", "bf16"]


# Headings of the help.
SEARCH, OUTPUTS, SAMPLING, COMPUTING = "Search", "Output constraints", "Sampling", "Computing"
TEXT = "Parallel text"
BUNDLE = "as in the bundle"

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Option:
    """How the command line shows a setting.

    Attributes:
        help: one or two sentences; one, where the setting is a key of the configuration too.
        heading: of the help, under which it stands; None: among the command's own options.
        minimum: of a number.
        maximum: of a number.
        outer_maximum: of a number in a file or on the command line, where Python takes larger ones.
        above: of a number that must be greater than this; `check_options` says so, not the command line.
        metavar: what stands for the value in the help; None: its type.
        default: what holds where it is not set, in words; None: the field's default says so.
        flags: such as --output and -o; none: the name of the field.
        is_argument: whether the value stands by itself, without a flag.
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
def kinds_of(group: type) -> Mapping[str, Sequence[Any]]:
    """Return the types of each field of a dataclass, or the values of a literal type, by the field's name."""
    hints = get_type_hints(group)
    return {
        name: get_args(hint) if get_origin(hint) in (UnionType, Union, Literal) else (hint,)
        for name, hint in hints.items()
    }


def check_options(group: object) -> None:
    """Check the fields of a dataclass that have an option: numbers in their range, names that there are.

    Raises:
        InputError: naming the first that cannot be.
    """
    kind: type = type(group)
    for name, option in options_of(kind).items():
        value, kinds = getattr(group, name), kinds_of(kind)[name]
        if value is None and type(None) in kinds:
            continue
        if isinstance(kinds[0], str) and value not in kinds:
            raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, kinds))}")
        if int in kinds or float in kinds:
            _check_number(name, value, option, is_whole=int in kinds)


def _check_number(name: str, number: object, option: Option, *, is_whole: bool) -> None:
    if isinstance(number, bool) or not isinstance(number, Real):
        raise InputError(f"{name}={number!r}: must be a {'whole ' * (is_whole and number is None)}number")
    value = cast(float, number)
    least, most, above = option.minimum, option.maximum or math.inf, option.above
    if above is not None and not above < value <= most:
        raise InputError(f"{name}={value}: must be above {above} and at most {most}")
    if least is not None and not least <= value < math.inf:
        expected = f"at least {least}" if value < least else "a finite number"
        raise InputError(f"{name}={value}: must be {expected}")
    if value > most:
        raise InputError(f"{name}={value}: must be at most {most:,}")
    if is_whole and not isinstance(value, Integral):
        raise InputError(f"{name}={value}: must be a whole number")


def choices(*kinds: object) -> str:
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
ShortlistFile = Annotated[
    Path | None,
    Option(
        "A file of heedful shortlist: write each sentence with a few tokens only; scores are those of a "
        "model that knows no others.",
        COMPUTING,
        metavar="FILE",
    ),
]
AsJson = Annotated[bool, Option("Print JSON.", flags=("--json",))]
Overwrite = Annotated[bool, Option("Start anew; an existing run is renamed to NAME.old-N.")]
PRESET = Option("tiny, small, base, big, a row of Table 3, or a published system.")
OUTPUT = ("--output", "-o")


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
        int | None, Option("Source tokens of a batch.", COMPUTING, minimum=1, default=BUNDLE)
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
            metavar=f"{choices(Precision)}|auto",
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
    device: Annotated[
        str,
        Option("Where to compute; auto: a GPU where there is one.", COMPUTING, metavar=choices(Device)),
    ] = "auto"


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
