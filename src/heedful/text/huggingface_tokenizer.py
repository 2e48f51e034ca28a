"""The tokenizer of NLLB, mBART and BART: a `tokenizer.json` for Hugging Face's tokenizers library."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pydantic import StrictBool
from typing_extensions import override

from heedful.errors import InputError, TokenizerError, needing
from heedful.text.tokenizer import NOT_UNICODE, SpecialIds, Tokenizer, clean_up_tokenization, reading

if TYPE_CHECKING:
    import tokenizers

PIPELINE, SPECIAL = ".json", ".special.json"


@dataclass(frozen=True)
class _Saved:
    ids: SpecialIds
    clean_up_spaces: StrictBool = False


class HuggingFaceTokenizer(Tokenizer):
    """A `tokenizer.json`, equal to transformers except for the special tokens around a text.

    A special token inside a text becomes that token. Decoding omits special tokens.

    Args:
        pipeline: the content of a `tokenizer.json`; its settings of truncation, padding and special tokens
            around a text are ignored.
        ids: the ids of the four special tokens.
        clean_up_spaces: transformers' clean_up_tokenization_spaces: no space before punctuation in decoding.
            BPE models ignore it, as in transformers 5.
        name: the name in error messages.

    Raises:
        MissingExtraError: the tokenizers library is not installed.
        TokenizerError: not a usable file, or an id is not in its vocabulary.
    """

    def __init__(
        self, pipeline: bytes, ids: SpecialIds, *, clean_up_spaces: bool = False, name: str = "tokenizer"
    ) -> None:
        self._name = f"{name}{PIPELINE}"
        self._tokenizer = _load(pipeline, name=self._name)
        added = self._tokenizer.get_added_tokens_decoder()
        size = max([self._tokenizer.get_vocab_size(), *(i + 1 for i in added)])
        kind = type(self._tokenizer.model).__name__.lower()
        super().__init__({"wordlevel": "word"}.get(kind, kind), size, ids, name=self._name)
        self._special = {token.content: i for i, token in added.items() if token.special}
        self._pipeline = pipeline
        self._clean_up_spaces = clean_up_spaces

    @classmethod
    @override
    def from_files(cls, files: Mapping[str, bytes], *, name: str = "tokenizer") -> Self:
        with reading(files[SPECIAL], _Saved, f"{name}{SPECIAL}") as saved:
            return cls(files[PIPELINE], saved.ids, clean_up_spaces=saved.clean_up_spaces, name=name)

    @override
    def to_files(self) -> dict[str, bytes]:
        saved = {"ids": self._saved_ids, "clean_up_spaces": self._clean_up_spaces}
        return {PIPELINE: self._pipeline, SPECIAL: json.dumps(saved).encode()}

    @override
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with _library_mistakes(f"{self._name}: cannot tokenise this text"):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        batch = [encoding.ids for encoding in encodings]
        highest = max((max(ids) for ids in batch if ids), default=0)
        if highest >= self.vocab_size:  # a count of tokens: the file may give one of them any id
            raise TokenizerError(
                f"{self._name}: gives a token the id {highest:,}, but has {self.vocab_size:,} tokens; "
                "restore it"
            )
        return batch

    @override
    def spans(self, text: str) -> list[tuple[int, int]]:
        with _library_mistakes(f"{self._name}: cannot tokenise this text"):
            return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    @override
    def decode(self, ids: Iterable[int], *, unknown: Sequence[str] | None = None) -> str:
        text: str
        with _library_mistakes(f"{self._name}: cannot decode these ids"):
            if unknown is None:
                text = self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)
            else:
                text = self._decode_with(ids, unknown)
        return clean_up_tokenization(text) if self._clean_up_spaces and self.kind != "bpe" else text

    def _decode_with(self, ids: Iterable[int], unknown: Sequence[str]) -> str:
        texts, special = iter(unknown), set(self._special.values()) - {self.unk_id}
        shown = [i for i in ids if i not in special]
        tokens = [next(texts) if i == self.unk_id else self._tokenizer.id_to_token(int(i)) for i in shown]
        known, decoder = [*filter(None, tokens)], self._tokenizer.decoder
        if decoder is None:
            return " ".join(token.strip(" ") for token in known)
        text: str = decoder.decode(known)
        return text.strip(" ")

    @override
    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self._tokenizer.id_to_token(int(i)) or f"<{int(i)}>" for i in ids]

    @override
    def _special_tokens(self) -> dict[str, int]:
        return self._special


def _load(pipeline: bytes, *, name: str) -> "tokenizers.Tokenizer":
    with needing(f"{name} needs tokenizers", extra="tokenizers"):
        from tokenizers import Tokenizer as Pipeline
    with _library_mistakes(f"{name}: not a usable tokenizer.json"):
        loaded = Pipeline.from_buffer(pipeline)
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


@contextmanager
def _library_mistakes(what: str) -> Iterator[None]:
    """Raise the library's errors as one line: it has no exception classes of its own, and may panic."""
    try:
        yield
    except (TypeError, UnicodeError) as error:
        raise InputError(NOT_UNICODE) from error
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"  # Rust's; the class cannot be imported
        if not (isinstance(error, Exception) or is_panic):
            raise
        raise TokenizerError(f"{what} ({' '.join(str(error).split())[:120]}); restore the file") from error
