"""Translate a text with its markup: `heedful.translate_text`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Unpack

from heedful.bulk.memories import open_lookup
from heedful.decoding.options import SearchSettings, search_options
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.documents.markup import html_rules, read_text, xml_rules
from heedful.settings.arguments import checked
from heedful.spans import pipeline
from heedful.spans.keep import keeping
from heedful.tasks.keep_rules import keep_rules


@dataclass(frozen=True)
class TranslatedText:
    """The translation of a text.

    >>> translated = heedful.translate_text(translator, "The house is small.", n_best=2)
    >>> translated.text, len(translated.alternatives)
    ('Das Haus ist klein.', 1)

    Attributes:
        text: the best translation, with the markup of the source.
        alternatives: other translations, best first, if `n_best` is above 1.
        sentences: the translations, without markup, of the sentences that no placeholder was taken out of.
        finished: whether all sentences are complete; otherwise a length limit has cut one.
    """

    text: str
    alternatives: tuple[str, ...] = ()
    sentences: tuple[Translation, ...] = field(default=(), repr=False)
    finished: bool = True


@checked
def translate_text(
    translator: Translator,
    text: str,
    *,
    format: Literal["text", "html", "xml"] = "text",
    memory: str | Path | Sequence[str | Path] = (),
    through: Translator | None = None,
    split_lines: bool = True,
    keep: str | Sequence[str] = (),
    **search: Unpack[SearchSettings],
) -> TranslatedText:
    """Translate a text sentence by sentence; markup, placeholders, spaces and line ends stay.

    >>> heedful.translate_text(translator, "<p>The house is small.</p>", format="html").text
    '<p>Das Haus ist klein.</p>'

    Args:
        translator: the translator into the target language.
        text: any number of sentences.
        format: what in the text is markup: nothing, the tags of HTML, or all tags of XML.
        memory: translation memories (TMX files): a sentence with an exact match is not searched.
        through: translates the text into another language, which `translator` then translates; memories
            then match what it returns.
        split_lines: whether lines are split into sentences.
        keep: what else stays as it is: regular expressions, and names of presets such as "unity".
        search: options of the search, as for `Translator.translations`; with n_best above 1 there are
            alternatives.

    Raises:
        InputError: an option that does not exist or has an invalid value, or a memory that cannot be read.
    """
    rules = {"text": None, "html": html_rules(), "xml": xml_rules()}[format]
    config = translator.bundle.config
    options = search_options(search, config.decode) if search else translator.default_options
    files = [memory] if isinstance(memory, str | Path) else memory
    kept = keep_rules(keep).everywhere
    with keeping(kept), open_lookup([Path(file) for file in files], config) as lookup:
        template = read_text(text, rules)
        work = template.work(within_lines=split_lines)
        work = pipeline.translate(work, pipeline.search_of(translator, options, lookup.find, through))
    best, *others = template.translations(work)
    return TranslatedText(best, tuple(others), tuple(work.whole_sentences), work.finished)
