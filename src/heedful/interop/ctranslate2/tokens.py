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
    tgt_names = unique_names(_pieces(tgt, config.tgt_vocab_size), {})
    shared = {src.unk_id: tgt_names[tgt.unk_id], src.eos_id: tgt_names[tgt.eos_id]}
    return TokenNames(unique_names(_pieces(src, config.src_vocab_size), shared), tgt_names)


def unique_names(pieces: Sequence[str], given: Mapping[int, str]) -> list[str]:
    """Name each id: as it is given, else by its token; where that is taken, the id is added.

    >>> unique_names(["[UNK]", "a", "a", "a<2>"], {0: "<unk>"})
    ['<unk>', 'a', 'a<2><2>', 'a<2>']
    """
    wanted, taken = {*pieces, *given.values()}, set(given.values())
    names: list[str] = []
    for i, piece in enumerate(pieces):
        name = given.get(i, piece)
        if i not in given and name in taken:
            while name in wanted or name in taken:
                name += f"<{i}>"
        taken.add(name)
        names.append(name)
    return names


def _pieces(tokenizer: Tokenizer, count: int) -> list[str]:
    """The token of each id; a model may have more ids than its tokenizer."""
    known = min(count, tokenizer.vocab_size)
    return [*tokenizer.pieces(range(known)), *(f"<{i}>" for i in range(known, count))]
