"""Parts of a text that no translation may change: placeholders, addresses."""

import re
from collections import Counter
from collections.abc import Callable

from heedful.serving.markup.marked_text import MarkedText, Marker

_PLACEHOLDER = re.compile(
    r"https?://[^\s<>\"]*[^\s<>\".,;:!?)\]}'»”’]"  # addresses of pages, without the full stop after them
    r"|\bwww\.[^\s<>\"]*[^\s<>\".,;:!?)\]}'»”’]"
    r"|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"  # and of people
    r"|%(?:\d{1,3}\$)?[-+#0]?\d{0,3}(?:\.\d{1,3})?l{0,2}[sdiufgxXc@](?![^\W\d_])"  # %1$s
    r"|%\(\w{1,40}\)[sdifgrx]"  # %(name)s
    r"|\{\{[^{}]{0,80}\}\}|\$?\{[\w.:!\[\]-]{0,60}\}"  # {{ name }}, {name}, ${name}
)


def placeholders(text: str) -> Counter[str]:
    """Return the placeholders of a text, and how often each is there."""
    return Counter(match.group() for match in _PLACEHOLDER.finditer(text))


def without_placeholders(sentence: MarkedText, escape: Callable[[str], str]) -> MarkedText:
    """Return a sentence whose placeholders are markers, no longer text."""
    texts: list[str] = []
    markers: list[Marker] = []
    left = list(sentence.markers)
    at = removed = 0

    def move_markers(up_to: int, position: int | None = None) -> None:
        while left and left[0].position <= up_to:
            each = left.pop(0)
            new = each.position - removed if position is None else position
            markers.append(Marker(new, each.raw, each.kind, each.element))

    for match in _PLACEHOLDER.finditer(sentence.text):
        move_markers(match.start())
        texts.append(sentence.text[at : match.start()])
        position = match.start() - removed
        markers.append(Marker(position, escape(match.group())))
        move_markers(match.end() - 1, position)  # a tag inside the placeholder follows it
        removed += match.end() - match.start()
        at = match.end()
    move_markers(len(sentence.text))
    texts.append(sentence.text[at:])
    return MarkedText("".join(texts), tuple(markers))
