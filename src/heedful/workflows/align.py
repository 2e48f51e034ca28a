"""Align the words of given translations."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from heedful.data.files import parallel_lines
from heedful.decoding.alignment import Alignment, AlignmentMethod
from heedful.decoding.backends.protocol import attention_layer
from heedful.decoding.translator import Translator
from heedful.settings.options import Languages, Runtime, ScoreRequest
from heedful.workflows.loading import load_translator

_CHUNK_LINES = 1024


@dataclass(frozen=True, kw_only=True)
class AlignmentTask:
    """Inputs of an alignment: line i of the targets is the translation of line i of the sources.

    Attributes:
        sources: one sentence or line each, read once, as are the targets.
        targets: the translation of each.
        src_name: of the sources, for messages.
        tgt_name: of the targets.
        method: where alignments are read.
    """

    sources: Iterable[str]
    targets: Iterable[str]
    src_name: str = "sources"
    tgt_name: str = "targets"
    method: AlignmentMethod


def align_lines(run: Path, task: AlignmentTask, *, languages: Languages) -> Iterator[Alignment]:
    """Load a model, then align pair by pair, in order, empty lines kept.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        task: the pairs.
        languages: of a model that has many.

    Raises:
        BundleError: no usable bundle.
        CorpusError: source and target are not parallel; alignments of earlier pairs came out.
        InputError: a layer that the model does not have, or a line too long for learned positions.
    """
    request = ScoreRequest(src_lang=languages.src_lang, tgt_lang=languages.tgt_lang)
    translator = load_translator(run, request, Runtime())
    attention_layer(translator.bundle.config.model.num_decoder_layers, task.method.layer)
    return _alignments(translator, task)


def _alignments(translator: Translator, task: AlignmentTask) -> Iterator[Alignment]:
    pairs = parallel_lines(task.sources, task.targets, src_name=task.src_name, tgt_name=task.tgt_name)
    for first_line in count(1, _CHUNK_LINES):
        chunk = list(islice(pairs, _CHUNK_LINES))
        if not chunk:
            break
        sources, targets = zip(*chunk, strict=True)
        yield from translator.align(sources, targets, method=task.method, first_line=first_line)
