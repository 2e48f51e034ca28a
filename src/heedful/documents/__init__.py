"""Files of many formats, and texts with markup, as sentences to translate and what is around them.

What other parts of heedful use is here; a name is looked up in its module when it is first used.
"""

from typing import TYPE_CHECKING

from heedful.front import front

if TYPE_CHECKING:
    from heedful.documents.document_file import check_document, read_document
    from heedful.documents.formats import format_of, primary_language, suffixes
    from heedful.documents.markup import TagRules, html_rules, read_text, xml_rules
    from heedful.documents.memory import TmxWriter, TranslationMemory, normalised
    from heedful.documents.template import Template

__all__ = [
    "TagRules",
    "Template",
    "TmxWriter",
    "TranslationMemory",
    "check_document",
    "format_of",
    "html_rules",
    "normalised",
    "primary_language",
    "read_document",
    "read_text",
    "suffixes",
    "xml_rules",
]

__getattr__ = front(
    __name__,
    {
        "markup": ("TagRules", "html_rules", "read_text", "xml_rules"),
        "memory": ("TmxWriter", "TranslationMemory", "normalised"),
        "template": ("Template",),
        "document_file": ("check_document", "read_document"),
        "formats": ("format_of", "primary_language", "suffixes"),
    },
)
