"""Learn a shortlist for a model from parallel text, and measure what it changes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heedful.data.files import read_lines, read_parallel
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError, InputError, RunError
from heedful.settings.options import Runtime, SearchRequest, ShortlistSize
from heedful.storage.bundle import Bundle, load_bundle
from heedful.text.special_tokens import SpecialTokens
from heedful.workflows.loading import load_translator, local_bundle, search_options
from heedful.workflows.outputs import check_output

_FILE = "shortlist.safetensors"


@dataclass(frozen=True, kw_only=True)
class ShortlistTask:
    """Inputs of learning a shortlist, and how much to keep.

    Attributes:
        src: source lines.
        tgt: their translations.
        size: how many of these lines are read, and how many tokens are kept.
        check: sentences that are translated without and with the shortlist.
    """

    src: Path
    tgt: Path
    size: ShortlistSize
    check: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ShortlistEffect:
    """Effect of a shortlist on the translations of some sentences.

    Attributes:
        sentences: that were translated, empty ones left out.
        mean_size: target tokens that a sentence may be written with.
        tokens: that the search without the shortlist wrote.
        tokens_outside: of them, those that it could not have written with it.
        texts_changed: translations that are others.
    """

    sentences: int
    mean_size: float
    tokens: int
    tokens_outside: int
    texts_changed: int


@dataclass(frozen=True, kw_only=True)
class ShortlistReport:
    """Results of learning a shortlist.

    Attributes:
        path: of the file.
        pairs: of lines that it was learned from.
        seconds: that learning took.
        vocab_size: target tokens there are.
        effect: on the sentences that were given for it.
    """

    path: str
    pairs: int
    seconds: float
    vocab_size: int
    effect: ShortlistEffect | None


def make_shortlist(
    run: Path, task: ShortlistTask, *, output: Path | None, request: SearchRequest, runtime: Runtime
) -> ShortlistReport:
    """Learn a shortlist, write it, and translate some sentences with and without it if there are any.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        task: what to learn from.
        output: the file to write; None: `shortlist.safetensors` in the directory of the run.
        request: of the search, for what is measured.
        runtime: likewise.

    Raises:
        BundleError: no usable bundle.
        CorpusError: files that cannot be read or are not parallel.
        InputError: settings that cannot be, or a file that cannot be written.
        RunError: the output exists.
    """
    if output is None and not run.is_dir():
        raise InputError(f"{run}: is no directory here; say where the shortlist goes with --output")
    output = output or run / _FILE
    if output.exists():
        raise RunError(f"{output}: already exists; remove it, or give another --output")
    check_output(output, [task.src, task.tgt, task.check])
    checked = [] if task.check is None else [line for line in read_lines(task.check) if line.strip()]
    start = time.monotonic()
    shortlist = _learn(load_bundle(local_bundle(run)), task)
    seconds = time.monotonic() - start
    shortlist.save(output)
    effect = None
    if checked:
        translator = load_translator(run, request, runtime)
        options = search_options(request, translator.bundle.config.decode)
        effect = effect_of(shortlist, translator, checked, options)
    return ShortlistReport(
        path=str(output),
        pairs=int(shortlist.record["pairs"]),
        seconds=round(seconds, 3),
        vocab_size=shortlist.tgt_vocab_size,
        effect=effect,
    )


def effect_of(
    shortlist: Shortlist, translator: Translator, texts: Sequence[str], options: SearchOptions
) -> ShortlistEffect:
    """Translate texts, none of them empty, without a shortlist and with it.

    Args:
        shortlist: of the model.
        translator: without one.
        texts: one sentence each.
        options: of the search.
    """
    bundle = translator.bundle
    restricted = Translator(
        bundle,
        precision=translator.precision,
        batch_tokens=translator.batch_tokens,
        batch_size=translator.batch_size,
        engine=translator.engine,
        shortlist=shortlist,
    )
    framing = SpecialTokens.of(bundle.config, bundle.tokenizers)
    sources = [framing.source(ids) for ids in bundle.tokenizers.src.encode_batch(texts)]
    without, within = (each.translations(texts, options=options) for each in (translator, restricted))
    sizes, tokens, outside = [], 0, 0
    for source, translation in zip(sources, without, strict=True):
        allowed = shortlist.ids(source)
        written = [token for each in translation.hypotheses[:1] for token in each.written_ids]
        sizes.append(len(allowed))
        tokens += len(written)
        outside += int((~np.isin(written, allowed)).sum())
    return ShortlistEffect(
        sentences=len(texts),
        mean_size=float(np.mean(sizes)),
        tokens=tokens,
        tokens_outside=outside,
        texts_changed=sum(a.text != b.text for a, b in zip(without, within, strict=True)),
    )


def _learn(bundle: Bundle, task: ShortlistTask) -> Shortlist:
    text = read_parallel(task.src, task.tgt)
    some = np.unique(np.linspace(0, len(text) - 1, min(task.size.pairs, len(text))).round().astype(int))
    tokenizers = bundle.tokenizers
    src = tokenizers.src.encode_batch([text.src[i] for i in some])
    tgt = tokenizers.tgt.encode_batch([text.tgt[i] for i in some])
    pairs = [each for each in zip(src, tgt, strict=True) if all(each)]
    if not pairs:
        raise CorpusError(f"{text.name}: no pair has tokens in both source and target; give other text")
    return Shortlist.learn(
        [source for source, _ in pairs],
        [target for _, target in pairs],
        bundle,
        candidates=task.size.candidates,
        frequent=task.size.frequent,
        record={"text": [Path(name).name for name in text.sources]},
    )
