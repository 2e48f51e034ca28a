"""Microsoft Translator's dialect: /translate, /detect and /languages in its versions 3.0 and 2026-06-06.

It shares its paths with LibreTranslate's. In version 3.0, the body is a list of texts, and the query string
has the languages; in the later one, the body is an object, and each text has languages of its own.
"""

import html
import re
from collections.abc import Container, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from heedful.documents.markup import TagRules, html_rules
from heedful.serving.gateway import ITEMS, Fields, Gateway, NonEmptyText, validated
from heedful.serving.languages import Catalogue
from heedful.serving.refusals import InvalidError, TextTooLongError, UnauthorizedError
from heedful.serving.service import Answer, TranslationRequest
from heedful.text.languages import is_right_to_left, language_name

_VERSION = "api-version"
_DIALECT = "heedful.microsoft"  # in the scope of a request that is in this dialect
_SCOPES = ("translation", "transliteration", "dictionary")
_MOST_TARGETS = 10  # of a text
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


class _Query(BaseModel, extra="forbid"):
    """The parameters of version 3.0; those that are not here are refused by name."""

    version: Annotated[str, Field(validation_alias=_VERSION)] = ""
    source: Annotated[str, Field(validation_alias=AliasChoices("from", "source"))] = ""
    to: list[str] = []
    text_type: Annotated[_TextType, Field(validation_alias="textType")] = ""
    category: Literal["", "general", "generalnn"] = ""
    profanity: Annotated[_NoAction, Field(validation_alias="profanityAction")] = ""
    profanity_marker: Annotated[str, Field(validation_alias="profanityMarker")] = ""
    alignment: Annotated[_No, Field(validation_alias="includeAlignment")] = ""
    lengths: Annotated[_No, Field(validation_alias="includeSentenceLength")] = ""
    suggested: Annotated[str, Field(validation_alias="suggestedFrom")] = ""
    fallback: Annotated[str, Field(validation_alias="allowFallback")] = ""
    key: Annotated[str, Field(validation_alias="subscription-key")] = ""


class _Target(BaseModel, extra="forbid"):
    language: NonEmptyText
    profanity: Annotated[_NoAction | None, Field(validation_alias="profanityAction")] = None
    profanity_marker: Annotated[str | None, Field(validation_alias="profanityMarker")] = None
    fallback: Annotated[bool | None, Field(validation_alias="allowFallback")] = None
    tone: Literal["neutral"] | None = None
    gender: Literal["neutral"] | None = None


class _Input(BaseModel, extra="forbid"):
    text: str
    language: str | None = None
    text_type: Annotated[_TextType | None, Field(validation_alias="textType")] = None
    targets: Annotated[list[_Target], Field(min_length=1, max_length=_MOST_TARGETS)]


class _Inputs(BaseModel, extra="forbid"):
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
    client = await gateway.authorize(request, request.query_params.get("subscription-key", ""))
    if ITEMS in fields:
        inputs = _inputs_of_list(request, gateway, fields[ITEMS])
        return await _translated(request, gateway, client, inputs, "to")
    inputs = validated(_Inputs, {name: value for name, value in fields.items() if name != _VERSION}).inputs
    return MicrosoftAnswer(value=await _translated(request, gateway, client, inputs, "language"))


def _inputs_of_list(request: Request, gateway: Gateway, items: list[Any]) -> list[_Input]:
    fields: dict[str, Any] = dict(request.query_params)
    target = fields.pop("target", "")
    listed = [each for value in request.query_params.getlist("to") for each in value.split(",") if each]
    query = validated(_Query, fields | {"to": listed or [target] * bool(target)})
    if not items:
        raise InvalidError("Invalid request: the list of texts is empty")
    source, targets = query.source, query.to
    if not (source or targets) and len(pairs := gateway.service.catalogue.pairs) == 1:
        (only,) = pairs
        source, targets = only.src, [only.tgt]
    if not targets:
        raise InvalidError("Invalid request: missing to parameter")
    if len(targets) > _MOST_TARGETS:
        raise InvalidError(f"Invalid request: to parameter: {len(targets)} languages, above {_MOST_TARGETS}")
    shared = {
        "language": source,
        "textType": query.text_type,
        "targets": [{"language": each} for each in targets],
    }
    return [validated(_Input, {**shared, "text": _text(item)}) for item in items]


def _text(item: object) -> str:
    if not isinstance(item, dict):
        raise InvalidError('Invalid request: each text must be an object, as {"text": "..."}')
    return validated(Item, item).text


async def _translated(
    request: Request, gateway: Gateway, client: str, inputs: Sequence[_Input], name: str
) -> list[MicrosoftTranslations]:
    """Return the translations of each text; texts with the same languages go to the service together."""
    groups: dict[tuple[str, str, bool], dict[int, None]] = {}
    for number, each in enumerate(inputs):
        for target in each.targets:
            group = (each.language or "", target.language, each.text_type == "html")
            groups.setdefault(group, {})[number] = None
    answers: dict[tuple[int, str], Answer] = {}
    for (source, language, is_html), numbers in groups.items():
        prepared = tuple(_prepared(inputs[number].text, is_html=is_html) for number in numbers)
        asked = TranslationRequest(
            texts=prepared, source=source or None, target=language, rules=partial(_rules, is_html=is_html)
        )
        found = await gateway.translate(request, client, asked)
        answers |= {(number, language): answer for number, answer in zip(numbers, found, strict=True)}
    return [
        _answer(each, [answers[number, target.language] for target in each.targets], name)
        for number, each in enumerate(inputs)
    ]


def _answer(asked: _Input, answers: Sequence[Answer], name: str) -> MicrosoftTranslations:
    detected = MicrosoftDetected(language=answers[0].source, score=round(answers[0].probability, 3))
    return MicrosoftTranslations.model_construct(
        translations=[
            MicrosoftTranslation(
                text=_without_marks(answer.text, is_html=asked.text_type == "html")
                if _DICTIONARY.search(asked.text)
                else answer.text,
                **{name: target.language},
            )
            for target, answer in zip(asked.targets, answers, strict=True)
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


async def detect(request: Request, gateway: Gateway, fields: Fields) -> list[MicrosoftDetected]:
    """Return the language of each text.

    Raises:
        RefusedError: see `Gateway.authorize`, or too many characters.
    """
    await gateway.authorize(request, request.query_params.get("subscription-key", ""))
    if not fields.get(ITEMS):
        raise InvalidError("Invalid request: the body must be a list of texts")
    texts = [_text(item) for item in fields[ITEMS]]
    limits = gateway.service.limits
    if (characters := sum(map(len, texts))) > limits.characters:
        raise TextTooLongError(f"request ({characters}) exceeds text limit ({limits.characters})")
    best = [gateway.service.ranked(text)[0] for text in texts]
    return [MicrosoftDetected(language=each.language, score=round(each.probability, 3)) for each in best]


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
    chosen = [each for each in _SCOPES if each in scopes or scopes == [""]]
    return {each: known if each == "translation" else {} for each in chosen}
