"""Word alignments from cross-attention, in Pharaoh form.

A target token is aligned with the source token of the highest weight, by the mean of the heads of one layer
of the decoder: by default the last but one, at the step that predicts the target token (Garg et al., 2019,
"Jointly Learning to Align and Translate with Transformer Models"). With `shift`, it is one step later, where
the target token is the decoder's input: better in the middle layers of deep models, the third of six (Chen et
al., 2020, "Accurate Word Alignment Induction from Neural Machine Translation"), and far worse in shallow ones
(docs/pictures.md). Two words are aligned if any of their tokens are, as in both papers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.bundle import Bundle
from heedful.data.batches import collate
from heedful.decoding.batch_plan import plan_batches
from heedful.errors import InputError
from heedful.model import Transformer
from heedful.ops.recorder import record_attention
from heedful.text import Framing, Tokenizer

_WORD = re.compile(r"\S+")
_SPECIAL_TOKENS = 4  # of a text, at most


@dataclass(frozen=True)
class Alignment:
    """The aligned words of a sentence pair: (source word, target word), each from 0, in order."""

    links: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        """Return the links in Pharaoh form.

        >>> str(Alignment(((0, 0), (2, 1))))
        '0-0 2-1'
        """
        return " ".join(f"{src}-{tgt}" for src, tgt in self.links)


@dataclass(frozen=True, kw_only=True)
class AlignmentMethod:
    """Where alignments are read: a decoder layer, from 1 (None: the last but one), and `shift`, see above."""

    layer: int | None = None
    shift: bool = False

    def layer_of(self, model: Transformer) -> int:
        """Return the number of the layer in a model.

        Raises:
            InputError: the decoder does not have that layer.
        """
        num_layers = len(model.decoder.layers)
        layer = max(1, num_layers - 1) if self.layer is None else self.layer
        if not 1 <= layer <= num_layers:
            raise InputError(
                f"alignment: layer {layer} does not exist; the decoder has layers 1 to {num_layers}"
            )
        return layer


PENULTIMATE = AlignmentMethod()


def align(
    bundle: Bundle,
    pairs: Sequence[tuple[str, str]],
    *,
    method: AlignmentMethod = PENULTIMATE,
    batch_tokens: int = 4096,
    first_line: int = 1,
) -> list[Alignment]:
    """Align the words of sentence pairs, by teacher forcing; words are what is between spaces.

    Every target word gets at least one link; a pair with an empty text has none.

    Args:
        bundle: the model and its tokenizers.
        pairs: (source, target).
        method: how.
        batch_tokens: of a batch, rows x max(src_len, tgt_len).
        first_line: the number of the first pair, for messages.

    Raises:
        InputError: the decoder does not have that layer, or a text is longer than its learned positions.
    """
    method.layer_of(bundle.model)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    ids = list(
        zip(
            src.encode_batch([source for source, _ in pairs]),
            tgt.encode_batch([target for _, target in pairs]),
            strict=True,
        )
    )
    lengths = [max(map(len, each)) + _SPECIAL_TOKENS if all(each) else 0 for each in ids]
    framing = Framing.of(bundle.config, bundle.tokenizers)
    for i in np.flatnonzero(lengths).tolist():
        _check_length(bundle, framing, *ids[i], line=first_line + i)
    alignments = [Alignment(())] * len(pairs)
    for batch in plan_batches(lengths, tokens=batch_tokens):
        weights = _token_weights(bundle, framing, [ids[i] for i in batch], method)
        for i, each in zip(batch, weights, strict=True):
            source, target = pairs[i]
            alignments[i] = align_words(each, _words_of_tokens(src, source), _words_of_tokens(tgt, target))
    return alignments


def align_words(
    weights: NDArray[np.float32], src_words: Sequence[Sequence[int]], tgt_words: Sequence[Sequence[int]]
) -> Alignment:
    """Align the words whose tokens attend to each other.

    Args:
        weights: (T, S), of target token t on source token s; special tokens are left out.
        src_words: for each source token the words that it is a part of, mostly one.
        tgt_words: the same of the target.
    """
    links = {
        (src, tgt)
        for row, of_target in zip(weights, tgt_words, strict=True)
        for src in _best_words(row, src_words)
        for tgt in of_target
    }
    return Alignment(tuple(sorted(links, key=lambda link: link[::-1])))


def _check_length(
    bundle: Bundle, framing: Framing, source: Sequence[int], target: Sequence[int], *, line: int
) -> None:
    limit = bundle.config.model.max_positions
    longest = max(len(framing.source(source)), len(framing.target(target)))
    if bundle.config.model.positions == "learned" and longest > limit:
        raise InputError(
            f"line {line:,}: {longest:,} tokens, but the model has {limit:,} positions; split the line"
        )


def _best_words(row: NDArray[np.float32], src_words: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return the words of the source token with the highest weight, of those that are part of a word."""
    in_words = [s for s, words in enumerate(src_words) if words]
    return src_words[max(in_words, key=lambda s: row[s])] if in_words else ()


def _token_weights(
    bundle: Bundle, framing: Framing, ids: Sequence[tuple[list[int], list[int]]], method: AlignmentMethod
) -> list[NDArray[np.float32]]:
    """Return, for each pair of ids, the weights (T, S) between its tokens, averaged over heads."""
    model = bundle.model
    batch = collate(
        [(np.array(framing.source(source)), np.array(framing.target(target))) for source, target in ids],
        src_pad_id=model.config.src_pad_id,
        tgt_pad_id=model.config.tgt_pad_id,
        start_id=framing.start_id,
    ).to(next(model.parameters()).device)
    attention = model.decoder.layers[method.layer_of(model) - 1].get_submodule("cross_attention")
    with torch.inference_mode(), record_attention(attention) as recorder:
        model.decode(batch.tgt_in, model.encode(batch.src))
    weights = recorder.maps[0].weights.float().mean(dim=1).cpu().numpy()
    row, column = len(framing.tgt_prefix) + method.shift, len(framing.src_prefix)  # of the first token
    return [
        each[row : row + len(target), column : column + len(source)]
        for each, (source, target) in zip(weights, ids, strict=True)
    ]


def _words_of_tokens(tokenizer: Tokenizer, text: str) -> list[list[int]]:
    """Return, for each token of a text, the words that it is a part of; a space alone is part of the next."""
    words = [match.span() for match in _WORD.finditer(text)]
    of_tokens = []
    for start, end in tokenizer.spans(text):
        parts = [number for number, (first, last) in enumerate(words) if first < end and start < last]
        following = (number for number, (first, _) in enumerate(words) if first >= end)
        of_tokens.append(parts or list(islice(following, 1)))
    return of_tokens
