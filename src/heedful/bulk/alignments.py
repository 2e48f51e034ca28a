"""Align the words of many sentence pairs, and learn an aligner from them."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.data.lexicon import encoded_pairs
from heedful.decoding.aligner import learn_aligner
from heedful.decoding.alignment import Alignment, AlignmentMethod, SplitWords, words_between_spaces
from heedful.decoding.backends.protocol import attention_heads
from heedful.decoding.texts import chunks
from heedful.decoding.translator import Translator
from heedful.settings.options import Languages
from heedful.storage.bundle import load_bundle
from heedful.storage.description import resolve_bundle
from heedful.text.pair import choose_languages, languages_of_pairs

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
    split: SplitWords = words_between_spaces,
) -> Iterator[Alignment]:
    """Align pairs of lines in order, empty lines kept; they are read once, a chunk ahead.

    For the options see `Translator.align` and `AlignmentMethod`; with a layer or `shift`, no aligner is used.
    A layer that the model does not have is an InputError before any pair is read.
    """
    attention_heads(translator.bundle.config.model, layer)
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
            split=split,
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
    """Learn an aligner from the pairs of two files, and add it to a bundle, or to the bundle of a run.

    `languages` are for a model that has many. Fewer than two pairs with text are a CorpusError.
    """
    start, path = time.monotonic(), resolve_bundle(run)
    bundle = load_bundle(path)
    chosen = asdict(languages or Languages())
    choose_languages(bundle.config, bundle.tokenizers, **chosen)
    text = read_parallel(src, tgt, languages=languages_of_pairs(bundle.config, **chosen))
    some = range(0, len(text), -(-len(text) // _MOST_PAIRS))  # spread over the text
    # Words that come again are learned from.
    src_ids, tgt_ids = encoded_pairs(text, some, bundle.tokenizers, least=_LEAST_PAIRS)
    record = {"text": [Path(name).name for name in text.sources], "pairs": len(src_ids)}
    file = learn_aligner(src_ids, tgt_ids, bundle, record=record).add_to(path)
    return LearnedAligner(path=str(file), pairs=len(src_ids), seconds=round(time.monotonic() - start, 3))
