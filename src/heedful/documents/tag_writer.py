"""Writes a translation with tags and placeholders between its words, and white space where it belongs."""

import re
from collections.abc import Callable, Sequence
from unicodedata import category

from heedful.documents.marked_text import Marker, Span, find
from heedful.text.scripts import UNSPACED

_UNSPACED = re.compile(f"[{UNSPACED}]")
_JOINERS = "\u200c\u200d"  # within a word, as marks are
_CLOSING = ".,;:!?)]}»”’…%、。，！？；：）」』"
_OPENING = "([{«“„‘¿¡（「『"
_NEAR = 8  # characters beside a placeholder that could become a part of it


def is_unspaced(char: str) -> bool:
    """Return whether a character is of a script without spaces between words."""
    return _UNSPACED.match(char) is not None


def is_mark(char: str) -> bool:
    """Return whether a character is part of the one before it."""
    return char in _JOINERS or category(char).startswith("M")


class TagWriter:
    """Writes the translation from left to right, with markers in the gaps between its words."""

    def __init__(self, text: str, spans: Sequence[Span], escape: Callable[[str], str]) -> None:
        self._text = text
        self._ends = [0, *(end for _, end in spans)]  # of the word before each gap
        self._starts = [*(start for start, _ in spans), len(text)]  # of the word after each gap
        self._escape = escape
        self._written: list[str] = []
        self._at = 0
        self._last = ""  # the last character that was written, without tags
        self._run = ""  # text since the last tag or white space
        self._placeholders: set[Span] = set()  # in the run; nothing may be written behind that changes them
        self._owes_space = False  # before the next text, behind tags that close an element

    def tag(self, raw: str, gap: int, *, num_spaces: int, is_apart: bool = False) -> None:
        """Write a tag.

        Args:
            raw: the tag.
            gap: in which it stands.
            num_spaces: behind how many characters of the white space of the gap; -1: behind all of it.
            is_apart: whether white space follows it, too.
        """
        behind = self._starts[gap]
        self._go_to(behind if num_spaces < 0 else min(behind, self._ends[gap] + num_spaces))
        if num_spaces:
            self._pay_space()
        self._written.append(raw)
        self._end_run()
        self._owes_space = self._owes_space or (is_apart and self._at == behind)

    def blank(self, raw: str, gap: int) -> None:
        """Write tags in place of the white space of a gap."""
        self._go_to(self._ends[gap])
        self._owes_space = False
        self._written.append(raw)
        self._end_run()
        self._at, self._last = max(self._at, self._starts[gap]), " "

    def lead(self, marker: Marker, gap: int) -> None:
        """Write the space before a placeholder that is first in an element, before the element's tag."""
        self._go_to(self._ends[gap])
        if self._at == self._starts[gap] and _are_apart(marker.before, self._last, _OPENING):
            self._pay_space()
            if not self._last.isspace():
                self._write(" ")

    def point(self, marker: Marker, gap: int) -> None:
        """Write a placeholder, or a tag that is shown, with white space where the source has some."""
        self._go_to(self._ends[gap])
        is_touched = marker.before != "" and not marker.before.isspace()
        if self._owes_space and not (is_touched and self._last == marker.before):
            self._pay_space()
        self._owes_space = False
        space_before = _are_apart(marker.before, self._last, _OPENING)
        space_after = _are_apart(
            marker.after, self._text[self._starts[gap] : self._starts[gap] + 1], _CLOSING
        )
        has_space = self._at < self._starts[gap]  # in the gap, and not yet written
        if space_before and has_space and not space_after:
            self._go_to(self._starts[gap])
        elif space_before:
            self._write(" ")
        if marker.kind == "placeholder":
            self._write(marker.raw, is_placeholder=True)
        else:
            self._written.append(marker.raw)
            self._end_run()
            self._last = ">"
        self._owes_space = space_after and not has_space

    def finished(self) -> str:
        """Return all that was written, and the rest of the translation."""
        self._go_to(len(self._text))
        return "".join(self._written)

    def _go_to(self, position: int) -> None:
        if position > self._at:
            if not self._text[self._at].isspace():
                self._pay_space()
            self._owes_space = False
            self._write(self._text[self._at : position])
            self._at = position

    def _pay_space(self) -> None:
        if self._owes_space:
            self._write(" ")
        self._owes_space = False

    def _write(self, text: str, *, is_placeholder: bool = False) -> None:
        """Write text or a placeholder, behind a space where one of them would be read as something else."""
        own = set(find(text)) if is_placeholder else set()
        at = len(self._run)
        expected = self._placeholders | {(at + start, at + end) for start, end in own}
        behind = text if is_placeholder else text[:_NEAR]
        if self._run and expected and not expected <= set(find(self._run + behind)):
            self._written.append(" ")
            self._end_run()
        self._written.append(self._escape(text))
        self._last = text[-1:]
        if is_placeholder:  # what is before it is not changed by what follows
            self._run, self._placeholders = text, own
            return
        last_space = max((at for at, char in enumerate(text) if char.isspace()), default=-1)
        if last_space >= 0:
            self._end_run()
        self._run += text[last_space + 1 :]

    def _end_run(self) -> None:
        self._run = ""
        self._placeholders = set()


def _are_apart(source: str, target: str, exempt: str) -> bool:
    """Return whether a space is written between a point and a character of the translation.

    Args:
        source: the character beside the point in the source; "": none.
        target: the one beside it in the translation; "": none.
        exempt: characters of the translation that need no space.
    """
    if not target or target.isspace():
        return False
    if source.isspace():
        return target not in exempt
    if not _is_of_word(target):
        return False
    if _is_of_word(source):
        return _is_joined(source) and not _is_joined(target)
    return not is_unspaced(target)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_" or (char != "" and is_mark(char))


def _is_joined(char: str) -> bool:
    """Return whether words of the script follow placeholders without a space."""
    return is_unspaced(char) or "\uac00" <= char <= "\ud7af"
