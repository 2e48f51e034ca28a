"""`heedful shortlist`: learn which target tokens may translate which source tokens."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from heedful.cli.options import BeamOverrides
from heedful.cli.streams import bar
from heedful.errors import CorpusError, InputError, RunError
from heedful.settings.options import OUTPUT, AsJson, Languages, Option, Run, Runtime

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.shortlist import Shortlist
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator

_FILE = "shortlist.safetensors"
_ENOUGH_PAIRS = 10_000
_CHUNK = 128  # lines translated between two calls of the progress
ProgressCallback = Callable[[str, float], None]  # the current phase, and its progress: 0 to 1


@dataclass(frozen=True, kw_only=True)
class LearnShortlist:
    """Learn the target tokens that may translate each source token.

    The file is for translate --shortlist.

    A shortlist limits the output of each sentence to a few hundred tokens, which makes the search faster.
    These are the most probable translations of the sentence's tokens (IBM Model 1), the most frequent tokens
    and, with a joint vocabulary, the sentence's own. All other tokens have probability 0; the rest sums to 1,
    in scores too. --check measures the effect, by a search with --beam-size. It counts as outside the tokens
    that a search without the shortlist writes and that are not in it.
    """

    run: Run
    src: Annotated[Path, Option("Source lines, such as the training text; .gz too.")]
    tgt: Annotated[Path, Option("Their translations, line by line.")]
    output: Annotated[
        Path | None, Option("The file to write.", default=f"{_FILE} in RUN", flags=OUTPUT, is_file=True)
    ] = None
    candidates: Annotated[int, Option("Number of likely target tokens per source token.", minimum=0)] = 100
    frequent: Annotated[int, Option("Number of frequent target tokens in each shortlist.", minimum=0)] = 100
    pairs: Annotated[
        int, Option("Maximum number of lines to learn from, spread over the text.", minimum=1)
    ] = 200_000
    check: Annotated[
        Path | None,
        Option("Sentences to translate with and without the shortlist, to compare.", metavar="FILE"),
    ] = None
    search: BeamOverrides = field(default_factory=dict)
    runtime: Runtime = field(default_factory=Runtime)
    as_json: AsJson = False


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


def learn_shortlist(
    task: LearnShortlist, *, on_progress: ProgressCallback = lambda what, done: None
) -> ShortlistReport:
    """Learn a shortlist, write it, and translate some sentences with and without it if there are any.

    Args:
        task: what to learn.
        on_progress: called with the current phase and the share (0 to 1) of it that is done.

    Raises:
        BundleError: no usable bundle.
        CorpusError: files that cannot be read or are not parallel.
        InputError: settings that cannot be, or a file that cannot be written.
        RunError: the output exists.
    """
    from heedful.data.files import read_lines
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator
    from heedful.runs.output_checks import check_output

    if task.output is None and not task.run.is_dir():
        raise InputError(f"{task.run}: is not a local directory; name the shortlist with --output")
    output = task.output or task.run / _FILE
    if output.exists():
        raise RunError(f"{output}: already exists; give another --output, or remove it")
    check_output(output, inputs=[task.src, task.tgt, task.check])
    checked = [] if task.check is None else [line for line in read_lines(task.check) if line.strip()]
    start = time.monotonic()
    on_progress("learning", 0.0)
    shortlist = _learn(task)
    seconds = time.monotonic() - start
    shortlist.save(output)
    effect = None
    if checked:
        translator = load_translator(task.run, Languages(), task.runtime)
        options = search_options(task.search, translator.bundle.config.decode)
        effect = effect_of(shortlist, translator, checked, options, on_progress=on_progress)
    return ShortlistReport(
        path=str(output),
        pairs=int(shortlist.record["pairs"]),
        seconds=round(seconds, 3),
        vocab_size=shortlist.tgt_vocab_size,
        effect=effect,
    )


def effect_of(
    shortlist: "Shortlist",
    translator: "Translator",
    texts: Sequence[str],
    options: "SearchOptions",
    *,
    on_progress: ProgressCallback = lambda what, done: None,
) -> ShortlistEffect:
    """Translate texts, none of them empty, without a shortlist and with it.

    Args:
        shortlist: of the model.
        translator: without one.
        texts: one sentence each.
        options: of the search.
        on_progress: called with the current phase and the share (0 to 1) of it that is done.
    """
    import numpy as np

    from heedful.decoding.translator import Translator
    from heedful.text.special_tokens import SpecialTokens

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

    def translated(chosen: Translator, phase: str) -> list["Translation"]:
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


def _learn(task: LearnShortlist) -> "Shortlist":
    import numpy as np

    from heedful.data.files import read_parallel
    from heedful.decoding.shortlist import Shortlist
    from heedful.runs.loading import local_bundle
    from heedful.storage.bundle import load_bundle

    bundle = load_bundle(local_bundle(task.run))
    text = read_parallel(task.src, task.tgt)
    some = np.unique(np.linspace(0, len(text) - 1, min(task.pairs, len(text))).round().astype(int))
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
        candidates=task.candidates,
        frequent=task.frequent,
        record={"text": [Path(name).name for name in text.sources]},
    )


def command(task: LearnShortlist) -> None:
    """Learn a shortlist, and print what it was learned from and its effect."""
    with bar() as show:
        result = learn_shortlist(task, on_progress=show)
    if result.pairs < _ENOUGH_PAIRS:
        print(
            f"warning: {result.pairs:,} pairs are few: learned from fewer than {_ENOUGH_PAIRS:,}, a "
            "shortlist lacks many translations; take more text, or measure its effect with --check",
            file=sys.stderr,
        )
    if task.as_json:
        print(json.dumps(asdict(result), ensure_ascii=False))
        return
    print(result.path)
    print(f"  learned   from {result.pairs:,} pairs in {result.seconds:,.1f} s")
    if (effect := result.effect) is not None:
        print(f"  outside   {effect.tokens_outside:,} of {effect.tokens:,} tokens")
        print(f"  changed   {effect.texts_changed:,} of {effect.sentences:,} texts")
        print(f"  size      {effect.mean_size:,.0f} of {result.vocab_size:,} tokens for a sentence")
