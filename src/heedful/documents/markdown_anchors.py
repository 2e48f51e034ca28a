"""Links to headings of a page: a heading is named by its words, so its name changes with its translation.

GitHub, GitLab, Docusaurus, Hugo and Jekyll have one rule for names, MkDocs has another. No mark gives a
heading a name in all: GitHub shows `{#name}` as text, and Hugo leaves out `<a id="name">`. So links follow.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from urllib.parse import unquote

# In a template: around the text of a heading, and where the name of a heading is. No text has NUL.
_HEADING = re.compile(r"\0<(.*?)\0>", re.DOTALL)
_MARK = re.compile(r"\0(?:[<>]|#(\d+);)")
_LINK = re.compile(
    r"""(?P<before> (?: \( | \]: \s | href= ) [\s<"']*+ \# ) (?P<name> [^\s()<>"']++ )""", re.VERBOSE
)
_OWN_NAME = re.compile(r"""\{\#([\w.:-]+)\} | \s (?: id | name ) = ["']? ([\w.:-]+)""", re.VERBOSE)


class Anchors:
    """The names of the headings of a page, before and after the translation."""

    def __init__(
        self, page: str, headings: Iterable[str], text_of: Callable[[str], str], *, is_of_mkdocs: bool
    ) -> None:
        """Take the text of the page, its headings as written, and a function that returns their words.

        Args:
            page: the text of the page.
            headings: its headings, as written.
            text_of: returns the words of a heading.
            is_of_mkdocs: whether names are those of MkDocs, not those of GitHub and others.
        """
        self._text_of = text_of
        self._name, self._sign = (_name_in_mkdocs, "_") if is_of_mkdocs else (_name, "-")
        own = {name for names in _OWN_NAME.findall(page) for name in names}
        self._number_of = {
            name: number for number, name in enumerate(self._names(headings)) if name not in own
        }

    def _names(self, headings: Iterable[str]) -> list[str]:
        """Return the names of headings; those with equal words have a number."""
        num_of: Counter[str] = Counter()
        names: list[str] = []
        for heading in headings:
            words = name = self._name(self._text_of(heading))
            while num_of[name] or not name:
                num_of[words] = max(1, num_of[words])
                name = f"{words}{self._sign}{num_of[words]}"
                num_of[words] += 1
            num_of[name] += 1
            names.append(name)
        return names

    def heading(self, written: str) -> str:
        """Return what a template has for a heading."""
        return f"\0<{written}\0>"

    def follow(self, markup: str) -> str:
        """Return the markup of a link as a template has it: with the name that a heading will have."""

        def followed(link: re.Match[str]) -> str:
            number = self._number_of.get(unquote(link["name"]).lower())
            return link.group() if number is None else f"{link['before']}\0#{number};"

        return _LINK.sub(followed, markup)

    def finish(self, page: str) -> str:
        """Return a translated page with the names of its headings in its links."""
        names = self._names(_HEADING.findall(page)) if "\0#" in page else []
        return _MARK.sub(lambda mark: names[int(mark[1])] if mark[1] else "", page)


def _name(heading: str) -> str:
    """Return the name of a heading.

    >>> _name("What's new: Über `heedful`")
    'whats-new-über-heedful'
    """
    return "".join(filter(_is_of_name, heading.strip().lower())).replace(" ", "-")


def _name_in_mkdocs(heading: str) -> str:
    """Return the name of a heading as Python-Markdown makes it.

    >>> _name_in_mkdocs("What's new: Über  `heedful`")
    'whats-new-uber-heedful'
    """
    letters = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", letters).strip().lower())


def _is_of_name(char: str) -> bool:
    category = unicodedata.category(char)
    return char in "- " or category[0] in "LM" or category in ("Nd", "Pc")
