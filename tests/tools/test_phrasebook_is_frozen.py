"""The phrase book of the package never changes by itself."""

import hashlib
from importlib import resources

from heedful.data.phrasebook import FILE_NAME, phrase_book

TEXT = "1da93fa5722f3fd3d393946c370ce406495444603b4ca622d33160cdf21c77b2"
FILE = "2efb476415b8c21633f8a4a2a1f9509a2a0687e128da1d48a0cbcae6940b4d0a"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_the_packaged_file_has_its_checksum_and_is_small() -> None:
    packaged = resources.files("heedful.data").joinpath(FILE_NAME).read_bytes()
    assert sha256(packaged) == FILE
    assert len(packaged) < 1_000_000


def test_the_text_is_that_which_was_generated_before_it_was_frozen() -> None:
    book = phrase_book()
    splits = (book.train, book.valid, book.test, book.unseen)
    assert tuple(map(len, splits)) == (40_000, 500, 1000, 500)
    text = "".join(f"{english}\t{german}\n" for split in splits for english, german in split)
    assert sha256(text.encode()) == TEXT


def test_no_sentence_stands_twice_and_each_has_one_translation() -> None:
    book = phrase_book()
    sentences = [
        english for split in (book.train, book.valid, book.test, book.unseen) for english, _ in split
    ]
    assert len(set(sentences)) == len(sentences)
