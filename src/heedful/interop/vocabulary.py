"""Files of settings and vocabularies: JSON, texts, and checks of keys; each problem names its file."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import TypeIs

from heedful.errors import InteropError, TokenizerError
from heedful.interop.conversion import Imported, Settings, Values, add_tokens
from heedful.settings.model import SHARED_EMBEDDINGS, SHARED_OUTPUT
from heedful.settings.parsing import decode_text, is_whole, parse_json, read_limited, shown
from heedful.text import SpecialIds, Tokenizer, TokenizerPair
from heedful.text.sentencepiece_tokenizer import load_sentencepiece
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

_T = TypeVar("_T")
MAX_NUMBER = 2**31 - 1  # of ids and sizes
MARIAN_TAG = re.compile(">>.+<<")
GUIDED_KIND = re.compile(r"transformer(-[a-z0-9]+)*-align\b")  # of OPUS-MT's models: with guided alignment


def read(file: Path, parse: Callable[[bytes], _T]) -> _T:
    """Return what a function makes of the bytes of a file.

    Raises:
        InteropError: the file is missing or too large, or the function raises a ValueError.
    """
    try:
        return parse(read_limited(file))
    except (OSError, ValueError) as error:
        raise InteropError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def as_list(value: Any) -> list[Any]:  # noqa: ANN401
    """Return a list as it is, one value in a list, and an empty one without a value."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def read_bytes(file: Path) -> bytes:
    """Return the contents of a file; InteropError if it is missing or too large."""
    return read(file, bytes)


def read_settings(file: Path) -> Values:
    """Return the object in a JSON file; InteropError if it is missing or damaged."""
    content = read(file, parse_json)
    if not isinstance(content, dict):
        raise InteropError(f"{file}: not an object of settings")
    return content


def read_token_lines(file: Path) -> list[str]:
    r"""Return the lines of a file, which end with \n or \r\n; InteropError if it is not UTF-8."""
    return read(file, token_lines)


def token_lines(content: bytes) -> list[str]:
    """Return the lines of a text as `read_token_lines`; ValueError if it is not UTF-8."""
    lines = decode_text(content).removesuffix("\n").split("\n")
    is_windows = all(line.endswith("\r") for line in lines[:-1])
    return [line.removesuffix("\r") for line in lines] if is_windows else lines


@dataclass(frozen=True)
class TypedSettings:
    """Typed values of a file's settings; a missing key or null gives None.

    Attributes:
        values: the settings by key.
        file: the name of the file in messages.
    """

    values: Settings
    file: object

    def whole_number(self, key: str, *, least: int = 0, most: int = MAX_NUMBER) -> int | None:
        """Return an id, a size or a count within limits; InteropError for anything else."""
        value = self.values.get(key)
        is_right = value is None or is_whole(value, least=least, most=most)
        self.require(is_right, key, f": must be a whole number from {least} to {most:,}")
        return value

    def number(self, key: str, *, least: float = -MAX_NUMBER, most: float = MAX_NUMBER) -> float | None:
        """Return a finite number within limits; InteropError for anything else."""
        value = self.values.get(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
        limits = f" from {least} to {most}" if least >= 0 else ""
        self.require(value is None or is_number, key, f": must be a number{limits}")
        return None if value is None else float(value)

    def text(self, key: str) -> str | None:
        """Return a text; InteropError for anything else."""
        value = self.values.get(key)
        self.require(isinstance(value, str | None), key, ": must be a text")
        return value

    def one_of(self, key: str, known: Mapping[Any, _T], default: str | None = None) -> _T:
        """Return what a text, a boolean or None stands for; InteropError for one that is not known."""
        value = self.values.get(key)
        value = default if value is None else value
        is_known = isinstance(value, str | bool | None) and value in known
        self.require(is_known, key, f" is unknown; there are {', '.join(map(repr, known))}")
        return known[value]

    def settings(self, key: str) -> Settings:
        """Return an object of settings, empty if there is none; InteropError for anything else."""
        value = self.values.get(key)
        self.require(isinstance(value, Mapping | None), key, ": must be an object of settings")
        return value or {}

    def check(
        self,
        fixed: Mapping[str, Collection[Any]],
        known: Collection[str] | None = None,
        *,
        ignored: Collection[str] | None = None,
    ) -> None:
        """Refuse what would change the outputs.

        Args:
            fixed: the values that are supported, of keys that may also be absent.
            known: other keys; None: all of them.
            ignored: unknown keys that the user ignores; None: none can be.

        Raises:
            InteropError: a key is unknown, or has a value that is not supported.
        """
        for key, value in self.values.items():
            if value is None:
                continue
            if key in fixed:
                is_plain = isinstance(value, int | float | str | list | dict)
                is_right = is_plain and value in fixed[key]
                self.require(is_right, key, " is not supported, and would change the outputs")
            elif known is not None and key not in {*known, *(ignored or ())}:
                remedy = f"; if it only describes text, give --ignore {shown(key)}"
                raise InteropError(
                    f"{self.file}: {shown(key)} is unknown, and may change the outputs"
                    + ("" if ignored is None else remedy)
                )

    def merged(self, parts: Mapping[str, Settings], *, apart: Collection[str] = ()) -> Values:
        """Return the settings of several objects in one; InteropError if one outside `apart` differs."""
        merged: Values = {}
        for part, values in parts.items():
            for key, value in values.items():
                other = merged.get(key, value)
                self.require(
                    key in apart or other == value,
                    part,
                    f": {key} is {shown(other)} elsewhere, {shown(value)} here; they must be equal",
                )
                merged[key] = value
        return merged

    def require(self, is_right: bool, key: str, problem: str) -> None:  # noqa: FBT001
        """Raise the exception of `error` unless a condition holds."""
        if not is_right:
            raise self.error(key, problem)

    def error(self, key: str, problem: str) -> InteropError:
        """Return an exception that names the file, the key and the value before a problem."""
        return InteropError(f"{self.file}: {key}={shown(self.values.get(key))}{problem}")


def read_tokenizers(src: Path, tgt: Path) -> TokenizerPair:
    """Return word-level tokenizers of two vocabularies; equal ones share a tokenizer.

    Raises:
        InteropError: a file cannot be read, or its words are no valid vocabulary.
    """
    return tokenizers_of_words({path: read_words(path) for path in (src, tgt)}, src, tgt)


def tokenizers_of_words(
    words: Mapping[Path, list[str]],
    src: Path,
    tgt: Path,
    *,
    ids: SpecialIds | None = None,
    tags: Sequence[str] = (),
) -> TokenizerPair:
    """Return word-level tokenizers of the words of two files; the options are as in `tokenizer_from_words`.

    Raises:
        InteropError: the words are no valid vocabulary.
    """
    try:
        first, second = (
            tokenizer_from_words(words[path], name=str(path), ids=ids, tags=tags) for path in (src, tgt)
        )
    except TokenizerError as error:
        raise InteropError(str(error)) from error
    return TokenizerPair(first, first if words[src] == words[tgt] else second)


def read_words(path: Path) -> list[str]:
    """Read tokens by id: one a line, or in a .json file a list of tokens, or an object of ids by token.

    Raises:
        InteropError: no such file, not UTF-8, or JSON of another form.
    """
    return read(path, _listed if path.suffix == ".json" else token_lines)


def _listed(content: bytes) -> list[str]:
    vocabulary = parse_json(content)
    if isinstance(vocabulary, dict):
        by_id = {i: word for word, i in vocabulary.items() if is_whole(i)}
        vocabulary = list(map(by_id.get, range(len(vocabulary))))
    if not is_texts(vocabulary):
        raise ValueError("neither a list of tokens nor an object with ids 0, 1, ... by token")
    return vocabulary


def is_texts(value: object) -> TypeIs[list[str]]:
    """Return whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def ids_of(tokens: Iterable[str]) -> dict[str, int]:
    """Return the id of each token, the last one of a token that is repeated."""
    return dict(zip(tokens, count()))


def first_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first of these files that exists."""
    return next(filter(Path.is_file, map(folder.joinpath, names)), None)


def pieces(model: bytes, name: str) -> list[str]:
    """Return the tokens of a SentencePiece model by id; TokenizerError if it is not one."""
    spm = load_sentencepiece(model, name=name)
    return list(map(spm.id_to_piece, range(spm.get_piece_size())))


def tag_of_language(tokenizer: Tokenizer, language: str) -> str:
    """Return the token of a language's tag; TokenizerError if there is none."""
    return tokenizer.tokens([tokenizer.tag_id(language)])[0]


def fit_vocabularies(imported: Imported, tokenizers: TokenizerPair) -> Imported:
    """Extend the embeddings of a model for an added `<unk>` token.

    A vocabulary without a token for unknown words gets one. Its source embedding is zero, and the target
    never generates it.

    Raises:
        InteropError: the sizes differ otherwise, or the output matrix is shared or has no bias.
    """
    config, weights = imported.config, dict(imported.weights)
    src_grows = _grows("source", tokenizers.src, config.src_vocab_size)
    tgt_grows = _grows("target", tokenizers.tgt, config.tgt_vocab_size)
    cannot_be_silent = config.tied in SHARED_OUTPUT or not config.output_bias
    apart = config.tied in SHARED_EMBEDDINGS and src_grows != tgt_grows
    if (tgt_grows and cannot_be_silent) or apart:
        raise InteropError(
            "the vocabulary has no token for unknown words such as '<unk>', and a model whose output has "
            "a shared matrix or no bias cannot get one; use ids"
        )
    add_tokens(weights, src=int(src_grows), tgt=int(tgt_grows))
    sizes = {"src_vocab_size": tokenizers.src.vocab_size, "tgt_vocab_size": tokenizers.tgt.vocab_size}
    return Imported(config.replace(**sizes), weights)


def unique_names(tokens: Sequence[str], fixed: Mapping[int, str]) -> list[str]:
    """Name each id: by its fixed name, else by its token; if that is taken, the id is added.

    >>> unique_names(["[UNK]", "a", "a", "a<2>"], {0: "<unk>"})
    ['<unk>', 'a', 'a<2><2>', 'a<2>']
    """
    reserved, taken = {*tokens, *fixed.values()}, set(fixed.values())
    names: list[str] = []
    for i, token in enumerate(tokens):
        name = fixed.get(i, token)
        if i not in fixed and name in taken:
            while name in reserved or name in taken:
                name += f"<{i}>"
        taken.add(name)
        names.append(name)
    return names


def _grows(text: str, tokenizer: Tokenizer, size: int) -> bool:
    grows = tokenizer.vocab_size == size + 1 and tokenizer.unk_id == size
    if tokenizer.vocab_size != size and not grows:
        raise InteropError(
            f"the {text} vocabulary has {tokenizer.vocab_size:,} tokens, but the embedding has {size:,} "
            "rows; give the vocabulary that the model was trained with"
        )
    return grows
