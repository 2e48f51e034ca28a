"""LibreTranslate's dialect: /translate, /detect, /languages, /frontend/settings."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from heedful import Glossary, InputError, Pair
from heedful.decoding.alignment import split_words
from heedful.decoding.confidence import UNSURE
from heedful.documents.formats import suffixes
from heedful.documents.markup import html_rules
from heedful.serving import microsoft
from heedful.serving.gateway import (
    AUTO,
    Gateway,
    NonEmptyText,
    described_body,
    get_and_post,
    read_fields,
    refusals,
    schema_of,
    schema_of_texts,
)
from heedful.serving.microsoft import MicrosoftAnswer, MicrosoftDetected, MicrosoftTranslations
from heedful.serving.refusals import InvalidError, NoSuchGlossaryError
from heedful.serving.service import Answer, TranslationRequest
from heedful.text.languages import language_name

V = TypeVar("V")


class LibreError(BaseModel):
    """A request that was refused."""

    error: str


class DetectedLanguage(BaseModel):
    """A language, and how sure that is, from 0 to 100."""

    confidence: float
    language: str


class WordConfidence(BaseModel):
    """A word of a translation, and the probability that it is right."""

    text: str
    value: float


class SentenceConfidence(BaseModel):
    """The translation of a sentence, the probability that it is no error, and its words between spaces.

    The value is null and there are no words if nothing is known, as of a sentence from a memory.
    """

    text: str
    value: float | None
    unsure: bool
    words: list[WordConfidence]


class TextConfidence(BaseModel):
    """The confidence in a translation: of each sentence, and the lowest of them."""

    value: float
    sentences: list[SentenceConfidence]


class TextSpan(BaseModel):
    """A part of the translated text, in code points: from the first to the one after the last, from 0.

    An emoji can be two of JavaScript's UTF-16 code units, but is one code point.
    """

    start: int
    end: int


class GlossaryTerm(BaseModel):
    """A term of the glossary that applies to a sentence, and all spans of its forms in the translation.

    Without `target`, the translation of the sentence has none of them. With `format` `html`, there are no
    spans.
    """

    source: str
    target: str | None
    met: bool
    spans: list[TextSpan]


class Translated(BaseModel):
    """A translation, or a list of translations if `q` is a list.

    `truncated` is there if a length limit has cut a translation: it ends in the middle.
    """

    text: Annotated[str | list[str], Field(serialization_alias="translatedText")]
    detected: Annotated[
        DetectedLanguage | list[DetectedLanguage] | None, Field(serialization_alias="detectedLanguage")
    ] = None
    alternatives: list[str] | list[list[str]] | None = None
    pivot: str | list[str | None] | None = None
    confidence: TextConfidence | list[TextConfidence | None] | None = None
    terms: list[GlossaryTerm] | list[list[GlossaryTerm]] | None = None
    truncated: bool | list[bool] | None = None


class Language(BaseModel):
    """A language, and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class _TranslateFields(BaseModel):
    q: NonEmptyText | Annotated[list[str], Field(min_length=1)]
    source: NonEmptyText
    target: NonEmptyText
    format: Annotated[Literal["text", "html"], BeforeValidator(lambda value: value or "text")] = "text"
    alternatives: Annotated[int, BeforeValidator(lambda value: value or 0)] = 0
    confidence: Annotated[bool, BeforeValidator(lambda value: value or False)] = False
    terms: Annotated[bool, BeforeValidator(lambda value: value or False)] = False
    glossary: SkipJsonSchema[str | dict[NonEmptyText, NonEmptyText | list[NonEmptyText]]] = ""  # JSON only
    api_key: str = ""


def _glossary_of(
    parameters: _TranslateFields, gateway: Gateway, client: str
) -> Callable[[Pair], Glossary] | None:
    """Return a function for the terms of a request: its own, or a stored glossary's; None: no terms.

    Raises:
        InvalidError: a term or a form has no word, or a term has too many forms.
        NoSuchGlossaryError: no glossaries are stored.
    """
    if not parameters.glossary:
        return None
    if isinstance(parameters.glossary, str):
        if gateway.glossaries is None:
            raise NoSuchGlossaryError("Glossary not found")
        return partial(gateway.glossaries.terms, client, parameters.glossary)
    for term, forms in parameters.glossary.items():
        if isinstance(forms, list) and len(forms) > _MOST_FORMS:
            raise InvalidError(
                f"Invalid request: glossary parameter: {term[:20]!r} has {len(forms):,} forms, "
                f"above {_MOST_FORMS}"
            )
    try:
        glossary = Glossary.of(parameters.glossary)
    except InputError as error:
        raise InvalidError(f"Invalid request: glossary parameter: {error}") from None
    return lambda _: glossary


class _DetectFields(BaseModel):
    q: NonEmptyText
    api_key: str = ""


_DIGITS = 4
_MOST_FORMS = 64  # of a term: each one is looked for at each step of the search

REFUSALS = refusals(LibreError, {400: "Invalid request", 403: "No API key, or an unknown one"})


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["LibreTranslate"], responses=REFUSALS)
    catalogue, limits = gateway.service.catalogue, gateway.service.limits
    schema = schema_of(
        _TranslateFields,
        q=schema_of_texts(limits),
        source={"enum": [AUTO, *catalogue.sources]},
        target={"enum": [*catalogue.targets]},
        alternatives={"minimum": 0, "maximum": limits.alternatives},
    )
    item = schema_of(microsoft.Item, text={"minLength": 1, "maxLength": limits.characters // limits.texts})
    as_body = described_body(
        schema, {"type": "array", "items": item, "minItems": 1, "maxItems": limits.texts}
    )
    to = {"name": "to", "in": "query", "schema": schema["properties"]["target"]}

    @get_and_post(routes, "/translate", schema, body=as_body | {"parameters": [to]})
    async def translate(request: Request) -> Translated | list[MicrosoftTranslations] | MicrosoftAnswer:
        """Translate texts; a JSON array, or an object with `inputs`, is in Microsoft's dialect."""
        fields = await read_fields(request, limits, _TranslateFields)
        if microsoft.is_asked(request, fields):
            return await microsoft.translate(request, gateway, fields)
        client, parameters = await gateway.parameters(request, _TranslateFields, fields)
        texts = [parameters.q] if isinstance(parameters.q, str) else parameters.q
        answers = await gateway.translate(
            request,
            client,
            TranslationRequest(
                texts=tuple(texts),
                source=None if parameters.source == AUTO else parameters.source,
                target=parameters.target,
                rules=(lambda _: html_rules()) if parameters.format == "html" else None,
                alternatives=parameters.alternatives,
                glossary=_glossary_of(parameters, gateway, client),
                with_terms=parameters.terms,
            ),
        )
        return _translated(parameters, answers)

    to_detect = schema_of(_DetectFields, q={"maxLength": limits.characters})

    @routes.post("/detect", openapi_extra=described_body(to_detect))
    async def detect(request: Request) -> list[DetectedLanguage] | list[MicrosoftDetected]:
        """Return the languages that a text may be in, the most probable first."""
        fields = await read_fields(request, limits, _DetectFields)
        if microsoft.is_asked(request, fields):
            return await microsoft.detect(request, gateway, fields)
        _, parameters = await gateway.parameters(request, _DetectFields, fields)
        return [
            DetectedLanguage(confidence=round(100 * each.probability, 1), language=each.language)
            for each in gateway.service.ranked(parameters.q)
        ]

    _add_languages(routes, gateway)
    return routes


def _add_languages(routes: APIRouter, gateway: Gateway) -> None:
    catalogue, limits = gateway.service.catalogue, gateway.service.limits

    @routes.get("/languages")
    @routes.post("/languages")
    async def languages(request: Request) -> list[Language] | dict[str, Any]:
        """Return the languages and their targets; with `api-version`, in Microsoft's form."""
        if microsoft.is_asked(request):
            return microsoft.languages(request, catalogue)
        targets = {code: catalogue.targets_of(code) for code in catalogue.all}
        return [Language(code=code, name=language_name(code), targets=targets[code]) for code in targets]

    @routes.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what a page needs to know."""
        source, target = catalogue.sources[0], catalogue.targets_of(catalogue.sources[0])[0]
        return {
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "apiKeys": gateway.records.key_required,
            "keyRequired": gateway.records.key_required,
            "suggestions": False,
            "filesTranslation": gateway.documents is not None,
            "supportedFilesFormat": [] if gateway.documents is None else suffixes(),
            "fileLimit": limits.document_bytes,
            "glossaries": gateway.glossaries is not None,
            "alternativesLimit": limits.alternatives,
            "textsLimit": limits.texts,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
        }


def _translated(parameters: _TranslateFields, answers: list[Answer]) -> Translated:
    many = not isinstance(parameters.q, str)

    def shown(values: list[V], *, if_any: bool = False) -> Any:  # noqa: ANN401
        """Return the values of all texts, or of the only one; with `if_any`, None if all are empty."""
        return None if if_any and not any(values) else values if many else values[0]

    detected = [
        DetectedLanguage(confidence=round(100 * each.probability, 1), language=each.source)
        for each in answers
    ]
    has_glossary = parameters.glossary != ""  # one without terms, too
    return Translated.model_construct(
        text=shown([each.text for each in answers]),
        detected=shown(detected) if parameters.source == AUTO else None,
        alternatives=shown([list(each.alternatives) for each in answers])
        if parameters.alternatives
        else None,
        pivot=shown([each.pivot for each in answers], if_any=True),
        confidence=shown(list(map(_confidence_of, answers)), if_any=True) if parameters.confidence else None,
        terms=shown(list(map(_terms_of, answers))) if parameters.terms and has_glossary else None,
        truncated=shown([each.truncated for each in answers], if_any=True),
    )


def _terms_of(answer: Answer) -> list[GlossaryTerm]:
    return [
        GlossaryTerm(
            source=each.source,
            target=each.target,
            met=each.target is not None,
            spans=[TextSpan(start=start, end=end) for start, end in each.spans],
        )
        for each in answer.terms
    ]


def _confidence_of(answer: Answer) -> TextConfidence | None:
    """Return the confidence in a text; None if no sentence of it has one."""
    sentences = [
        SentenceConfidence(text=each.text, value=None, unsure=False, words=[])
        if each.confidence is None
        else SentenceConfidence(
            text=each.text,
            value=round(each.confidence.sentence, _DIGITS),
            unsure=each.confidence.sentence < UNSURE,
            words=[
                WordConfidence(text=word, value=round(value, _DIGITS))
                for word, value in zip(split_words(each.text), each.confidence.words, strict=True)
            ],
        )
        for each in answer.sentences
    ]
    known = [each.value for each in sentences if each.value is not None]
    return TextConfidence(value=min(known), sentences=sentences) if known else None
