"""TMX files as parallel text, and files of markup where lines are expected."""

import gzip
from io import BytesIO
from pathlib import Path

import pytest

from heedful.data.files import FilledPairs, PairFiles, WantedLanguages, read_lines, read_parallel
from heedful.data.streams import Lines, open_input
from heedful.errors import CorpusError

HEAD = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en-US"/><body>\n'
PAIRS = [("The cat sleeps.", "Die Katze schläft."), ("Two dogs", "Zwei Hunde")]


def tuv(tag: str, text: str) -> str:
    return f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>'


def tmx(*units: dict[str, str]) -> str:
    body = "".join(f"<tu>{''.join(map(tuv, unit.keys(), unit.values()))}</tu>\n" for unit in units)
    return f"{HEAD}{body}</body></tmx>"


UNITS = [{"de-DE": target, "en-US": source} for source, target in PAIRS]


def pairs_of(path: Path, **options: str | WantedLanguages) -> list[tuple[str, str]]:
    chunks = FilledPairs(PairFiles((path,), **options))  # type: ignore[arg-type]
    return [pair for src, tgt in chunks for pair in zip(src, tgt, strict=True)]


def test_the_source_is_what_the_file_says_or_what_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(tmx(*UNITS), encoding="utf-8")
    (tmp_path / "a.tmx.gz").write_bytes(gzip.compress(tmx(*UNITS).encode()))
    backwards = [(target, source) for source, target in PAIRS]
    for name in ("a.tmx", "a.tmx.gz"):
        assert pairs_of(tmp_path / name) == PAIRS
        assert pairs_of(tmp_path / name, languages=("de", "en")) == backwards
        assert pairs_of(tmp_path / name, src_key="de-AT", tgt_key="en", languages=("en", "de")) == backwards
    assert pairs_of(tmp_path) == PAIRS * 2  # a directory of them


def test_a_file_may_be_source_and_target(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(content := tmx(*UNITS), encoding="utf-8")
    text = read_parallel(path, path)
    assert [*zip(text.src, text.tgt, strict=True)] == PAIRS
    assert text.name == str(path)
    rows = [*PairFiles((path, path)).rows()]
    assert [content.splitlines()[row.number - 1].count(row.src) for row in rows] == [1, 1]
    assert [row.raw for row in rows] == [(f"{src}\t{tgt}\n".encode(),) for src, tgt in PAIRS]


def test_units_without_one_side_or_with_codes_are_counted(tmp_path: Path) -> None:
    coded = {"en": 'a <bpt i="1">&lt;b></bpt>b<ept i="1">x</ept>', "de": "c"}
    broken = {"en": "on\n two\tlines", "de": "auf\u00a0zwei"}
    path = tmp_path / "a.tmx"
    path.write_text(tmx({"en": "alone"}, coded, broken, {"en": "empty", "de": ""}), encoding="utf-8")
    text = read_parallel(path, path)
    assert [*zip(text.src, text.tgt, strict=True)] == [("on two lines", "auf\u00a0zwei")]
    assert text.num_empty == 3


@pytest.mark.parametrize(
    ("units", "languages", "message"),
    [
        (
            [*UNITS, {"en": "cat", "fr": "chat"}],
            (None, None),
            "has several languages: de-DE, en-US, en, fr; .*--src-key",
        ),
        (UNITS, ("en", "fr"), "no unit has a text in en and one in fr; its languages: de-DE, en-US"),
        ([{"en": "a", "de": "M&auml;"}], (None, None), "undefined entity: line 3"),
        ([], (None, None), "its languages: none"),
    ],
)
def test_what_is_not_clear_is_refused(
    tmp_path: Path, units: list[dict[str, str]], languages: WantedLanguages, message: str
) -> None:
    (tmp_path / "a.tmx").write_text(tmx(*units), encoding="utf-8")
    with pytest.raises(CorpusError, match=message) as refused:
        pairs_of(tmp_path / "a.tmx", languages=languages)
    assert str(refused.value).startswith(f"{tmp_path / 'a.tmx'}: ")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tmx", "any", "is TMX, not lines of text; give it as source and as target both, or as --pairs"),
        ("a.en", tmx(), r"is (TMX|XML), not lines of text"),
        ("a.xlf", "any", "is XLIFF.*as --pairs"),
        ("a.pot", "any", "without translations"),
        ("a.po.gz", "any", "is a catalogue of messages"),
        ("a.HTML", "any", "is HTML.*--document"),
        ("a.en", "<!DOCTYPE html>\n<p>", "is HTML"),
        ("a.en", '\ufeff<?xml version="1.0"?>\n<!-- a --><a/>', "is XML"),
    ],
)
def test_markup_is_not_read_as_lines(tmp_path: Path, name: str, text: str, message: str) -> None:
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(CorpusError, match=message):
        read_lines(tmp_path / name)
    with pytest.raises(CorpusError, match=message), open_input(tmp_path / name) as opened:
        [*Lines(*opened).strictly()]


def test_markup_in_a_stream_or_compressed_is_not_read_as_lines(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="stdin: is XML"):
        [*Lines(BytesIO(tmx().encode()), "stdin").strictly()]
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(tmx().encode()))
    with pytest.raises(CorpusError, match="is TMX"):
        read_lines(tmp_path / "a.en.gz")


@pytest.mark.parametrize("text", ["<p> begins it", "<?xml is how it begins", "<tmx> is a tag", "<a>\n<b>"])
def test_lines_may_begin_as_markup_does(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.en").write_text(text, encoding="utf-8")
    assert read_lines(tmp_path / "a.en") == text.split("\n")
    with open_input(tmp_path / "a.en") as (stream, name):
        assert [*Lines(stream, name)] == text.split("\n")
