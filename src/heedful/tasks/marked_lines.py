"""Translate lines with their markup: `heedful translate --markup`."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal

from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import FindMatch, Translation
from heedful.decoding.translator import Translator
from heedful.documents.markup import TagRules, html_rules, read_text, xml_rules
from heedful.documents.template import Template
from heedful.spans import pipeline
from heedful.spans.keep import KeepRule, keeping
from heedful.spans.placeholders import placeholders

_HAS_MARKUP = re.compile(r"</?(?:[A-Za-z!?][^<>]*|\d+\s*/?)>|&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w*);")


@dataclass(frozen=True)
class LineMarkup:
    """Translates lines with their markup; a line is not split into sentences.

    Attributes:
        markup: what in a line is markup: the tags of HTML, or all tags of XML. "auto": a line with a tag or
            an entity is HTML, any other is text. "text": nothing.
        translator: the models.
        options: the options of the search.
        through: translates each text first, into the language that `translator` reads.
        keep: what a user keeps.
    """

    markup: Literal["html", "xml", "auto", "text"]
    translator: Translator
    options: SearchOptions
    through: Translator | None = None
    keep: Sequence[KeepRule] = ()

    def __call__(self, lines: Sequence[str], find: FindMatch) -> list[Translation]:
        """Return the translation of each line; `find` looks a sentence up in a memory.

        Hypotheses have ids, confidence and numbers of the text without markup, and no alignment.
        """
        with keeping(self.keep):
            return self._translations(lines, find)

    def _translations(self, lines: Sequence[str], find: FindMatch) -> list[Translation]:
        rules_of = self._rules()
        templates = [read_text(line, rules_of(line)) for line in lines]
        units = chain.from_iterable(template.units for template in templates)
        work = pipeline.prepare([unit.source for unit in units], within_lines=False)
        work = pipeline.translate(work, pipeline.search_of(self.translator, self.options, find, self.through))
        works = _by_template(work, templates)
        return [_translation(*line) for line in zip(lines, templates, works, strict=True)]

    def _rules(self) -> Callable[[str], TagRules | None]:
        """Return a function that returns the rules of the markup in a line; None: it has none."""
        rules = xml_rules() if self.markup == "xml" else html_rules()
        if self.markup in ("html", "xml"):
            return lambda line: rules
        return lambda line: rules if self.markup == "auto" and _HAS_MARKUP.search(line) else None


def _by_template(work: pipeline.Work, templates: Sequence[Template]) -> Iterator[pipeline.Work]:
    """Yield the part of the work that belongs to each template."""
    segments, sentences = iter(work.segments), iter(work.sentences)
    for template in templates:
        texts = tuple(islice(segments, len(template.units)))
        yield pipeline.Work(texts, tuple(islice(sentences, sum(len(text.sentences) for text in texts))))


def _translation(line: str, template: Template, work: pipeline.Work) -> Translation:
    """Return the translation of a line: the numbers of its sentences, and texts with markup."""
    parts = [_with_placeholders(sentence) for sentence in work.sentences]
    whole = Translation.joined(line, parts, [""] * len(parts))
    texts = [
        template.joined(
            [unit.written(text) for unit, text in zip(template.units, work.texts(rank), strict=True)]
        )
        for rank in range(max(1, len(whole.hypotheses)))
    ]
    hypotheses = tuple(
        replace(hypothesis, text=text) for hypothesis, text in zip(whole.hypotheses, texts, strict=False)
    )
    terms = tuple(replace(term, spans=()) for part in parts for term in part.terms)
    match = parts[0].match if len(parts) == 1 else None
    return replace(whole, text=texts[0], hypotheses=hypotheses, terms=terms, match=match)


def _with_placeholders(sentence: pipeline.Sentence) -> Translation:
    """Return the translation of a sentence with those hypotheses that have marks, and without links."""
    assert sentence.translation is not None
    outputs = sentence.translation.hypotheses
    if len(sentence.spanned) < len(outputs):  # the others have lost a placeholder
        kept = placeholders(outputs[0].text)
        outputs = tuple(output for output in outputs if placeholders(output.text) == kept)
    outputs = tuple(replace(output, alignment=None) for output in outputs)
    return replace(sentence.translation, hypotheses=outputs)
