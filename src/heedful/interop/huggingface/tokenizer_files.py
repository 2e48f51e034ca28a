"""The tokenizer files of a directory of transformers: a list of tokens, or a tokenizer.json."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from heedful.interop.huggingface.generation import read_special_id
from heedful.interop.huggingface.pretrained import TOKENIZER_FILE, PretrainedDirectory
from heedful.interop.typed_settings import MAX_NUMBER
from heedful.parsing import is_whole, shown
from heedful.text import HuggingFaceTokenizer, SpecialIds, Tokenizer, VocabularyTokenizer
from heedful.text.sentencepiece_tokenizer import load_sentencepiece

PIPELINE_FILE = "tokenizer.json"
_SPECIAL_PIECES_OF_MODELS = 3  # <unk>, <s>, </s>
_USUAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}


def tokenizer_of_pieces(
    directory: PretrainedDirectory,
    model: bytes,
    pieces: Sequence[str],
    *,
    special: Collection[str] = (),
    begins_with_pad: bool = False,
    leading_tags: bool = False,
) -> VocabularyTokenizer:
    """Make a tokenizer of a SentencePiece model and a list of tokens by id.

    Args:
        directory: tokenizer_config.json names the special tokens and those that were added.
        model: the SentencePiece model.
        pieces: by id.
        special: tokens that stand for no text, such as language tags.
        begins_with_pad: whether there is no begin token.
        leading_tags: as of `VocabularyTokenizer`.

    Raises:
        InteropError: a special or added token is not in the list.
        TokenizerError: a model or tokens that cannot be used.
    """
    known = {piece: i for i, piece in enumerate(pieces)}
    ids = _special_ids(directory, known, without_begin=begins_with_pad)
    added = _added_tokens(directory)
    for piece in added:
        if piece not in known:
            raise directory.error(
                f"the added token {shown(piece)} is not in the vocabulary; such models are not read here",
                file=TOKENIZER_FILE,
            )
    four = {pieces[i] for i in (ids.pad, ids.unk, ids.bos, ids.eos)}
    return VocabularyTokenizer(
        model,
        pieces,
        ids,
        special=[*dict.fromkeys([*special, *(piece for piece in added if piece not in four)])],
        leading_tags=leading_tags,
        clean_up_spaces=_clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def fairseq_pieces(model: bytes) -> list[str]:
    """The tokens of a SentencePiece model in fairseq's order: four of its own, then the model's but three.

    Raises:
        TokenizerError: no SentencePiece model.
    """
    spm = load_sentencepiece(model, name="sentencepiece.bpe.model")
    ordinary = range(_SPECIAL_PIECES_OF_MODELS, spm.get_piece_size())
    return ["<s>", "<pad>", "</s>", "<unk>", *(spm.id_to_piece(i) for i in ordinary)]


def tokenizer_of_pipeline(directory: PretrainedDirectory) -> HuggingFaceTokenizer:
    """Load a tokenizer.json.

    Raises:
        InteropError: there is none, or it lacks a special token.
        TokenizerError: it cannot be used.
        MissingExtraError: the tokenizers library is not installed.
    """
    added = directory.read_object(PIPELINE_FILE).get("added_tokens")
    ids = _special_ids(
        directory,
        {
            content: token["id"]
            for token, content in _with_contents(directory, added, file=PIPELINE_FILE)
            if is_whole(token.get("id"), most=MAX_NUMBER)
        },
    )
    return HuggingFaceTokenizer(
        directory.read_bytes(PIPELINE_FILE),
        ids,
        clean_up_spaces=_clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def check_special_ids(directory: PretrainedDirectory, tokenizer: Tokenizer) -> None:
    """Compare the ids of the model's padding and end tokens with those of the tokenizer.

    Raises:
        InteropError: they differ.
    """
    for key, ours in (("pad_token_id", tokenizer.pad_id), ("eos_token_id", tokenizer.eos_id)):
        theirs = read_special_id(directory, key)
        if theirs != ours:
            raise directory.error(
                f"{key}={theirs}, but the tokenizer files say {ours}; copy the whole directory of one model"
            )


def _special_ids(
    directory: PretrainedDirectory, known: Mapping[str, int], *, without_begin: bool = False
) -> SpecialIds:
    ids: dict[str, int] = {}
    for kind, usual in _USUAL_TOKENS.items():
        if kind == "bos" and without_begin:
            ids["bos"] = ids["pad"]
            continue
        name = directory.token(f"{kind}_token", usual)
        if name not in known:
            raise directory.error(f"{kind}_token is {shown(name)}, which has no id", file=TOKENIZER_FILE)
        ids[kind] = known[name]
    return SpecialIds(**ids)


def _added_tokens(directory: PretrainedDirectory) -> list[str]:
    by_id = directory.tokenizer.get("added_tokens_decoder")
    tokens = [*by_id.values()] if isinstance(by_id, dict) else by_id
    return [content for _, content in _with_contents(directory, tokens, file=TOKENIZER_FILE)]


def _with_contents(
    directory: PretrainedDirectory, tokens: object, *, file: str
) -> list[tuple[dict[str, Any], str]]:
    """The tokens that were added to a vocabulary, each with what it is written as; None: there are none."""
    found: list[tuple[dict[str, Any], str]] = []
    for token in [] if tokens is None else tokens if isinstance(tokens, list) else [tokens]:
        if not (isinstance(token, dict) and isinstance(token.get("content"), str)):
            raise directory.error(f"{shown(token)} is no added token with its content", file=file)
        found.append((token, token["content"]))
    return found


def _clean_up_spaces(directory: PretrainedDirectory) -> bool:
    return directory.tokenizer.get("clean_up_tokenization_spaces") is True
