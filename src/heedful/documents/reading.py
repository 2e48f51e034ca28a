"""What a document costs while it is read: whoever reads it can count, refuse it, or stop."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

# Called with numbers of characters to translate and of marks (tags, elements, codes) that are new.
Watch = Callable[[int, int], None]
_T = TypeVar("_T")
_MANY = 1000
_watch: ContextVar[Watch] = ContextVar("_watch", default=lambda characters, marks: None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Let a function see what is read, and raise an error to end it."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def the_watch() -> Watch:
    """Return what is called while a document is read."""
    return _watch.get()


def counted(marks: Iterable[_T]) -> Iterator[_T]:
    """Yield marks, and tell the watch of every 1,000."""
    watch = the_watch()
    for number, each in enumerate(marks, start=1):
        if number % _MANY == 0:
            watch(0, _MANY)
        yield each
