"""What a user keeps from the translation: `--keep` and `--keep-file`."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from heedful.documents.formats import format_of, supported
from heedful.errors import InputError
from heedful.spans.keep import KeepRule, KeepRules, keep_rule

_EVERYWHERE = "all"  # files, in a file of rules


def keep_rules(keep: Sequence[str] | str | None, file: Path | None = None) -> KeepRules:
    """Return the rules of a task.

    Args:
        keep: patterns, and names of presets.
        file: a TOML file with lists of these: by the ending of files, and for all of them.

    Raises:
        InputError: a pattern that is none, or a file that cannot be read.
    """
    given = [keep] if isinstance(keep, str) else keep or []
    lists = {} if file is None else _read_keep_file(file)
    everywhere = lists.pop(_EVERYWHERE, ())
    return KeepRules((*map(keep_rule, given), *everywhere), lists)


def _read_keep_file(file: Path) -> dict[str, tuple[KeepRule, ...]]:
    try:
        lists = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as TOML: {error}") from None
    rules: dict[str, tuple[KeepRule, ...]] = {}
    for ending, patterns in lists.items():
        if ending != _EVERYWHERE and format_of(f"a.{ending}") is None:
            raise InputError(f"{file}: {ending} is no ending of a document; write all, or: {supported()}")
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise InputError(f"{file}: {ending} must be a list, as in {ending} = ['SKU-[0-9]+', 'unity']")
        try:
            rules[ending.lower()] = tuple(map(keep_rule, patterns))
        except InputError as error:
            raise InputError(f"{file}: {ending}: {error}") from None
    return rules
