"""The options about parallel text, of `heedful train` and `heedful inspect`, in groups."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from heedful.requests import Option

TEXT = "Parallel text"  # heading of the help


@dataclass(frozen=True, kw_only=True)
class TrainingText:
    """The files of a training; None: as in the configuration."""

    src: Annotated[Path | None, Option("Source side of the training text; .gz too.")] = None
    tgt: Annotated[Path | None, Option("Target side, parallel line by line.")] = None
    valid_src: Annotated[Path | None, Option("Source side of the validation text.")] = None
    valid_tgt: Annotated[Path | None, Option("Target side of the validation text.")] = None
    pairs: Annotated[
        Path | None, Option("Source and target of the training text in one .tsv or .jsonl file.")
    ] = None
    valid_pairs: Annotated[
        Path | None, Option("Source and target of the validation text in one .tsv or .jsonl file.")
    ] = None

    def overrides(self) -> list[tuple[str, str]]:
        """Return the given files as settings of the configuration."""
        files = {field.name: getattr(self, field.name) for field in fields(self)}
        return [(f"data.{key}", str(path)) for key, path in files.items() if path is not None]


@dataclass(frozen=True, kw_only=True)
class HeldOutText:
    """Validation and test text, to find overlap."""

    valid_src: Annotated[Path | None, Option("Source side of the validation text.", TEXT)] = None
    valid_tgt: Annotated[Path | None, Option("Target side of the validation text.", TEXT)] = None
    valid_pairs: Annotated[
        Path | None, Option("Source and target of it in one .tsv or .jsonl file.", TEXT)
    ] = None
    test_src: Annotated[Path | None, Option("Source side of the test text.", TEXT)] = None
    test_tgt: Annotated[Path | None, Option("Target side of the test text.", TEXT)] = None
    test_pairs: Annotated[
        Path | None, Option("Source and target of it in one .tsv or .jsonl file.", TEXT)
    ] = None
    src_key: Annotated[str, Option("Key of the source in a .jsonl line.", TEXT)] = "src"
    tgt_key: Annotated[str, Option("Key of the target in a .jsonl line.", TEXT)] = "tgt"


@dataclass(frozen=True, kw_only=True)
class Filtering:
    """Filters of parallel text, and what to do with the pairs that they find."""

    src_lang: Annotated[
        str | None,
        Option(
            "Expected language of the source, such as en. [default: that of most lines]",
            TEXT,
            metavar="CODE",
        ),
    ] = None
    tgt_lang: Annotated[
        str | None,
        Option(
            "Expected language of the target, such as de. [default: that of most lines]",
            TEXT,
            metavar="CODE",
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
