"""LibreTranslate's dialect: /translate, /detect, /languages, /frontend/settings."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from heedful import Glossary, InputError, Pair
from heedful.documents import html_rules, suffixes
from heedful.serving import microsoft
from heedful.serving.gateway import (
    AUTO,
    Gateway,
    KeptParts,
    NonEmptyText,
    described_body,
    get_and_post,
    read_fields,
    refusals,
    schema_of,
    schema_of_texts,
)
from heedful.serving.microsoft import MicrosoftAnswer, MicrosoftDetected, MicrosoftTranslations
from heedful.serving.refusals import InvalidError
from heedful.serving.service import Answer, TranslationRequest
from heedful.spans import literal_rules
from heedful.text.languages import language_name


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
    improbable: bool | None = None
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


class ServedAdapter(BaseModel):
    """An adapter, and the pairs of languages that it changes, as `en-de`."""

    name: str
    pairs: list[str]


def _or(default: object) -> BeforeValidator:
    """Take the default value in place of an empty one."""
    return BeforeValidator(lambda value: value or default)


class _TranslateFields(BaseModel):
    q: NonEmptyText | Annotated[list[str], Field(min_length=1)]
    source: NonEmptyText
    target: NonEmptyText
    format: Annotated[Literal["text", "html"], _or("text")] = "text"
    alternatives: Annotated[int, _or(0)] = 0
    confidence: Annotated[bool, _or(0)] = False
    terms: Annotated[bool, _or(0)] = False
    glossary: SkipJsonSchema[str | dict[NonEmptyText, NonEmptyText | list[NonEmptyText]]] = ""  # JSON only
    adapter: str = ""
    keep: KeptParts = []
    memory: str = ""
    memory_threshold: Annotated[float, Field(ge=0, le=100)] = 100
    prefix: str = ""
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
        return gateway.stored_terms(client, [parameters.glossary])
    try:
        glossary = Glossary.of(parameters.glossary)
        for entry in glossary.entries:
            if len(entry.targets) > _MOST_FORMS:
                raise InputError(f"{entry.source} has {len(entry.targets):,} forms, above {_MOST_FORMS}")
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
        client = await gateway.authorize(request, fields)
        parameters = _TranslateFields.model_validate(fields)
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
                adapter=parameters.adapter,
                keep=literal_rules(parameters.keep),
                recall=await gateway.recall(
                    client, [parameters.memory] if parameters.memory else [], parameters.memory_threshold
                ),
                prefix=parameters.prefix,
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
        await gateway.authorize(request, fields)
        [guesses] = await gateway.service.ranked([_DetectFields.model_validate(fields).q])
        return [_detected(guess.language, guess.probability) for guess in guesses]

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

    @routes.get("/adapters")
    async def adapters(request: Request) -> list[ServedAdapter]:
        """Return the adapters that the client may name, and the pairs of languages that each changes."""
        await gateway.authorize(request, request.query_params, is_counted=False)
        return [
            ServedAdapter(name=name, pairs=pairs) for name, pairs in (await gateway.adapters(request)).items()
        ]

    @routes.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what a page needs to know."""
        source, target = catalogue.sources[0], catalogue.targets_of(catalogue.sources[0])[0]
        return {
            "charLimit": limits.characters,
            "frontendTimeout": 500,
            "apiKeys": gateway.records.key_required,
            "keyRequired": gateway.records.key_required,
            "suggestions": gateway.memories is not None,
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


def _detected(language: str, probability: float) -> DetectedLanguage:
    return DetectedLanguage(confidence=round(100 * probability, 1), language=language)


def _translated(parameters: _TranslateFields, answers: list[Answer]) -> Translated:
    columns: dict[str, list[Any]] = {"text": [answer.text for answer in answers]}
    if parameters.source == AUTO:
        columns["detected"] = [_detected(answer.source, answer.probability) for answer in answers]
    if parameters.alternatives:
        columns["alternatives"] = [list(answer.alternatives) for answer in answers]
    if parameters.terms and parameters.glossary != "":  # a glossary without terms, too
        columns["terms"] = [_terms_of(answer) for answer in answers]
    unless_empty: dict[str, list[Any]] = {
        "pivot": [answer.pivot for answer in answers],
        "confidence": [_confidence_of(answer) for answer in answers] if parameters.confidence else [],
        "truncated": [answer.truncated for answer in answers],
    }
    columns |= {name: values for name, values in unless_empty.items() if any(values)}
    many = isinstance(parameters.q, list)
    shown: dict[str, Any] = {name: values if many else values[0] for name, values in columns.items()}
    return Translated.model_construct(**shown)


def _terms_of(answer: Answer) -> list[GlossaryTerm]:
    return [
        GlossaryTerm(
            source=term.source,
            target=term.target,
            met=term.target is not None,
            improbable=term.is_improbable or bool(term.replaces) or None,
            spans=[TextSpan(start=start, end=end) for start, end in term.spans],
        )
        for term in answer.terms
    ]


def _confidence_of(answer: Answer) -> TextConfidence | None:
    """Return the confidence in a text; None if no sentence of it has one."""
    sentences = []
    for sentence in answer.sentences:
        shown = SentenceConfidence(text=sentence.text, value=None, unsure=False, words=[])
        if sentence.confidence is not None:
            shown.value = round(sentence.confidence.sentence, _DIGITS)
            shown.unsure = sentence.confidence.is_unsure
            shown.words = [
                WordConfidence(text=word, value=round(value, _DIGITS))
                for word, value in sentence.confidence.by_word(sentence.text)
            ]
        sentences.append(shown)
    known = [shown.value for shown in sentences if shown.value is not None]
    return TextConfidence(value=min(known), sentences=sentences) if known else None
