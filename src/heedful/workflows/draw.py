"""Draw what is neither a run's curves nor a sentence's attention: parts of the paper, lengths, heads."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.analysis.head_importance import HeadImportance, head_importance, importance_figure
from heedful.analysis.paper_pictures import (
    lengths_figure,
    masks_figure,
    positions_figure,
    schedule_figure,
    smoothing_figure,
)
from heedful.analysis.plotting import check_picture, save_figure
from heedful.data.batches import Batch, collate
from heedful.data.files import ParallelText, read_parallel
from heedful.decoding.generator import plan_batches
from heedful.errors import CorpusError
from heedful.settings.options import Languages, Runtime, ScoreRequest
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.text import SpecialTokens
from heedful.workflows.loading import load_translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Pictures of a configuration.
OF_CONFIG: dict[str, Callable[[Config], "Figure"]] = {
    "positions": lambda config: positions_figure(config.model),
    "masks": lambda config: masks_figure(),
    "schedule": schedule_figure,
    "smoothing": lambda config: smoothing_figure(config.train.label_smoothing),
}


def draw_config(name: str, config: Config, output: Path) -> None:
    """Draw one of `OF_CONFIG`.

    Raises:
        InputError: positions that need a trained model, or a name that is not that of a picture.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(output)
    save_figure(OF_CONFIG[name](config), output)


def draw_lengths(src: Path, tgt: Path, output: Path) -> None:
    """Draw the lengths, in words, of the sentences of parallel text.

    Raises:
        CorpusError: files that cannot be read or are not parallel.
        InputError: a name that is not that of a picture.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(output)
    text = read_parallel(src, tgt)
    save_figure(
        lengths_figure(*([len(line.split()) for line in lines] for lines in (text.src, text.tgt))), output
    )


def draw_heads(
    run: Path,
    src: Path,
    tgt: Path,
    output: Path,
    *,
    num_pairs: int,
    languages: Languages,
    on_progress: Callable[[str, float], None] = lambda what, share: None,
) -> HeadImportance:
    """Measure the importance of each head on parallel text, draw and return it.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        src: source lines.
        tgt: their translations.
        output: of the picture.
        num_pairs: how many pairs to measure on at most, the first of the text.
        languages: of a model that has many.
        on_progress: called with what is measured and the share (0 to 1) that is done.

    Raises:
        BundleError: no usable bundle.
        CorpusError: files that cannot be read, are not parallel, or have no pair that the model can take.
        InputError: a name that is not that of a picture.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(output)
    text = read_parallel(src, tgt)
    request = ScoreRequest(src_lang=languages.src_lang, tgt_lang=languages.tgt_lang)
    translator = load_translator(run, request, Runtime())
    batches = list(_batches(translator.bundle, text, num_pairs, translator.batch_tokens))
    importance = head_importance(translator.bundle.model, batches, on_progress=on_progress)
    save_figure(importance_figure(importance), output)
    return importance


def _batches(bundle: Bundle, text: ParallelText, num_pairs: int, batch_tokens: int) -> Iterator[Batch]:
    """Yield batches of the first pairs that are no longer than learned positions allow, by length.

    Raises:
        CorpusError: there is none.
    """
    framing, tokenizers, sizes = (
        SpecialTokens.of(bundle.config, bundle.tokenizers),
        bundle.tokenizers,
        bundle.config.model,
    )
    encoded = zip(
        tokenizers.src.encode_batch(text.src[:num_pairs]),
        tokenizers.tgt.encode_batch(text.tgt[:num_pairs]),
        strict=True,
    )
    pairs = [
        (framing.source(source), framing.target(target)) for source, target in encoded if source and target
    ]
    longest = sizes.max_positions if sizes.positions == "learned" else None
    pairs = [pair for pair in pairs if longest is None or max(map(len, pair)) <= longest]
    if not pairs:
        raise CorpusError(f"{text.name}: no pair that the model can take; check the files")
    for batch in plan_batches([max(map(len, pair)) for pair in pairs], tokens=batch_tokens):
        yield collate(
            [_as_arrays(pairs[i]) for i in batch],
            src_pad_id=sizes.src_pad_id,
            tgt_pad_id=sizes.tgt_pad_id,
            start_id=framing.start_id,
        )


def _as_arrays(pair: tuple[Sequence[int], Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(pair[0], dtype=np.int32), np.array(pair[1], dtype=np.int32)
