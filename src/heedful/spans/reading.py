"""What a document costs while it is read: whoever reads it can count, refuse it, or stop."""

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TypeVar

# Called with the numbers of characters to translate and of marks (tags, elements, codes) that are new.
Watch = Callable[[int, int], None]
_T = TypeVar("_T")
MANY = 1000
WATCH: ContextVar[Watch] = ContextVar("WATCH", default=lambda characters, marks: None)


def counted(marks: Iterable[_T]) -> Iterator[_T]:
    """Yield marks, and tell the watch of every 1,000."""
    watch = WATCH.get()
    for number, each in enumerate(marks, start=1):
        if number % MANY == 0:
            watch(0, MANY)
        yield each
