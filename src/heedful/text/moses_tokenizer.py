"""Moses' rules, then byte-pair encoding by the codes of subword-nmt: FSMT and packages of Argos Translate.

Both are of the systems of 2016 to 2020: words and punctuation are split by rules for each language, and rare
words by merges of characters (Sennrich et al., 2016). BlenderbotSmall has the rules of ParlAI in their place.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Self

from pydantic import StrictBool, StrictStr
from typing_extensions import override

from heedful.errors import TokenizerError, needing
from heedful.settings.parsing import shown
from heedful.text.added_tokens import AddedToken, AddedTokens, Part, with_flags, write_added
from heedful.text.tokenizer import (
    ListedTokenizer,
    SpecialIds,
    clean_up_tokenization,
    reading,
    refusing_surrogates,
)

MOSES = ".moses.json"
RULES = ("argos", "fsmt", "parlai")
_END, _CONTINUED = "</w>", "@@"
_MOST_WORDS = 2**16  # that are remembered
_LANGUAGE = re.compile("[a-z]{2,3}")
# Moses' replace-unicode-punctuation.perl: characters that become others, and those that take spaces along.
_PUNCTUATION = str.maketrans(
    {"，": ",", "、": ",", "”": '"', "“": '"', "∶": ":", "：": ":", "？": "?", "《": '"', "》": '"',
     "）": ")", "！": "!", "（": "(", "；": ";", "」": '"', "「": '"', "～": "~", "’": "'", "…": "...",
     "━": "-", "〈": "<", "〉": ">", "【": "[", "】": "]", "％": "%",
     **{chr(0xFF10 + i): str(i) for i in range(10)}}
)  # fmt: skip
_FULL_STOP = re.compile(r"[。．]\s*")
_BEFORE, _AROUND = re.compile("([.,!?()])"), re.compile("(')")  # where ParlAI puts spaces


@dataclass(frozen=True)
class _Saved:
    ids: SpecialIds
    kinds: tuple[StrictStr, StrictStr]
    tokens: list[StrictStr]
    merges: list[StrictStr]
    clean_up_spaces: StrictBool = False
    added: list[AddedToken] = field(default_factory=list)


class MosesTokenizer(ListedTokenizer):
    """Splits a text by Moses' rules and byte-pair codes; equal to transformers' FSMT or to Argos Translate.

    Or by ParlAI's rules, equal to transformers' BlenderbotSmall. A special token inside a text becomes that
    token, but not with the rules of Argos. Decoding omits special tokens, unk included.

    Args:
        merges: the byte-pair codes, the first ones first; a word's last symbol ends with `</w>`.
        tokens: the token of each id; FSMT's last one of a word ends with `</w>`, Argos's others with `@@`.
        ids: the ids of the four special tokens.
        language: the rules' code of the language, such as "en"; Moses takes English for unknown ones.
        rules: "fsmt", "argos" or "parlai".
        added: tokens of the list that a text is split at, as in transformers.
        clean_up_spaces: transformers' clean_up_tokenization_spaces: no space before punctuation in decoding.
        name: the name in error messages.

    Raises:
        MissingExtraError: the sacremoses library is not installed.
        TokenizerError: a repeated token, or a value that is not usable.
    """

    def __init__(
        self,
        merges: Sequence[tuple[str, str]],
        tokens: Sequence[str],
        ids: SpecialIds,
        *,
        language: str,
        rules: str,
        added: Sequence[AddedToken] = (),
        clean_up_spaces: bool = False,
        name: str = "tokenizer",
    ) -> None:
        if _LANGUAGE.fullmatch(language) is None or rules not in RULES:
            raise TokenizerError(
                f"{name}{MOSES}: language {shown(language)} and rules {shown(rules)} are not supported"
            )
        super().__init__("bpe", tokens, ids, name=f"{name}{MOSES}")
        self._merges = list(merges)
        self._ranks = {pair: rank for rank, pair in enumerate(self._merges)}
        for token in added:
            if self._ids.get(token.content) != token.id:
                raise TokenizerError(f"{name}{MOSES}: the added token {shown(token.content)} has another id")
        self._added = tuple(added)
        self._special = {self._tokens[i]: i for i in self._saved_ids.values()}
        self._special |= {token.content: token.id for token in added if token.special}
        self._split = AddedTokens(() if rules == "argos" else with_flags(self._special, added).values())
        self._language, self._rules = language, rules
        self._clean_up_spaces = clean_up_spaces
        if rules != "parlai":
            with needing(f"{name}{MOSES} needs sacremoses", extra="tokenizers"):
                import sacremoses as moses
            self._normalizer = moses.MosesPunctNormalizer(lang=language)
            self._tokenizer = moses.MosesTokenizer(lang=language)
            self._detokenizer = moses.MosesDetokenizer(lang=language)
        self._segment = lru_cache(maxsize=_MOST_WORDS)(self._find_segments)

    @classmethod
    @override
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        with reading(files[MOSES], _Saved, f"{name}{MOSES}") as saved:
            language, rules = saved.kinds
            return cls(
                read_merges(saved.merges),
                saved.tokens,
                saved.ids,
                language=language,
                rules=rules,
                added=saved.added,
                clean_up_spaces=saved.clean_up_spaces,
                name=name,
            )

    @override
    def to_files(self) -> dict[str, bytes]:
        saved = {
            "ids": self._saved_ids,
            "kinds": [self._language, self._rules],
            "clean_up_spaces": self._clean_up_spaces,
            "tokens": self._tokens,
            "merges": [" ".join(pair) for pair in self._merges],
            **write_added(self._added),
        }
        return {MOSES: json.dumps(saved, ensure_ascii=False).encode()}

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        batch: list[list[int]] = []
        for text in texts:
            ids: list[int] = []
            for token, start, end in self._parts(text):
                ids += self._ids_of(text[start:end]) if token is None else [token.id]
            batch.append(ids)
        return batch

    @override
    def spans(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for token, start, end in self._parts(text):
            if token is not None:
                spans.append((start, end))
                continue
            part = text[start:end]
            plain = words = self._words(part)
            if self._rules != "parlai":
                plain = [self._detokenizer.unescape_xml(word) for word in words]
            elif len(part.lower()) == len(part):
                part = part.lower()
            for word, (first, last) in zip(words, _spans(part, plain), strict=True):
                spans += _spread(self._segment(word), start + first, start + last)
        return spans

    @override
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        if unknown is not None:
            end = _END if self._rules == "fsmt" else ""
            unknown = [f"{text.strip()}{end}" for text in unknown]
        tokens = self._written(ids, unknown)
        if self._rules == "fsmt":
            words = "".join(token.replace(" ", "").replace(_END, " ") for token in tokens).split()
        else:
            words = " ".join(tokens).replace(f"{_CONTINUED} ", "").split(" ")
        text = " ".join(words).strip() if self._rules == "parlai" else self._detokenizer.detokenize(words)
        return clean_up_tokenization(text) if self._clean_up_spaces else text

    def _parts(self, text: str) -> list[Part]:
        """Split a text at special and added tokens; Argos has none."""
        with refusing_surrogates(text):
            text.encode()
        return self._split.split(text)

    def _ids_of(self, part: str) -> list[int]:
        tokens = chain.from_iterable(map(self._segment, self._words(part)))
        return [self._ids.get(token, self.unk_id) for token in tokens]

    def _words(self, text: str) -> list[str]:
        """Split a text by Moses' rules, where the words are escaped, as `&apos;`, or by ParlAI's."""
        if self._rules == "parlai":
            found: list[str] = []
            for part in re.findall(r"\S+\n?", text):  # a line's end is a word of its own
                spaced = _AROUND.sub(r" \1 ", _BEFORE.sub(r" \1", part))
                joined = re.sub(r"\s{2,}", " ", spaced).replace("\n", " __newln__")
                found += filter(None, joined.lower().split(" "))
            return found
        if self._rules == "argos":
            line = " ".join(self._tokenizer.tokenize(self._normalizer.normalize(text)))
            return [*filter(None, line.strip("\r\n ").split(" "))]
        text = _FULL_STOP.sub(". ", text.translate(_PUNCTUATION))
        text = self._normalizer.normalize(text)
        text = "".join(char for char in text if not unicodedata.category(char).startswith("C"))
        words: list[str] = self._tokenizer.tokenize(text, aggressive_dash_splits=True, escape=True)
        return words

    def _find_segments(self, word: str) -> Sequence[str]:
        """Return the tokens of a word."""
        *symbols, last = merged([*word[:-1], word[-1] + _END], self._ranks)
        if self._rules == "fsmt":
            return (*symbols, last)
        return (*(f"{symbol}{_CONTINUED}" for symbol in symbols), last.removesuffix(_END))


def merged(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Merge neighbours as long as there is a merge, the one of the lowest rank first.

    >>> merged(["l", "o", "w</w>"], {("l", "o"): 0, ("lo", "w</w>"): 1})
    ['low</w>']
    """
    while len(symbols) > 1:
        pairs = [*pairwise(symbols)]
        best = min(pairs, key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        result: list[str] = []
        i = 0
        while i < len(symbols):
            is_pair = i < len(pairs) and pairs[i] == best
            result.append("".join(best) if is_pair else symbols[i])
            i += 1 + is_pair
        symbols = result
    return symbols


def read_merges(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of symbols that lines of codes start with; ValueError if one has fewer than two."""
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        match line.split():
            case first, second, *_:
                merges.append((first, second))
            case _:
                raise ValueError(f"code {number:,}, {shown(line)}, is not two symbols")
    return merges


def _spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the span of each word: where it stands, or what its neighbours leave."""
    spans: list[tuple[int, int]] = []
    num_missing = end = 0  # the words since the last that was found, and its end
    for word in (*words, ""):  # the end of the text is found last
        at = text.find(word, end) if word else len(text)
        if at < 0:
            num_missing += 1
            continue
        if num_missing:  # the first of them has all that is left between its neighbours
            spans += [(end, at), *[(at, at)] * (num_missing - 1)]
        spans.append((at, at + len(word)))
        num_missing, end = 0, at + len(word)
    return spans[:-1]


def _spread(tokens: Sequence[str], start: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of the tokens of one word, in proportion to their lengths."""
    lengths = [len(token.removesuffix(_END).removesuffix(_CONTINUED)) or 1 for token in tokens]
    totals = accumulate(lengths, initial=0)
    return [*pairwise(start + (end - start) * total // sum(lengths) for total in totals)]
