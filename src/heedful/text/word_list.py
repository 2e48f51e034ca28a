"""A tokenizer from a list of words: one word a token, in the order of the list, as a SentencePiece model.

The model is written down field by field, in its file format (sentencepiece_model.proto): there is nothing to
train.
"""

from collections.abc import Sequence

from heedful.errors import TokenizerError
from heedful.parsing import shown
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer

# How vocabularies write the four special tokens, between <> or [], in upper or lower case.
_SPELLINGS = {
    "pad": ("pad", "blank"),
    "unk": ("unk", "unknown"),
    "bos": ("s", "bos", "sos", "start"),
    "eos": ("/s", "eos", "end"),
}
_SPACE = "▁"  # SentencePiece's sign for the space before a word

# Numbers of the format: fields of ModelProto, of a piece, of TrainerSpec; types of pieces; kind of model.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_MODEL_TYPE, _VOCAB_SIZE, _UNK_SURFACE = 3, 4, 44
_SPECIAL_IDS = {"unk": 40, "bos": 41, "eos": 42, "pad": 43}
_SPECIAL_PIECES = {"unk": 45, "bos": 46, "eos": 47, "pad": 48}
_NORMALIZER_NAME = 1
_WORD_MODEL = 3
_VARINT, _DELIMITED, _FIXED32 = 0, 2, 5


def tokenizer_from_words(words: Sequence[str], *, name: str = "vocabulary") -> SentencePieceTokenizer:
    """Make a tokenizer that splits at spaces and looks each word up.

    Args:
        words: by id; among them, in brackets, a pad, a begin and an end token, such as `<pad> <s> </s>` or
            `[PAD] [SOS] [EOS]`. Where there is none for unknown words (`<unk>`), one is added at the end.
        name: for error messages.

    Raises:
        TokenizerError: a special token is missing, or a word is empty, holds a space or stands there twice.
    """
    words = list(words)
    if _find(words, "unk") is None:
        words.append("<unk>")
    special: dict[str, int] = {}
    for kind, (spelling, *_) in _SPELLINGS.items():
        found = _find(words, kind)
        if found is None:
            raise TokenizerError(f"{name}: there is no token such as '<{spelling}>'; without it, use ids")
        special[kind] = found
    seen: set[str] = set()
    for i, word in enumerate(words):
        if not word or word.split() != [word] or word in seen:
            problem = "stands there twice" if word in seen else "is empty or holds a space"
            raise TokenizerError(f"{name}: {shown(word)}, of id {i}, {problem}; give each word once")
        seen.add(word)
    model = b"".join(_piece(i, word, special) for i, word in enumerate(words))
    trainer = _number(_MODEL_TYPE, _WORD_MODEL) + _number(_VOCAB_SIZE, len(words))
    for kind, i in special.items():
        trainer += _number(_SPECIAL_IDS[kind], i) + _bytes(_SPECIAL_PIECES[kind], words[i].encode())
    trainer += _bytes(_UNK_SURFACE, " ⁇".encode())  # a word brings its space along, so the sign must too
    model += _bytes(_TRAINER, trainer) + _bytes(_NORMALIZER, _bytes(_NORMALIZER_NAME, b"identity"))
    return SentencePieceTokenizer(model, name=name)


def _find(words: Sequence[str], kind: str) -> int | None:
    """The id of a special token, where there is one."""
    for spelling in _SPELLINGS[kind]:
        for i, word in enumerate(words):
            if word.lower() in (f"<{spelling}>", f"[{spelling}]"):
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
