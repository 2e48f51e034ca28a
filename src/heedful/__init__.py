"""Encoder-decoder Transformers: train, translate, score, explain.

    from heedful import Translator
    translator = Translator.load("runs/demo")
    translator.translate(["the old house is small ."])

What is listed in `__all__` is the public surface. Its names are looked up when they are first used, so that
`import heedful` is instant and loads neither torch nor anything else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from heedful.errors import (
    BundleError,
    CheckpointError,
    ConfigError,
    CorpusError,
    HeedfulError,
    HubError,
    InputError,
    InteropError,
    MissingExtraError,
    RunError,
    TokenizerError,
    TrainingError,
)

if TYPE_CHECKING:
    from heedful.decoding.glossary import Glossary
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import TableTranslator, Translator
    from heedful.interop.huggingface.hub import download_bundle
    from heedful.settings.run import Config
    from heedful.storage.bundle import Bundle, load_bundle, load_model

    __version__: str

__all__ = [
    "Bundle",
    "BundleError",
    "CheckpointError",
    "Config",
    "ConfigError",
    "CorpusError",
    "Glossary",
    "HeedfulError",
    "HubError",
    "InputError",
    "InteropError",
    "MissingExtraError",
    "RunError",
    "SearchOptions",
    "TableTranslator",
    "TokenizerError",
    "TrainingError",
    "Translation",
    "Translator",
    "__version__",
    "download_bundle",
    "load_bundle",
    "load_model",
]

_HOMES = {
    "Bundle": "heedful.storage.bundle",
    "Config": "heedful.settings.run",
    "Glossary": "heedful.decoding.glossary",
    "SearchOptions": "heedful.decoding.options",
    "TableTranslator": "heedful.decoding.translator",
    "Translation": "heedful.decoding.translation",
    "Translator": "heedful.decoding.translator",
    "download_bundle": "heedful.interop.huggingface.hub",
    "load_bundle": "heedful.storage.bundle",
    "load_model": "heedful.storage.bundle",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first used."""
    if name == "__version__":
        value: object = import_module("importlib.metadata").version("heedful")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
