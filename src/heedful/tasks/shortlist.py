"""Learn the shortlist of a model, and measure its effect on translations."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from heedful.data.files import read_lines, read_parallel
from heedful.data.lexicon import encoded_pairs
from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import InputError, RunError
from heedful.settings.options import Languages
from heedful.storage.bundle import load_bundle
from heedful.tasks.loading import load_translator, local_bundle
from heedful.tasks.options import SHORTLIST, ShortlistOptions
from heedful.tasks.output_checks import check_output
from heedful.text.pair import languages_of_pairs
from heedful.text.special_tokens import SpecialTokens

_CHUNK = 128  # lines translated at a time
ProgressCallback = Callable[[str, float], None]  # the current phase, and its progress: 0 to 1


@dataclass(frozen=True, kw_only=True)
class ShortlistEffect:
    """Effect of a shortlist on the translations of some sentences.

    Attributes:
        sentences: the number of translated sentences, without empty ones.
        mean_size: the mean number of target tokens in the shortlist of a sentence.
        tokens: the number of tokens that the search wrote without the shortlist.
        tokens_outside: the number of these tokens that are not in the shortlist.
        texts_changed: the number of translations that differ.
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
        path: the file of the shortlist.
        pairs: the number of pairs that it was learned from.
        seconds: the time of learning.
        vocab_size: the size of the target vocabulary.
        effect: the effect on the given sentences; None: no sentences.
    """

    path: str
    pairs: int
    seconds: float
    vocab_size: int
    effect: ShortlistEffect | None


def learn_shortlist(
    options: ShortlistOptions, *, on_progress: ProgressCallback = lambda what, done: None
) -> ShortlistReport:
    """Learn a shortlist and write it; if there are sentences to check, translate them with and without it.

    Args:
        options: the options of the task.
        on_progress: called with the current phase and its progress, 0 to 1.

    Raises:
        BundleError: no usable bundle.
        CorpusError: files that cannot be read or are not parallel.
        InputError: invalid settings, a file that cannot be written, or no output for a run outside of local
            directories.
        RunError: the output exists.
    """
    run, check, output = options.run, options.check, options.output or options.run / SHORTLIST
    if options.output is None and not run.is_dir():
        raise InputError(f"{run}: is not a local directory; name the shortlist with --output")
    if output.exists():
        raise RunError(f"{output}: already exists; give another --output, or remove it")
    check_output(output, inputs=[options.src, options.tgt, check])
    checked = [] if check is None else [line for line in read_lines(check) if line.strip()]
    start = time.monotonic()
    on_progress("learning", 0.0)
    shortlist = _learned(options)
    seconds = time.monotonic() - start
    shortlist.save(output)
    effect = None
    if checked:
        translator = load_translator(run, Languages(), options.runtime)
        search = search_options(options.search, translator.bundle.config.decode)
        effect = effect_of(shortlist, translator, checked, search, on_progress=on_progress)
    return ShortlistReport(
        path=str(output),
        pairs=int(shortlist.record["pairs"]),
        seconds=round(seconds, 3),
        vocab_size=shortlist.tgt_vocab_size,
        effect=effect,
    )


def effect_of(
    shortlist: Shortlist,
    translator: Translator,
    texts: Sequence[str],
    options: SearchOptions,
    *,
    on_progress: ProgressCallback = lambda what, done: None,
) -> ShortlistEffect:
    """Translate texts without a shortlist and with it, and compare.

    Args:
        shortlist: a shortlist for the model.
        translator: a translator without a shortlist.
        texts: sentences that are not empty.
        options: the options of the search.
        on_progress: called with the current phase and its progress, 0 to 1.
    """
    bundle = translator.bundle
    restricted = Translator(
        bundle,
        batch_tokens=translator.generator.batch_tokens,
        batch_size=translator.generator.batch_size,
        engine=translator.generator.backend,
        shortlist=shortlist,
    )
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    sources = [special_tokens.source(ids) for ids in bundle.tokenizers.src.encode_batch(texts)]

    def translated(chosen: Translator, phase: str) -> list[Translation]:
        translations = []
        for translation in chosen.translate_lines(texts, options=options, chunk_lines=_CHUNK):
            translations.append(translation)
            on_progress(phase, len(translations) / len(texts))
        return translations

    without = translated(translator, "translating without it")
    within = translated(restricted, "translating with it")
    sizes, tokens, outside = [], 0, 0
    for source, translation in zip(sources, without, strict=True):
        allowed = shortlist.ids(source)
        written = [token for hypothesis in translation.hypotheses[:1] for token in hypothesis.written_ids]
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


def _learned(options: ShortlistOptions) -> Shortlist:
    bundle = load_bundle(local_bundle(options.run))
    text = read_parallel(options.src, options.tgt, languages=languages_of_pairs(bundle.config))
    some = np.unique(np.linspace(0, len(text) - 1, min(options.pairs, len(text))).round().astype(int))
    return Shortlist.learn(
        *encoded_pairs(text, some.tolist(), bundle.tokenizers),
        bundle,
        candidates=options.candidates,
        frequent=options.frequent,
        record={"text": [Path(name).name for name in text.sources]},
    )
