"""OPUS-CAT's dialect, which its plug-ins for Trados, memoQ, Wordfast, OmegaT and browsers speak (port 8500).

The parameters are in the query string, in requests of both methods; a language pair is one text, as "en-de".
"""

from pathlib import PurePath
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import AliasChoices, BaseModel, Field

from heedful.serving.gateway import ITEMS, Gateway, NonEmptyText, read_fields
from heedful.serving.libretranslate import REFUSALS
from heedful.serving.refusals import InvalidError
from heedful.serving.service import TranslationRequest

_ROOTS = ("/MTRestService", "/MtRestService")  # the plug-ins differ; OPUS-CAT's server takes both
_STATUS = "Models for this language pair are available."


class _Login(BaseModel):
    userName: str = ""  # noqa: N815
    password: str = ""


class _Fields(BaseModel):
    """The parameters; `modelTag` may name an adapter."""

    tokenCode: str = ""  # noqa: N815
    input: str = ""
    srcLangCode: str = ""  # noqa: N815
    trgLangCode: str = ""  # noqa: N815
    modelTag: str = ""  # noqa: N815


class _PairFields(BaseModel):
    """A pair, by any of the names that OPUS-CAT's server and its plug-ins have for it."""

    source: Annotated[NonEmptyText, Field(validation_alias=AliasChoices("sourcecode", "srclangcode"))]
    target: Annotated[NonEmptyText, Field(validation_alias=AliasChoices("targetcode", "trglangcode"))]


def _pair_of(request: Request) -> tuple[str, str]:
    """Return the languages of a request; names differ in case only, as for ASP.NET."""
    query = {name.lower(): value for name, value in request.query_params.items()}
    source, _, target = query.get("languagepair", "").partition("-")
    pair = _PairFields.model_validate({"srclangcode": source, "trglangcode": target} | query)
    return pair.source, pair.target


class OpusCatTranslation(BaseModel):
    """The translation of a text."""

    translation: str


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["OPUS-CAT"], responses=REFUSALS)
    for root in _ROOTS:
        of_root = APIRouter(prefix=root, include_in_schema=root == _ROOTS[0])
        _add_models(of_root, gateway)
        _add_translations(of_root, gateway)
        routes.include_router(of_root)
    return routes


def _add_models(routes: APIRouter, gateway: Gateway) -> None:
    catalogue = gateway.service.catalogue

    @routes.get("/Login")
    async def login(request: Request) -> str | None:
        """Return the token for other requests: the password, if it is an API key; null if it is none."""
        password = _Login.model_validate(dict(request.query_params)).password
        if not gateway.records.key_required:
            return "0"
        return password if await gateway.records.find(password) else None

    @routes.get("/ListSupportedLanguagePairs")
    async def pairs() -> list[str]:
        """Return all pairs of languages."""
        targets_of = {source: catalogue.targets_of(source) for source in catalogue.sources}
        return [f"{source}-{target}" for source, targets in targets_of.items() for target in targets]

    @routes.get("/GetLanguagePairModelTags")
    async def tags(request: Request) -> list[str]:
        """Return the names of the models of a pair, and of their adapters for all clients."""
        source, target = catalogue.languages(*_pair_of(request))
        assert source is not None
        route = catalogue.required_route(source, target)
        models = [PurePath(gateway.service.model_of(leg).name).name for leg in route.legs]
        if gateway.records.key_required:  # names of adapters are those of clients
            return models
        pairs = set(map(str, route.legs))
        return models + [name for name, own in (await gateway.adapters(request)).items() if pairs & {*own}]

    @routes.get("/CheckModelStatus")
    async def status(request: Request) -> str:
        """Say that there is a model of a pair."""
        catalogue.languages(*_pair_of(request))
        return _STATUS


def _add_translations(routes: APIRouter, gateway: Gateway) -> None:
    async def translated(request: Request, texts: list[str], parameters: _Fields) -> list[str]:
        client = await gateway.authorize(request, {"api_key": parameters.tokenCode})
        adapters = await gateway.adapters(request) if parameters.modelTag else {}
        asked = TranslationRequest(
            texts=tuple(texts),
            source=parameters.srcLangCode,
            target=parameters.trgLangCode,
            adapter=parameters.modelTag if parameters.modelTag in adapters else "",
        )
        return [answer.text for answer in await gateway.translate(request, client, asked)]

    async def one(request: Request) -> str:
        fields = await read_fields(request, gateway.service.limits, _Fields)
        parameters = _Fields.model_validate(fields)
        [text] = await translated(request, [parameters.input], parameters)
        return text

    @routes.get("/Translate")
    async def translate(request: Request) -> str:
        """Return the translation of a text, as a JSON text."""
        return await one(request)

    @routes.get("/TranslateJson")
    @routes.post("/TranslatePost")
    async def translate_json(request: Request) -> OpusCatTranslation:
        """Return the translation of a text, in an object."""
        return OpusCatTranslation(translation=await one(request))

    @routes.get("/TranslateStream", response_class=PlainTextResponse)
    async def translate_stream(request: Request) -> str:
        """Return the translation of a text, as it is."""
        return await one(request)

    @routes.post("/PreOrderBatch")
    async def pre_order(request: Request) -> Response:
        """Translate a list of texts, which are in the cache when they are asked for one by one."""
        fields = await read_fields(request, gateway.service.limits, _Fields)
        texts = fields.pop(ITEMS, None)
        if not texts or not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidError("Invalid request: the body must be a list of texts")
        parameters = _Fields.model_validate(dict(request.query_params))
        most = gateway.service.limits.texts
        for start in range(0, len(texts), most):
            await translated(request, texts[start : start + most], parameters)
        return Response()
