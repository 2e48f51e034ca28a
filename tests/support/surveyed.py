"""Surveys of corpora that are written down in a test."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from heedful.data.cleaning import Survey, survey
from heedful.data.cleaning.pair import Identifier
from heedful.data.files import Row

Pairs = Sequence[tuple[str, str]]


def rows(pairs: Pairs) -> Iterable[Row]:
    """The pairs as lines of files."""
    return [Row(i, src, tgt, (src.encode(), tgt.encode())) for i, (src, tgt) in enumerate(pairs, start=1)]


def survey_of(
    pairs: Pairs,
    *,
    valid: Pairs | None = None,
    test: Pairs | None = None,
    identifier: Identifier | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    files: Sequence[Path] = (),
) -> Survey:
    """Survey pairs, with those held out."""
    held_out = {name: rows(held) for name, held in (("valid", valid), ("test", test)) if held is not None}
    return survey(rows(pairs), held_out=held_out, identifier=identifier, languages=languages, files=files)
