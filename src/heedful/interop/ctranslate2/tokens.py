"""Token names for CTranslate2: it takes and returns tokens as text, where each text is one id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heedful.bundle import Bundle
from heedful.text import Tokenizer


@dataclass(frozen=True)
class TokenNames:
    """The name of each id, source and target; unique in each."""

    src: Sequence[str]
    tgt: Sequence[str]


def token_names(bundle: Bundle) -> TokenNames:
    """Name each id by its token.

    CTranslate2 has one name for the unknown and end tokens of source and target: the target's.
    """
    config, src, tgt = bundle.config.model, bundle.tokenizers.src, bundle.tokenizers.tgt
    tgt_names = unique_names(_tokens(tgt, config.tgt_vocab_size), {})
    shared = {src.unk_id: tgt_names[tgt.unk_id], src.eos_id: tgt_names[tgt.eos_id]}
    return TokenNames(unique_names(_tokens(src, config.src_vocab_size), shared), tgt_names)


def unique_names(tokens: Sequence[str], fixed: Mapping[int, str]) -> list[str]:
    """Name each id: by its fixed name, else by its token; where that is taken, the id is added.

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


def _tokens(tokenizer: Tokenizer, count: int) -> list[str]:
    """The token of each id; a model may have more ids than its tokenizer."""
    known = min(count, tokenizer.vocab_size)
    return [*tokenizer.pieces(range(known)), *(f"<{i}>" for i in range(known, count))]
