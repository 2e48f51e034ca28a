"""Files of many formats, and texts with markup, as sentences to translate and what is around them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.documents.document_file import check_document, read_document
    from heedful.documents.formats import format_of, primary_language, suffixes
    from heedful.documents.markup import TagRules, html_rules, read_text, xml_rules
    from heedful.documents.memory import TranslationMemory

__all__ = [
    "TagRules",
    "TranslationMemory",
    "check_document",
    "format_of",
    "html_rules",
    "primary_language",
    "read_document",
    "read_text",
    "suffixes",
    "xml_rules",
]

_HOMES = {
    "TagRules": "markup",
    "TranslationMemory": "memory",
    "check_document": "document_file",
    "format_of": "formats",
    "html_rules": "markup",
    "primary_language": "formats",
    "read_document": "document_file",
    "read_text": "markup",
    "suffixes": "formats",
    "xml_rules": "markup",
}


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
