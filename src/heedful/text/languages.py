"""Tags of languages: their usual form, their names, and pairs of them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_PLAIN = re.compile(r"[a-z]{2,3}")
_TAG = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8}){0,3}")
_DECORATION = re.compile(r"^(>>|__|<2)|(<<|__|>)$")  # of tags in vocabularies: >>fra<<, __fr__, <2fr>
# Scripts that are written from right to left, and languages that are usually in one.
_RIGHT_TO_LEFT = frozenset({
    "Adlm", "Arab", "Aran", "Hebr", "Nkoo", "Syrc", "Thaa",
    "ar", "arc", "arz", "azb", "bal", "ckb", "dv", "fa", "glk", "he", "iw", "ji", "ks", "lrc", "mzn", "nqo",
    "pnb", "prs", "ps", "sd", "skr", "syr", "ug", "ur", "yi",
})  # fmt: skip

_LENGTH_OF_SCRIPT = 4


@lru_cache(maxsize=4096)
def language_code(name: str) -> str | None:
    """Return a language's tag in its usual form; None for what is no language.

    >>> language_code("DE"), language_code("zho_Hans"), language_code("__fr__"), language_code("zz")
    ('de', 'zh-Hans', 'fr', None)
    """
    import langcodes

    bare = _DECORATION.sub("", name).removesuffix("_XX")  # mBART's tags: fr_XX
    if not _TAG.fullmatch(bare):
        return None
    try:
        code = langcodes.standardize_tag(bare, macro=False)
        return code if langcodes.tag_is_valid(code) and _PLAIN.fullmatch(code.split("-")[0]) else None
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def language_name(code: str, *, native: bool = False) -> str:
    """Return the English name of a language, or its own: "German" or "Deutsch" for "de"."""
    import langcodes

    language = langcodes.Language.get(code)
    return language.autonym() if native else language.display_name()


def is_right_to_left(code: str) -> bool:
    """Return whether a language is usually written from right to left, as Arabic and Hebrew are.

    >>> is_right_to_left("ar-EG"), is_right_to_left("pa_Arab"), is_right_to_left("sd-Deva")
    (True, True, False)
    """
    language, *others = re.split("[-_]", code)
    scripts = (tag.title() for tag in others if len(tag) == _LENGTH_OF_SCRIPT and tag.isalpha())
    return next(scripts, language.lower()) in _RIGHT_TO_LEFT


def closest_code(code: str, known: Iterable[str]) -> str | None:
    """Return which of the known tags a client's tag means: itself, or one of the same language.

    >>> closest_code("en-US", ["de", "en"]), closest_code("pt", ["pt-BR"]), closest_code("fr", ["de"])
    ('en', 'pt-BR', None)
    """
    codes = sorted(known)
    if code in codes:
        return code
    base = code.split("-")[0]
    if base in codes:
        return base
    return next((other for other in codes if other.split("-")[0] == base), None)


def tag_of_language(language: str, tags: Iterable[str]) -> str | None:
    """Return the tag for a language: the same tag if it is among `tags`, otherwise one of the same language.

    >>> tag_of_language("de", ["en", "de-AT"]), tag_of_language("", ["en", "de-AT"])
    ('de-AT', 'en')

    Args:
        language: a tag; "" for the first of `tags`.
        tags: tags in order.
    """
    if not language:
        return next(iter(tags), None)
    subtags = _subtags(language)
    same = [tag for tag in tags if _subtags(tag)[0] == subtags[0]]
    return min(same, key=lambda tag: (_subtags(tag) != subtags, len(_subtags(tag))), default=None)


def _subtags(tag: str) -> list[str]:
    return re.split("[-_]", tag.lower())


@dataclass(frozen=True, order=True)
class Pair:
    """A source and a target language, as BCP 47 tags.

    >>> str(Pair("en", "pt-BR"))
    'en-pt-BR'
    """

    src: str
    tgt: str

    def __str__(self) -> str:
        return f"{self.src}-{self.tgt}"
