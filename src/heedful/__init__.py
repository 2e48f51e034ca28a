"""Encoder-decoder Transformers: train, translate, score, explain.

    import heedful

    model = heedful.Transformer(src_vocab_size=37_000, tgt_vocab_size=37_000)  # the paper's base, in torch
    run = heedful.train(src="train.en", tgt="train.de", preset="small", output="runs/en-de", max_minutes=20)
    translator = heedful.Translator.load(run.best)
    translator.translate(["A dog."], beam_size=1)
    heedful.translate_file(translator, "test.en", "out.de")
    heedful.evaluate(translator, src="test.en", ref="test.de")

What is listed in `__all__` is the public surface. Its names are looked up when they are first used, so that
`import heedful` is instant and loads neither torch nor anything else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heedful.errors import BundleError, ConfigError, CorpusError, HeedfulError, InputError
from heedful.front import front
from heedful.model import search as _search

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.analysis.attention_maps import attention_of
    from heedful.analysis.curves import read_log
    from heedful.decoding.glossary import Glossary
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.evaluation.metrics import EvaluationReport
    from heedful.interop.huggingface.hub import download_bundle
    from heedful.model.attention import causal_mask, padding_mask
    from heedful.model.positions import sinusoids
    from heedful.model.transformer import Transformer
    from heedful.ops.attention import record_attention
    from heedful.settings.loading import load_config
    from heedful.settings.model import ModelConfig
    from heedful.settings.plugins import load_plugin
    from heedful.settings.run import Config
    from heedful.storage.bundle import Bundle, load_bundle, load_model, save_bundle, save_model
    from heedful.tasks.adapt import adapt
    from heedful.tasks.align_documents import align_documents
    from heedful.tasks.evaluate import evaluate
    from heedful.tasks.exchange import export_model, import_model
    from heedful.tasks.synthetic import back_translate, distill
    from heedful.tasks.train import train
    from heedful.tasks.training import TrainResult
    from heedful.tasks.translate import translate_file
    from heedful.tasks.translate_text import translate_text
    from heedful.tasks.verify import verify
    from heedful.text.languages import Pair

    __version__: str

__all__ = [
    "Bundle",
    "BundleError",
    "Config",
    "ConfigError",
    "CorpusError",
    "EvaluationReport",
    "Glossary",
    "HeedfulError",
    "InputError",
    "ModelConfig",
    "Pair",
    "SearchOptions",
    "TrainResult",
    "Transformer",
    "Translation",
    "Translator",
    "__version__",
    "adapt",
    "align_documents",
    "attention_of",
    "back_translate",
    "causal_mask",
    "distill",
    "download_bundle",
    "evaluate",
    "export_model",
    "import_model",
    "load_bundle",
    "load_config",
    "load_model",
    "load_plugin",
    "padding_mask",
    "read_log",
    "record_attention",
    "save_bundle",
    "save_model",
    "sinusoids",
    "train",
    "translate_file",
    "translate_text",
    "verify",
]

_NAMES = {
    "analysis.attention_maps": ("attention_of",),
    "analysis.curves": ("read_log",),
    "decoding.glossary": ("Glossary",),
    "decoding.options": ("SearchOptions",),
    "decoding.translation": ("Translation",),
    "decoding.translator": ("Translator",),
    "evaluation.metrics": ("EvaluationReport",),
    "interop.huggingface.hub": ("download_bundle",),
    "model.attention": ("causal_mask", "padding_mask"),
    "model.positions": ("sinusoids",),
    "model.transformer": ("Transformer",),
    "ops.attention": ("record_attention",),
    "settings.loading": ("load_config",),
    "settings.model": ("ModelConfig",),
    "settings.plugins": ("load_plugin",),
    "settings.run": ("Config",),
    "storage.bundle": ("Bundle", "load_bundle", "load_model", "save_bundle", "save_model"),
    "text.languages": ("Pair",),
    "tasks.adapt": ("adapt",),
    "tasks.align_documents": ("align_documents",),
    "tasks.evaluate": ("evaluate",),
    "tasks.exchange": ("export_model", "import_model"),
    "tasks.synthetic": ("back_translate", "distill"),
    "tasks.train": ("train",),
    "tasks.training": ("TrainResult",),
    "tasks.translate": ("translate_file",),
    "tasks.translate_text": ("translate_text",),
    "tasks.verify": ("verify",),
}
_look_up = front(__name__, _NAMES)


def _generate(*arguments: Any, **settings: Any) -> "Tensor":  # noqa: ANN401
    """Generate by the searches of decoding/, which are imported at the first call."""
    from heedful.decoding.generation import generate

    return generate(*arguments, **settings)


_search.generate = _generate  # of every model, wherever it is imported from


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first used."""
    return import_module("importlib.metadata").version("heedful") if name == "__version__" else _look_up(name)


def __dir__() -> list[str]:
    return sorted(__all__)
