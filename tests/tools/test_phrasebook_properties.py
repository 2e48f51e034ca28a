"""Truths about the phrase book that hold for any seed and size."""

from hypothesis import given, settings
from hypothesis import strategies as st

from phrasebook import generate


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(min_value=0, max_value=2**63), sizes=st.tuples(*[st.integers(0, 120)] * 3))
def test_any_book_is_reproducible_and_leaks_nothing(seed: int, sizes: tuple[int, int, int]) -> None:
    num_train, num_valid, num_test = sizes
    settings_ = {"seed": seed, "num_train": num_train, "num_valid": num_valid, "num_test": num_test}
    book = generate(**settings_, num_unseen=0)
    assert book == generate(**settings_, num_unseen=0)
    assert (len(book.train), len(book.valid), len(book.test), book.unseen) == (*sizes, ())
    sentences = [english for split in (book.train, book.valid, book.test) for english, _ in split]
    assert len(set(sentences)) == sum(sizes)
