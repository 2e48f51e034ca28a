"""Whatever the text: each line is kept or removed, in order and as it was; and nothing is found twice."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from ten_pairs import ENGLISH, GERMAN

from heedful.data.inspection import REMOVED, inspect_text
from heedful.errors import CorpusError
from heedful.settings.options import Filtering

# Sentences, and what may be wrong with them: anything but line breaks, NUL, and halves of surrogate pairs.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\n\0")
LINES = st.one_of(st.sampled_from((*ENGLISH, *GERMAN)), st.text(CHARACTERS, max_size=30))
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=12)
SOME = {"max_examples": 40}


def as_bytes(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@given(pairs=PAIRS)
@settings(**SOME)
def test_every_line_is_kept_or_removed_in_its_order(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        src, tgt, out = (Path(folder) / name for name in ("a.en", "a.de", "out"))
        src.write_bytes(as_bytes([pair[0] for pair in pairs]))
        tgt.write_bytes(as_bytes([pair[1] for pair in pairs]))
        try:
            report = inspect_text([src, tgt], filtering=Filtering(fix=out))
        except CorpusError as error:
            assert "no pair would be left" in str(error)
            assert not out.exists()
            return
        lines = [row.decode().split("\t") for row in (out / REMOVED).read_bytes().splitlines()[1:]]
        removed = [int(columns[0]) for columns in lines]
        kept = [i for i in range(1, len(pairs) + 1) if i not in removed]
        assert removed == sorted(set(removed))
        assert all(len(columns) == 4 and columns[1] for columns in lines)
        sentences = [src.read_bytes().split(b"\n")[:-1], tgt.read_bytes().split(b"\n")[:-1]]
        for name, side in zip(("train.en", "train.de"), sentences, strict=True):
            assert (out / name).read_bytes() == b"".join(side[i - 1] + b"\n" for i in kept)
        assert (report.pairs, report.faulty) == (len(pairs), len(removed))


@given(pairs=PAIRS)
@settings(**SOME)
def test_what_was_cleaned_has_no_pair_that_would_be_removed_for_itself(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        src, tgt, out = (Path(folder) / name for name in ("a.en", "a.de", "out"))
        src.write_bytes(as_bytes([pair[0] for pair in pairs]))
        tgt.write_bytes(as_bytes([pair[1] for pair in pairs]))
        try:
            inspect_text([src, tgt], filtering=Filtering(fix=out))
        except CorpusError:
            return
        again = inspect_text([out / "train.en", out / "train.de"])
        # Filters that compare with the whole corpus may judge its rest otherwise.
        relative = {"script", "language", "swapped", "outlier"}
        assert [f.name for f in again.findings if f.removes and f.pairs and f.name not in relative] == []
