"""A tokenizer from a list of words, one token each, as a SentencePiece model.

The model needs no training; it is written field by field in its file format (sentencepiece_model.proto).
"""

from collections.abc import Sequence

from heedful.errors import TokenizerError
from heedful.parsing import shown
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer

# How vocabularies write the four special tokens, between <> or [], in upper or lower case.
_TOKEN_NAMES = {
    "pad": ("pad", "blank"),
    "unk": ("unk", "unknown"),
    "bos": ("s", "bos", "sos", "start"),
    "eos": ("/s", "eos", "end"),
}
_SPACE = "▁"  # SentencePiece's sign for the space before a word

# Numbers of the format: fields of ModelProto, of SentencePiece, of TrainerSpec; types of tokens; kind of
# model.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_SURFACE = 3, 4, 44
_SPECIAL_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_SPECIAL_TOKENS = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_NORMALIZER_NAME = 1
_WORD_MODEL = 3
_VARINT, _DELIMITED, _FIXED32 = 0, 2, 5


def tokenizer_from_words(words: Sequence[str], *, name: str = "vocabulary") -> SentencePieceTokenizer:
    """Return a tokenizer that splits at spaces and looks each word up.

    Args:
        words: by id; they must include pad, begin and end tokens in brackets, such as `<pad> <s> </s>` or
            `[PAD] [SOS] [EOS]`. If there is none for unknown words (`<unk>`), one is appended.
        name: for error messages.

    Raises:
        TokenizerError: a special token is missing, or a word is empty, contains a space or is repeated.
    """
    words = list(words)
    if _find(words, "unk") is None:
        words.append("<unk>")
    special: dict[str, int] = {}
    for kind, (token_name, *_) in _TOKEN_NAMES.items():
        token_id = _find(words, kind)
        if token_id is None:
            raise TokenizerError(f"{name}: there is no token such as '<{token_name}>'; without it, use ids")
        special[kind] = token_id
    seen: set[str] = set()
    for i, word in enumerate(words):
        if not word or word.split() != [word] or word in seen:
            problem = "is repeated" if word in seen else "is empty or contains a space"
            raise TokenizerError(f"{name}: {shown(word)}, of id {i}, {problem}; give each word once")
        seen.add(word)
    model = b"".join(_piece(i, word, special) for i, word in enumerate(words))
    trainer = _number(_MODEL_TYPE, _WORD_MODEL) + _number(_VOCAB_SIZE, len(words))
    for kind, i in special.items():
        trainer += _number(_SPECIAL_IDS[kind], i) + _bytes(_SPECIAL_TOKENS[kind], words[i].encode())
    trainer += _bytes(_UNK_SURFACE, " ⁇".encode())  # a word includes the space before it, so ⁇ must too
    model += _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, _bytes(_NORMALIZER_NAME, b"identity"))
    return SentencePieceTokenizer(model, name=name)


def _find(words: Sequence[str], kind: str) -> int | None:
    """Return the id of a special token, or None."""
    for token_name in _TOKEN_NAMES[kind]:
        for i, word in enumerate(words):
            if word.lower() in (f"<{token_name}>", f"[{token_name}]"):
                return i
    return None


def _piece(i: int, word: str, special: dict[str, int]) -> bytes:
    if i in special.values():
        text, kind = word, _UNKNOWN if i == special["unk"] else _CONTROL
    else:
        text, kind = _SPACE + word, _NORMAL
    score = _tag(_PIECE_SCORE, _FIXED32) + bytes(4)
    return _bytes(_PIECE, _bytes(_PIECE_TEXT, text.encode()) + score + _number(_PIECE_TYPE, kind))


def _bytes(field: int, value: bytes) -> bytes:
    return _tag(field, _DELIMITED) + _varint(len(value)) + value


def _number(field: int, value: int) -> bytes:
    return _tag(field, _VARINT) + _varint(value)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
