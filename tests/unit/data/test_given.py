"""Texts that a program gives as lists."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heedful.data.files import read_lines
from heedful.data.given import with_files
from heedful.errors import CorpusError

PAIRS = [("a dog", "ein Hund"), ("two\ncats", "zwei Katzen")]
SRC, TGT = ["a dog", "two cats"], ["ein Hund", "zwei Katzen"]


class Column:
    """A column of a table, neither a list nor a sequence."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


@pytest.mark.parametrize(
    "values",
    [
        {"data.pairs": PAIRS},
        {"data.pairs": iter(PAIRS)},
        {"data.src": SRC, "data.tgt": Column(TGT)},
        {"data.src": (text for text in SRC), "data.tgt": tuple(TGT)},
    ],
)
def test_lists_become_files_whose_names_depend_on_the_text_alone(
    values: dict[str, Iterable[Any]], tmp_path: Path
) -> None:
    named = with_files(values, tmp_path / "run")
    assert [read_lines(named[key]) for key in ("data.src", "data.tgt")] == [SRC, TGT]
    assert named == with_files({"data.src": SRC, "data.tgt": TGT}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_of_files_stay_and_every_corpus_is_looked_at(tmp_path: Path) -> None:
    values = {"src": Path("a.en"), "tgt": "a.de", "data.corpora": [{"pairs": PAIRS, "weight": 2.0}], "x": [1]}
    named = with_files(values, tmp_path / "run")
    [corpus] = named.pop("data.corpora")
    assert named == {"src": Path("a.en"), "tgt": "a.de", "x": [1]}
    assert corpus.keys() == {"src", "tgt", "weight"}
    assert read_lines(corpus["tgt"]) == TGT


@pytest.mark.parametrize(
    "values", [{"src": ["a", None]}, {"pairs": [("a", "b"), ("a",)]}, {"pairs": ["ab"]}, {"tgt": [b"a"]}]
)
def test_what_is_no_text_is_named(values: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"number [12]"):
        with_files(values, tmp_path / "run")


def test_a_list_that_only_names_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "train.en"
    file.write_text("a dog\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="without a list"):
        with_files({"data.src": [str(file)]}, tmp_path / "run")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.text").write_text("mine", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"run\.text"):
        with_files({"data.src": SRC}, tmp_path / "run")
    assert (tmp_path / "run.text").read_text(encoding="utf-8") == "mine"


def test_a_run_in_the_working_directory_has_its_texts_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    named = with_files({"data.src": SRC}, Path())
    assert Path(named["data.src"]).parent == tmp_path / "here.text"
    with pytest.raises(CorpusError):
        with_files({"data.src": SRC}, Path("/"))
