"""Microsoft Translator's dialect: /translate, /detect and /languages in its versions 3.0 and 2026-06-06.

It shares its paths with LibreTranslate's. In version 3.0, the body is a list of texts, and the query string
has the languages; in the later one, the body is an object, and each text has languages of its own.
"""

import html
import re
from collections import defaultdict
from collections.abc import Container, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field
from pydantic.alias_generators import to_camel

from heedful.documents import TagRules, html_rules
from heedful.serving.gateway import ITEMS, Fields, Gateway, Names, NonEmptyText, key_of
from heedful.serving.languages import Catalogue
from heedful.serving.refusals import InvalidError, UnauthorizedError
from heedful.serving.service import Answer, TranslationRequest
from heedful.text.languages import is_right_to_left, language_name

_VERSION = "api-version"
_DIALECT = "heedful.microsoft"  # in the scope of a request that is in this dialect
_SCOPES = ("translation", "transliteration", "dictionary")
_NO_KEY = "none"  # the token of a server that needs no keys
_MOST_TARGETS = 10  # of a text
_GENERAL = ("general", "generalnn")  # categories that are no adapter
_DICTIONARY = re.compile(
    r'<mstrans:dictionary\s+translation="([^"<>]*)"\s*>(?:(?!<mstrans:).)*?</mstrans:dictionary>', re.DOTALL
)
_KEPT = '<span translate="no" class="mstrans">{}</span>'
_KEPT_PATTERN = re.compile(_KEPT.format("([^<>]*)"))


class MicrosoftTranslation(BaseModel):
    """A text in one of the languages that were asked for; `language` names it in the later version."""

    text: str
    to: str | None = None
    language: str | None = None


class MicrosoftDetected(BaseModel):
    """The language of a text, and how sure that is, from 0 to 1."""

    language: str
    score: float


class MicrosoftTranslations(BaseModel):
    """The translations of one text."""

    translations: list[MicrosoftTranslation]
    detected: Annotated[MicrosoftDetected | None, Field(serialization_alias="detectedLanguage")] = None


class MicrosoftAnswer(BaseModel):
    """The translations of all texts, in the later version."""

    value: list[MicrosoftTranslations]


_TextType = Annotated[
    Literal["", "plain", "html"],
    BeforeValidator(lambda text: text.lower() if isinstance(text, str) else text),
]
_NoAction = Literal["", "NoAction"]  # profanities stay as they are
_No = Literal[False, "false", "False", ""]


class Item(BaseModel):
    """A text."""

    text: Annotated[str, Field(validation_alias=AliasChoices("text", "Text"))]


class _Items(BaseModel):
    """The body of version 3.0."""

    texts: Annotated[list[Item], Field(min_length=1)]


class _Strict(BaseModel, extra="forbid", alias_generator=to_camel):
    """Parameters in camel case, as textType; one that is not here is refused by name."""


class _Query(_Strict):
    """The parameters of version 3.0."""

    version: Annotated[str, Field(validation_alias=_VERSION)] = ""
    source: Annotated[str, Field(validation_alias=AliasChoices("from", "source"))] = ""
    to: Annotated[Names, Field(max_length=_MOST_TARGETS)] = []
    target: str = ""
    text_type: _TextType = ""
    category: str = ""
    profanity_action: _NoAction = ""
    profanity_marker: str = ""
    include_alignment: _No = ""
    include_sentence_length: _No = ""
    suggested_from: str = ""
    allow_fallback: str = ""
    key: Annotated[str, Field(validation_alias="subscription-key")] = ""


class _Target(_Strict):
    language: NonEmptyText
    profanity_action: _NoAction | None = None
    profanity_marker: str | None = None
    allow_fallback: bool | None = None
    tone: Literal["neutral"] | None = None
    gender: Literal["neutral"] | None = None


class _Input(_Strict):
    text: str
    language: str | None = None
    text_type: _TextType | None = None
    targets: Annotated[list[_Target], Field(min_length=1, max_length=_MOST_TARGETS)]

    @property
    def is_html(self) -> bool:
        """Whether the text is HTML."""
        return self.text_type == "html"


class _Inputs(_Strict):
    inputs: Annotated[list[_Input], Field(min_length=1)]


def is_asked(request: Request, fields: Container[str] = ()) -> bool:
    """Return whether a request is in this dialect: it has a version, or its body is a list or has inputs."""
    if ITEMS in fields or "inputs" in fields:
        request.scope[_DIALECT] = True
    return bool(request.scope.get(_DIALECT)) or _VERSION in request.query_params


def error(status: int, message: str, request: Request) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of a refusal as this dialect has them; a wrong key is 401 in it."""
    status = 401 if status == UnauthorizedError.status else status
    code = 1000 * status
    is_first = request.query_params.get(_VERSION, "3.0") == "3.0"
    return status, {"error": {"code": code if is_first else str(code), "message": message}}


async def translate(
    request: Request, gateway: Gateway, fields: Fields
) -> MicrosoftAnswer | list[MicrosoftTranslations]:
    """Return the translations of all texts into all languages that each is asked for.

    In version 3.0, a client may leave out both languages if the server has one pair.

    Raises:
        RefusedError: see `Gateway.authorize` and `TranslationService.translate`; or a parameter is not
            supported.
    """
    client = await gateway.authorize(request, fields)
    if ITEMS in fields:
        return await _translated(request, gateway, client, _inputs_of_list(request, gateway, fields), "to")
    known = {name: value for name, value in fields.items() if name != _VERSION}
    if isinstance(given := known.get("inputs"), list):
        gateway.service.check_size(len(given), 0)
    inputs = _Inputs.model_validate(known).inputs
    return MicrosoftAnswer(value=await _translated(request, gateway, client, inputs, "language"))


def _inputs_of_list(request: Request, gateway: Gateway, fields: Fields) -> list[_Input]:
    parameters = request.query_params
    targets = ",".join(parameters.getlist("to")) or parameters.get("target", "")
    query = _Query.model_validate({**parameters, "to": targets})
    texts = _texts(gateway, fields)
    source, languages = query.source, query.to
    if not (source or languages) and len(gateway.service.catalogue.pairs) == 1:
        [only] = gateway.service.catalogue.pairs
        source, languages = only.src, [only.tgt]
    if not languages:
        raise InvalidError("Invalid request: missing to parameter")
    shared = {
        "language": source,
        "textType": query.text_type,
        "targets": [{"language": language} for language in languages],
    }
    return [_Input.model_validate({**shared, "text": item.text}) for item in texts]


async def _translated(
    request: Request, gateway: Gateway, client: str, inputs: Sequence[_Input], name: str
) -> list[MicrosoftTranslations]:
    """Return the translations of each text; texts with the same languages go to the service together.

    The limit of characters is for the whole request: a text counts once for each of its targets.
    """
    characters = sum(len(item.text) * len(item.targets) for item in inputs)
    gateway.service.check_size(len(inputs), characters)
    languages_of = gateway.service.catalogue.languages
    groups: dict[tuple[str | None, str, bool], dict[int, str]] = defaultdict(dict)
    keys = [
        [(*languages_of(item.language or None, target.language), item.is_html) for target in item.targets]
        for item in inputs
    ]
    for number, item in enumerate(inputs):
        text = _prepared(item.text, is_html=item.is_html)
        for key in keys[number]:
            groups[key][number] = text
    answers: dict[tuple[str | None, str, bool], dict[int, Answer]] = {}
    for key, texts in groups.items():
        source, language, is_html = key
        asked = TranslationRequest(
            texts=tuple(texts.values()),
            source=source,
            target=language,
            rules=partial(_rules, is_html=is_html),
            adapter=_adapter(request),
        )
        found = await gateway.translate(request, client, asked)
        answers[key] = dict(zip(texts, found, strict=True))
    return [
        _answer(item, [answers[key][number] for key in keys[number]], name)
        for number, item in enumerate(inputs)
    ]


def _adapter(request: Request) -> str:
    """Return the adapter that version 3.0 names as `category`, where Microsoft has a client's own models."""
    category = request.query_params.get("category", "")
    return "" if category in _GENERAL else category


def _answer(asked: _Input, answers: Sequence[Answer], name: str) -> MicrosoftTranslations:
    texts = [answer.text for answer in answers]
    if _DICTIONARY.search(asked.text):
        texts = [_without_marks(text, is_html=asked.is_html) for text in texts]
    detected = MicrosoftDetected(language=answers[0].source, score=round(answers[0].probability, 3))
    return MicrosoftTranslations.model_construct(
        translations=[
            MicrosoftTranslation(text=text, **{name: target.language})
            for text, target in zip(texts, asked.targets, strict=True)
        ],
        detected=None if asked.language else detected,
    )


def _rules(text: str, *, is_html: bool) -> TagRules | None:
    return html_rules() if is_html or _KEPT_PATTERN.search(text) else None


def _prepared(text: str, *, is_html: bool) -> str:
    """Return a text with the translations of its dictionary tags, in elements that stay as they are."""
    parts = _DICTIONARY.split(text)  # texts, and between them translations
    if len(parts) == 1:
        return text
    for number, part in enumerate(parts):
        if number % 2:
            parts[number] = _KEPT.format(part)
        elif not is_html:
            parts[number] = html.escape(part, quote=False)
    return "".join(parts)


def _without_marks(text: str, *, is_html: bool) -> str:
    text = _KEPT_PATTERN.sub(r"\1", text)
    return text if is_html else html.unescape(text)


def _texts(gateway: Gateway, fields: Fields) -> list[Item]:
    """Return the texts of a body that is a list; too many are refused before each is looked at."""
    items = fields.get(ITEMS)
    if isinstance(items, list):
        gateway.service.check_size(len(items), 0)
    return _Items.model_validate({"texts": items}).texts


def router(gateway: Gateway) -> APIRouter:
    """Return the route of tokens; the others are those of LibreTranslate's dialect."""
    routes = APIRouter(tags=["Microsoft"])

    @routes.post("/sts/v1.0/issueToken", response_class=PlainTextResponse)
    async def token(request: Request) -> str:
        """Return a token for the header Authorization (Bearer): here it is the key, which stays valid."""
        await gateway.authorize(request, request.query_params)
        return key_of(request, request.query_params) or _NO_KEY

    return routes


async def detect(request: Request, gateway: Gateway, fields: Fields) -> list[MicrosoftDetected]:
    """Return the language of each text.

    Raises:
        RefusedError: see `Gateway.authorize` and `TranslationService.ranked`.
    """
    await gateway.authorize(request, fields)
    texts = _texts(gateway, fields)
    ranked = await gateway.service.ranked([item.text for item in texts])
    return [
        MicrosoftDetected(language=best.language, score=round(best.probability, 3)) for best, *_ in ranked
    ]


def languages(request: Request, catalogue: Catalogue) -> dict[str, dict[str, Any]]:
    """Return the languages by the kinds of work that are asked for (`scope`); the service only translates."""
    scopes = request.query_params.get("scope", "").split(",")
    known: dict[str, Any] = {
        code: {
            "name": language_name(code),
            "nativeName": language_name(code, native=True),
            "dir": "rtl" if is_right_to_left(code) else "ltr",
            "models": [],
        }
        for code in catalogue.all
    }
    chosen = [scope for scope in _SCOPES if scope in scopes or scopes == [""]]
    return {scope: known if scope == "translation" else {} for scope in chosen}
