"""A sentence pair for the filters: the text, and properties that several of them use, computed once."""

import re
import unicodedata
from functools import cached_property


class _Shapes(dict[int, str]):
    """Maps letters and marks to themselves, digits to 0, format characters to nothing, others to a space."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        shape = " "
        if category[0] in "LM":
            shape = chr(code)
        elif category == "Nd":
            shape = "0"
        elif category == "Cf":
            shape = ""
        self[code] = shape
        return shape


_SHAPES = _Shapes()
# Scripts written without spaces: kana, Han, Thai, Lao, Tibetan, Myanmar, Khmer.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
                       "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")  # fmt: skip


class Sentence:
    """One sentence of a pair."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        """The words: runs of characters between spaces, punctuation included."""
        return self.text.split()

    @cached_property
    def num_visible(self) -> int:
        """The number of characters that are not spaces."""
        return sum(map(len, self.words))

    @cached_property
    def shape(self) -> str:
        """The text without case and punctuation, with each digit as 0: equal for near-duplicates."""
        return " ".join(self.text.casefold().translate(_SHAPES).split())

    @cached_property
    def num_letters(self) -> int:
        """The number of letters, with the marks that belong to them."""
        return len(self.shape) - self.shape.count(" ") - self.num_digits

    @cached_property
    def num_digits(self) -> int:
        """The number of decimal digits of any script."""
        return self.shape.count("0")

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether it has text of a script without spaces between words, such as Chinese."""
        return not self.text.isascii() and _UNSPACED.search(self.text) is not None


class Pair:
    """A source and a target sentence, and the index of the pair in its corpus, from 0."""

    def __init__(self, src: str, tgt: str, index: int = 0) -> None:
        self.src, self.tgt, self.index = Sentence(src), Sentence(tgt), index
        self.sentences = (self.src, self.tgt)
