"""Load the tokenizer files of a directory of transformers: a list of tokens, or a tokenizer.json."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from heedful.interop.huggingface.generation import read_special_id
from heedful.interop.huggingface.pretrained import TOKENIZER_FILE, PretrainedDirectory
from heedful.interop.typed_settings import MAX_NUMBER
from heedful.parsing import is_whole, shown
from heedful.text import HuggingFaceTokenizer, SpecialIds, Tokenizer, VocabularyTokenizer
from heedful.text.sentencepiece_tokenizer import load_sentencepiece

PIPELINE_FILE = "tokenizer.json"
_NUM_SPECIAL_TOKENS = 3  # <unk>, <s>, </s>
_USUAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}


def vocabulary_tokenizer(
    directory: PretrainedDirectory,
    model: bytes,
    tokens: Sequence[str],
    *,
    special: Collection[str] = (),
    starts_with_pad: bool = False,
    leading_tags: bool = False,
) -> VocabularyTokenizer:
    """Return a tokenizer of a SentencePiece model and a list of tokens.

    Args:
        directory: of the model; tokenizer_config.json names special and added tokens.
        model: the SentencePiece model.
        tokens: by id.
        special: special tokens, such as language tags.
        starts_with_pad: whether there is no begin token.
        leading_tags: as in `VocabularyTokenizer`.

    Raises:
        InteropError: a special or added token is not in the list.
        TokenizerError: the model or the tokens are not usable.
    """
    known = {token: i for i, token in enumerate(tokens)}
    ids = _special_ids(directory, known, without_bos=starts_with_pad)
    added = _added_tokens(directory)
    for token in added:
        if token not in known:
            raise directory.error(
                f"the added token {shown(token)} is not in the vocabulary; such models are not supported",
                file=TOKENIZER_FILE,
            )
    four = {tokens[i] for i in (ids.pad, ids.unk, ids.bos, ids.eos)}
    return VocabularyTokenizer(
        model,
        tokens,
        ids,
        special=[*dict.fromkeys([*special, *(token for token in added if token not in four)])],
        leading_tags=leading_tags,
        clean_up_spaces=_clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def fairseq_tokens(model: bytes) -> list[str]:
    """Return the tokens of a SentencePiece model in fairseq's order: four special ones, then the others.

    Raises:
        TokenizerError: it is not a SentencePiece model.
    """
    spm = load_sentencepiece(model, name="sentencepiece.bpe.model")
    ordinary = range(_NUM_SPECIAL_TOKENS, spm.get_piece_size())
    return ["<s>", "<pad>", "</s>", "<unk>", *(spm.id_to_piece(i) for i in ordinary)]


def tokenizer_of_pipeline(directory: PretrainedDirectory) -> HuggingFaceTokenizer:
    """Load a tokenizer.json.

    Raises:
        InteropError: there is none, or it lacks a special token.
        TokenizerError: it is not usable.
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
    directory: PretrainedDirectory, known: Mapping[str, int], *, without_bos: bool = False
) -> SpecialIds:
    ids: dict[str, int] = {}
    for kind, usual in _USUAL_TOKENS.items():
        if kind == "bos" and without_bos:
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
    """Return the tokens added to a vocabulary, each with its content; None: there are none."""
    added: list[tuple[dict[str, Any], str]] = []
    for token in [] if tokens is None else tokens if isinstance(tokens, list) else [tokens]:
        if not (isinstance(token, dict) and isinstance(token.get("content"), str)):
            raise directory.error(f"{shown(token)} is not an added token with its content", file=file)
        added.append((token, token["content"]))
    return added


def _clean_up_spaces(directory: PretrainedDirectory) -> bool:
    return directory.tokenizer.get("clean_up_tokenization_spaces") is True
