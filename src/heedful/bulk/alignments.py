"""Align the words of many sentence pairs, and learn an aligner from them."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.decoding.aligner import learn_aligner
from heedful.decoding.alignment import Alignment, AlignmentMethod
from heedful.decoding.backends.protocol import attention_layer
from heedful.decoding.texts import chunks
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError, InputError
from heedful.settings.options import Languages
from heedful.storage.bundle import load_bundle
from heedful.storage.description import resolve_bundle
from heedful.text.pair import choose_languages

_CHUNK_LINES = 1024
_MOST_PAIRS = 200_000  # that an aligner is learned from
_LEAST_PAIRS = 2


def align_pairs(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    *,
    layer: int | None = None,
    shift: bool = False,
    max_source_tokens: int | None = None,
) -> Iterator[Alignment]:
    """Align pair by pair, in order, empty lines kept; see `Translator.align`.

    Args:
        translator: the model.
        pairs: of lines, read once, a chunk ahead.
        layer: of the decoder, from 1, to read the attention of; None: the last but one.
        shift: read the attention when a token is the decoder's input. With it or a layer, no aligner is used.
        max_source_tokens: of a source or a target; None: as `Translator.align`.

    Raises:
        InputError: a layer that the model does not have, before any pair is read.
    """
    attention_layer(translator.bundle.config.model.num_decoder_layers, layer)
    is_chosen = layer is not None or shift
    method = AlignmentMethod(layer=layer, shift=shift) if is_chosen else None
    return (
        alignment
        for first_line, chunk, _ in chunks(iter(pairs), None, _CHUNK_LINES)
        for alignment in translator.align(
            [source for source, _ in chunk],
            [target for _, target in chunk],
            method=method,
            max_source_tokens=max_source_tokens,
            first_line=first_line,
        )
    )


@dataclass(frozen=True, kw_only=True)
class LearnedAligner:
    """Results of learning an aligner: its file, the pairs that it was learned from, and the time it took."""

    path: str
    pairs: int
    seconds: float


def add_aligner(run: Path, src: Path, tgt: Path, *, languages: Languages | None = None) -> LearnedAligner:
    """Learn an aligner from the pairs of two files, and add it to a bundle.

    Args:
        run: a bundle, or a run with one, in a local directory.
        src: source lines.
        tgt: their translations.
        languages: of a model that has many.

    Raises:
        BundleError: no usable bundle, or one that cannot be written to.
        CorpusError: files that cannot be read or are not parallel, or fewer than two pairs with text.
        InputError: a language that the model does not have, or a bundle that is not in a local directory.
    """
    if not run.is_dir():
        raise InputError(f"{run}: is not a local directory, where an aligner could be added")
    start, path = time.monotonic(), resolve_bundle(run)
    bundle = load_bundle(path)
    choose_languages(bundle.config, bundle.tokenizers, **asdict(languages or Languages()))
    text = read_parallel(src, tgt)
    some = range(0, len(text), -(-len(text) // _MOST_PAIRS))  # spread over the text
    encoded = (
        each.encode_batch([lines[i] for i in some])
        for each, lines in ((bundle.tokenizers.src, text.src), (bundle.tokenizers.tgt, text.tgt))
    )
    pairs = [pair for pair in zip(*encoded, strict=True) if all(pair)]
    if len(pairs) < _LEAST_PAIRS:
        raise CorpusError(
            f"{text.name}: pairs with tokens in both source and target: {len(pairs)}; an aligner is learned "
            f"from words that come again, so give {_LEAST_PAIRS} at least"
        )
    src_ids, tgt_ids = zip(*pairs, strict=True)
    record = {"text": [Path(name).name for name in text.sources], "pairs": len(pairs)}
    file = learn_aligner(src_ids, tgt_ids, bundle, record=record).add_to(path)
    return LearnedAligner(path=str(file), pairs=len(pairs), seconds=round(time.monotonic() - start, 3))
