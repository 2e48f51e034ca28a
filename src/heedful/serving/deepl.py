"""DeepL's dialect: /v1/translate, /v2/translate, /v2/languages, /v3/languages, /v2/usage."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticKnownError

from heedful import Glossary, Pair
from heedful.documents import TagRules, html_rules, primary_language, xml_rules
from heedful.serving.gateway import (
    Gateway,
    KeptParts,
    Names,
    NonEmptyText,
    Texts,
    get_and_post,
    read_fields,
    refusals,
    schema_of,
    schema_of_texts,
)
from heedful.serving.refusals import InvalidError
from heedful.serving.service import Recall, TranslationRequest
from heedful.spans import literal_rules
from heedful.text.languages import language_name

_NO_LIMIT = 1_000_000_000_000  # characters; how DeepL writes it
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SIMILAR = 75  # percent; DeepL's default
_MODEL = "quality_optimized"
_NO_TIME = "1970-01-01T00:00:00.000Z"  # when an adapter was made is not known
_IGNORED = ("context", "preserve_formatting", "enable_beta_languages")  # an answer names them


class DeepLError(BaseModel):
    """A request that was refused."""

    message: str


class DeepLTranslation(BaseModel):
    """The translation of one text."""

    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None


class DeepLTranslations(BaseModel):
    """The translations of all texts, in order, and the parameters that have changed nothing in them."""

    translations: list[DeepLTranslation]
    ignored_parameters: list[str] | None = None


class DeepLLanguage(BaseModel):
    """A language of /v2/languages."""

    language: str
    name: str
    supports_formality: bool | None = None


class DeepLStyle(BaseModel):
    """An adapter, as DeepL describes a list of rules of style."""

    style_id: str
    name: str
    language: str
    creation_time: str = _NO_TIME
    updated_time: str = _NO_TIME
    version: int = 1


class DeepLStyles(BaseModel):
    """All adapters that a client may name."""

    style_rules: list[DeepLStyle]


def _only(*values: object) -> AfterValidator:
    """Take these values, which change nothing; the refusal of others says that the parameter is unknown."""

    def check(value: object) -> object:
        if value not in values:
            raise PydanticKnownError("extra_forbidden")
        return value

    return AfterValidator(check)


_Names = Annotated[Names, Field(max_length=100)]
_NotSupported = SkipJsonSchema[Annotated[str | list[str], _only("", [])]]
_Formality = SkipJsonSchema[Annotated[str, _only("", "default", "prefer_more", "prefer_less")]]
_Model = Literal["", "quality_optimized", "prefer_quality_optimized", "latency_optimized"]


class SharedFields(BaseModel, extra="forbid"):
    """The parameters of texts and documents; what changes nothing, or is refused, is not in the schema.

    What is not here is refused by its name.
    """

    target_lang: NonEmptyText
    source_lang: str = ""
    formality: _Formality = "default"
    glossary_id: str = ""
    glossary_ids: Annotated[Names, Field(max_length=5)] = []
    style_id: str = ""
    keep: KeptParts = []
    translation_memory_id: str = ""
    translation_memory_threshold: Annotated[int, Field(ge=0, le=100)] = _SIMILAR
    enable_beta_languages: SkipJsonSchema[str | bool] = False
    show_billed_characters: SkipJsonSchema[str | bool] = True
    auth_key: SkipJsonSchema[str] = ""


class _Fields(SharedFields):
    """The parameters of texts."""

    text: Annotated[Texts, Field(min_length=1)]
    split_sentences: Annotated[Literal["", "0", "1", "nonewlines"], BeforeValidator(str)] = ""
    model_type: SkipJsonSchema[_Model] = ""
    custom_instructions: _NotSupported = ""
    context: SkipJsonSchema[str] = ""
    debug: SkipJsonSchema[str | bool] = False
    preserve_formatting: SkipJsonSchema[str | bool] = False
    tag_handling_version: SkipJsonSchema[Literal["", "v1", "v2"]] = ""
    outline_detection: bool = True
    tag_handling: Literal["", "html", "xml"] = ""
    splitting_tags: _Names = []
    non_splitting_tags: _Names = []
    ignore_tags: _Names = []


class _LanguageFields(BaseModel):
    type: Literal["source", "target"] = "source"


REFUSALS = refusals(
    DeepLError, {400: "Bad request", 403: "Authorization failed", 404: "Not found, or not supported"}
)


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["DeepL"], responses=REFUSALS)
    catalogue, limits = gateway.service.catalogue, gateway.service.limits
    schema = schema_of(
        _Fields,
        text=schema_of_texts(limits),
        target_lang={"enum": [code.upper() for code in catalogue.targets]},
        source_lang={"enum": [code.upper() for code in catalogue.sources]},
        split_sentences={"default": "1"},
    )

    @get_and_post(routes, "/v1/translate", schema)  # of older tools, with the same parameters
    @get_and_post(routes, "/v2/translate", schema)
    async def translate(request: Request) -> DeepLTranslations:
        """Translate texts."""
        client, parameters = await gateway.parameters(request, _Fields)
        texts = parameters.text
        if parameters.split_sentences == "nonewlines" and not parameters.tag_handling:
            texts = [_LINE_ENDS.sub(" ", text) for text in texts]
        rules = _rules(parameters)
        answers = await gateway.translate(
            request,
            client,
            TranslationRequest(
                texts=tuple(texts),
                source=parameters.source_lang or None,
                target=parameters.target_lang,
                rules=None if rules is None else lambda _: rules,
                split=parameters.split_sentences != "0",
                glossary=glossary_of(parameters, gateway, client),
                adapter=parameters.style_id,
                keep=literal_rules(parameters.keep),
                recall=await recall_of(parameters, gateway, client),
            ),
        )
        translations = [
            DeepLTranslation(
                detected_source_language=primary_language(answer.source).upper(),
                text=answer.text,
                billed_characters=len(text),
                model_type_used=_MODEL if parameters.model_type else None,
            )
            for text, answer in zip(parameters.text, answers, strict=True)
        ]
        ignored = [name for name in _IGNORED if getattr(parameters, name)]
        return DeepLTranslations(translations=translations, ignored_parameters=ignored or None)

    _add_languages(routes, gateway)
    return routes


def _add_languages(routes: APIRouter, gateway: Gateway) -> None:
    catalogue, limits = gateway.service.catalogue, gateway.service.limits
    kind = {"name": "type", "in": "query", "schema": {"enum": ["source", "target"], "default": "source"}}

    options: dict[str, Any] = {"response_model_exclude_none": True, "openapi_extra": {"parameters": [kind]}}

    @routes.get("/v2/languages", **options)
    @routes.post("/v2/languages", **options)
    async def languages(request: Request) -> list[DeepLLanguage]:
        """Return the languages to translate from (`type=source`, the default) or into (`type=target`)."""
        fields = await read_fields(request, limits, _LanguageFields)
        if _LanguageFields.model_validate(fields).type == "target":
            return [
                DeepLLanguage(language=code.upper(), name=language_name(code), supports_formality=False)
                for code in catalogue.targets
            ]
        return [
            DeepLLanguage(language=code.upper(), name=language_name(code))
            for code in dict.fromkeys(map(primary_language, catalogue.sources))
        ]

    @routes.get("/v3/languages")
    async def all_languages() -> list[dict[str, Any]]:
        """Return all languages, and whether texts are translated from and into each."""
        return [
            {
                "lang": code,
                "name": language_name(code),
                "usable_as_source": code in catalogue.sources,
                "usable_as_target": code in catalogue.targets,
                "features": {},
            }
            for code in catalogue.all
        ]

    @routes.get("/v3/style_rules")
    async def styles(request: Request) -> DeepLStyles:
        """Return the adapters of the server, by the target language of each; `style_id` chooses one."""
        await gateway.authorize(request, request.query_params, is_counted=False)
        return DeepLStyles(
            style_rules=[
                DeepLStyle(style_id=name, name=name, language=pair.rpartition("-")[2])
                for name, pairs in (await gateway.adapters(request)).items()
                for pair in pairs[:1]
            ]
        )

    @routes.get("/v2/usage")
    async def usage(request: Request) -> dict[str, int]:
        """Return how many characters the client has had translated since the server started."""
        client = await gateway.authorize(request, request.query_params)
        return {"character_count": await gateway.records.characters(client), "character_limit": _NO_LIMIT}


def glossary_of(parameters: SharedFields, gateway: Gateway, client: str) -> Callable[[Pair], Glossary] | None:
    """Return a function that gives the terms of a pair of languages; None without a glossary.

    Raises:
        InvalidError: the source language is missing, or both parameters are there.
        NoSuchGlossaryError: the client has no such glossary.
    """
    ids = [parameters.glossary_id] if parameters.glossary_id else parameters.glossary_ids
    if not ids:
        return None
    if parameters.glossary_id and parameters.glossary_ids:
        raise InvalidError("Use either glossary_id or glossary_ids, not both.")
    if not parameters.source_lang:
        raise InvalidError("Use of a glossary requires the source_lang parameter to be specified.")
    return gateway.stored_terms(client, ids)


async def recall_of(parameters: SharedFields, gateway: Gateway, client: str) -> Recall | None:
    """Return what looks texts up in the client's corrections and in the memory that a request names.

    Raises:
        NoSuchMemoryError: the client has no such memory.
    """
    named = [parameters.translation_memory_id] if parameters.translation_memory_id else []
    return await gateway.recall(client, named, parameters.translation_memory_threshold)


def _rules(parameters: _Fields) -> TagRules | None:
    if not parameters.tag_handling:
        return None
    names = {
        "splitting": parameters.splitting_tags,
        "not_splitting": parameters.non_splitting_tags,
        "ignored": parameters.ignore_tags,
    }
    if parameters.tag_handling == "html":
        return html_rules(**names)
    return xml_rules(**names, outline=parameters.outline_detection)
