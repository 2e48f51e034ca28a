"""Keys of menus in strings of programs: the letter behind the mark in _File or Save &As."""

import re
from collections.abc import Sequence

from heedful.spans.placeholders import find

# The mark of the letter that a program takes as a key: _File, Save &As, E_xit; not file_name, R&D, A & B.
_ACCELERATOR = re.compile(r"(?<![^\W_])(?:(?<![&_])[&_](?=[^\W\d_])|[A-Z][a-z]*(?P<inner>[&_])(?=[a-z]))")


def without_accelerator(message: str) -> tuple[str, str]:
    """Return the mark and the letter of the accelerator of a message, or "", and the message without it."""
    match [match.end() - 1 for match in _ACCELERATOR.finditer(message)]:
        case [at] if message.count(message[at]) == 1 and not _is_in(at, find(message)):
            return message[at : at + 2], message[:at] + message[at + 1 :]
    return "", message


def _is_in(at: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in ranges)


def with_accelerator(translation: str, accelerator: str) -> str:
    """Return a translation with an accelerator: at the same letter, best of all at the start of a word.

    Scripts without cases have it after the text, as in Japanese programs: (_F).

    Args:
        translation: without an accelerator.
        accelerator: its mark and letter; "": there is none.
    """
    if not accelerator:
        return translation
    mark, letter = accelerator[0], accelerator[1]
    placeholders = find(translation)
    letters = (at for at, char in enumerate(translation) if char.isalpha())
    free = [at for at in letters if not _is_in(at, placeholders)]
    if mark in translation or not free:
        return translation
    if not any(translation[at].islower() or translation[at].isupper() for at in free):
        end = len(translation.rstrip(" .:\u2026\uff1a"))
        return f"{translation[:end]}({mark}{letter.upper()}){translation[end:]}"

    def rank(at: int) -> tuple[bool, bool, int]:
        is_inside = at > 0 and translation[at - 1].isalnum()
        return translation[at].casefold() != letter.casefold(), is_inside, at

    at = min(free, key=rank)
    return translation[:at] + mark + translation[at:]
