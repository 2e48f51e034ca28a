"""The keyword arguments of the functions of `import heedful` that load a model and search.

Their names are those of the command line; `tasks/options.py` has their defaults, ranges and help, and a test
holds both together.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

from heedful.decoding.options import SearchSettings, StrategyChoice
from heedful.settings.keywords import Texts
from heedful.settings.options import BleuTokenizer, Device, EngineChoice, File, PrecisionChoice

Files = File | Sequence[File]


class LoadingSettings(TypedDict, total=False):
    """How a model is loaded and computes: fields of `Languages` and `Runtime`."""

    src_lang: str | None
    tgt_lang: str | None
    batch_tokens: int | None
    batch_size: int | None
    threads: int | None
    precision: PrecisionChoice
    engine: EngineChoice
    device: Device


class EvaluationKeywords(LoadingSettings, SearchSettings, total=False):
    """Options of `heedful.evaluate`."""

    tokenize: BleuTokenizer
    lowercase: bool
    resamples: int
    shortlist: File | None
    ensemble: Files | None
    adapter: File | None


class TranslationKeywords(LoadingSettings, StrategyChoice, total=False):
    """Options of `heedful.translate_file`."""

    resume: bool
    overwrite: bool
    column: str | None
    on: str
    scores: bool
    json: bool
    line_buffered: bool
    ensemble: Files | None
    adapter: File | None
    prefix: File | None
    shortlist: File | None
    glossary: File | None
    glossary_report: File | None
    memory: Files | None
    to_tmx: File | None
    markup: Literal["html", "xml", "auto"] | None
    through: File | None
    keep: str | Sequence[str] | None
    keep_file: File | None


class SyntheticKeywords(LoadingSettings, SearchSettings, total=False):
    """Options of `heedful.distill` and `heedful.back_translate`: of the translation and of the training."""

    config: File | None
    preset: str | None
    resume: bool
    overwrite: bool
    valid_src: Texts | None
    valid_tgt: Texts | None
    weight: float | None
    keep: str | Sequence[str] | None
    remove: str | Sequence[str] | None


class BackTranslationKeywords(SyntheticKeywords, total=False):
    """Options of `heedful.back_translate`."""

    tag: str
