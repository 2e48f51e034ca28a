"""Read the tokens that were added to a vocabulary, from any of the files where transformers has them."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace

from heedful.interop.conversion import Values
from heedful.interop.huggingface.pretrained import (
    PIPELINE_FILE,
    TOKENIZER_FILE,
    PretrainedDirectory,
    name_of_token,
)
from heedful.interop.vocabulary import as_list, ids_of, read_settings
from heedful.settings.parsing import is_whole, shown
from heedful.text.added_tokens import AddedToken

ADDED_TOKENS_FILE = "added_tokens.json"
_NEXT = 2**31 - 1  # stands for the first id after the vocabulary
_MOST_UNUSED = 1000  # ids between added tokens that no token has


def with_added_tokens(
    directory: PretrainedDirectory, tokens: Sequence[str], *, in_library: bool = False
) -> tuple[list[str], list[AddedToken]]:
    """Return a list of tokens with the tokens that were added to it, and the added tokens with their flags.

    Ids between them without a token get a token `<unused-N>`.

    Args:
        directory: the model's files.
        tokens: the tokens by id.
        in_library: whether transformers has the tokenizer in the tokenizers library, not in Python
            (`added_tokens`).

    Raises:
        InteropError: an added token has the id of another one.
    """
    by_id, known = dict(enumerate(tokens)), ids_of(tokens)
    added = []
    for token in read_added_tokens(directory, in_library=in_library):
        token_id = token.id
        if token_id == _NEXT:
            token_id = known.get(token.content, len(by_id))
        place = known.setdefault(token.content, token_id), by_id.setdefault(token_id, token.content)
        if place != (token_id, token.content):
            directory.refuse(
                f"the added token {shown(token.content)} has id {token_id:,}, which is not its "
                "place in the vocabulary; copy the whole directory of one model",
                file=TOKENIZER_FILE,
            )
        added.append(replace(token, id=token_id))
    size = max(by_id, default=-1) + 1
    if size > len(tokens) + len(added) + _MOST_UNUSED:
        directory.refuse(f"an added token has id {size - 1:,}", file=TOKENIZER_FILE)
    return [by_id.get(i, f"<unused-{i}>") for i in range(size)], added


def read_added_tokens(directory: PretrainedDirectory, *, in_library: bool = False) -> list[AddedToken]:
    """Return the tokens added to a vocabulary, as transformers reads them.

    They are in "added_tokens_decoder" of the tokenizer's settings, or for older versions in added_tokens.json
    and tokenizer.json. The settings name further special tokens; their id here is `_NEXT`.

    Args:
        directory: the model's files.
        in_library: whether the tokenizers library splits texts at them: at normalised ones in the
            normalised text, at single words if no letter is next to them. Otherwise single words are
            between spaces.

    Raises:
        InteropError: they are not written as transformers writes them.
    """
    further: list[str] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        further += filter(None, map(name_of_token, as_list(directory.tokenizer.get(key))))
    named = {directory.token(key, "") for key in directory.tokenizer if key.endswith("_token")}
    named.update(further)
    by_id = directory.tokenizer.get("added_tokens_decoder")
    if by_id is None:
        saved = _older_added_tokens(directory, named)
    else:
        by_id = by_id if isinstance(by_id, dict) else {"": by_id}
        saved = [_with_id(directory, token, i) for i, token in by_id.items()]
    single_word = "words" if in_library else "spaces"
    tokens: dict[str, AddedToken] = {}
    for values in saved:
        # Booleans may be texts in damaged files.
        is_single, is_special, is_normalized = (
            values.get(flag) is True for flag in ("single_word", "special", "normalized")
        )
        is_named = name_of_token(values) in named
        flags = {
            "single_word": single_word if is_single else None,
            "special": is_named or (in_library and is_special),
            "normalized": in_library and is_normalized,
        }
        try:
            token = AddedToken.read({**values, **flags})
        except ValueError as error:
            directory.refuse(str(error), file=TOKENIZER_FILE)
        tokens[token.content] = token
    new = [AddedToken(content=name, id=_NEXT, special=True) for name in further if name not in tokens]
    return [*tokens.values(), *new]


def _with_id(directory: PretrainedDirectory, token: object, i: str) -> Values:
    if not isinstance(token, dict):
        directory.refuse(f"{shown(token)} is not an added token", file=TOKENIZER_FILE)
    return {**token, "id": int(i) if i.isdecimal() and len(i) < 10 else None}


def _older_added_tokens(directory: PretrainedDirectory, special: Collection[str]) -> list[Values]:
    """Return the tokens of added_tokens.json, ids by token, and of tokenizer.json, which has priority."""
    saved: dict[str, Values] = {}
    if (directory.path / ADDED_TOKENS_FILE).is_file():
        for token, i in read_settings(directory.path / ADDED_TOKENS_FILE).items():
            is_special = token in special
            saved[token] = {"content": token, "id": i, "normalized": not is_special, "special": is_special}
    if (directory.path / PIPELINE_FILE).is_file():
        saved |= _by_content(directory, read_settings(directory.path / PIPELINE_FILE).get("added_tokens"))
    return [*saved.values()]


def pipeline_with_added_tokens(directory: PretrainedDirectory) -> tuple[bytes, dict[str, int]]:
    """Return tokenizer.json with the added tokens that it lacks, and the ids of all added tokens.

    Raises as `read_added_tokens`, and if there is no such file.
    """
    pipeline = read_settings(directory.path / PIPELINE_FILE)
    _refuse_cut_merges(directory, pipeline.get("model"))
    saved = _by_content(directory, pipeline.get("added_tokens"))
    changed = {}
    for token in read_added_tokens(directory, in_library=True):
        flags = {**asdict(token), "single_word": token.single_word is not None}
        if token.id != _NEXT and {**saved.get(token.content, {}), **flags} != saved.get(token.content):
            changed[token.content] = flags
    saved |= changed
    known = {content: token["id"] for content, token in saved.items() if is_whole(token.get("id"))}
    if not changed:
        return directory.read_bytes(PIPELINE_FILE), known
    added = sorted(saved.values(), key=lambda token: known.get(token["content"], -1))
    return json.dumps({**pipeline, "added_tokens": added}, ensure_ascii=False).encode(), known


def _refuse_cut_merges(directory: PretrainedDirectory, model: object) -> None:
    """Refuse merges of BPE without the prefix that their second part must have.

    The tokenizers library cuts them by its length, and aborts the process if that is inside of a character.
    """
    model = model if isinstance(model, dict) else {}
    prefix, merges = model.get("continuing_subword_prefix"), as_list(model.get("merges"))
    if not prefix or not isinstance(prefix, str):
        return
    for merge in merges:
        *_, second = merge.split(" ") if isinstance(merge, str) else ["", *as_list(merge)]
        if not str(second).startswith(prefix):
            directory.refuse(
                f"continuing_subword_prefix={shown(prefix)}, but the merge {shown(merge)} lacks it",
                file=PIPELINE_FILE,
            )


def _by_content(directory: PretrainedDirectory, tokens: object) -> dict[str, Values]:
    """Return the "added_tokens" of tokenizer.json by their content."""
    added: dict[str, Values] = {}
    for token in as_list(tokens):
        if not isinstance(token, dict) or not name_of_token(token):
            directory.refuse(f"{shown(token)} is not an added token with its content", file=PIPELINE_FILE)
        added[token["content"]] = token
    return added
