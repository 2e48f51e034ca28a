"""Microsoft's dialect, as small as pymarian has it: a JSON array of texts to POST /translate."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import AliasChoices, BaseModel, Field

from heedful.serving.http.answering import Gateway
from heedful.serving.http.fields import validated
from heedful.serving.markup.documents import html_rules
from heedful.serving.refusals import InvalidError
from heedful.serving.service import Answer, TranslationRequest


class Translation(BaseModel):
    """A text in one of the languages that were asked for."""

    text: str
    to: str


class Detected(BaseModel):
    """The language of a text, and how sure that is, from 0 to 1."""

    language: str
    score: float


class Translations(BaseModel):
    """The translations of one text."""

    translations: list[Translation]
    detected: Annotated[Detected | None, Field(serialization_alias="detectedLanguage")] = None


class _Item(BaseModel):
    text: Annotated[str, Field(validation_alias=AliasChoices("text", "Text"))]


async def translate(request: Request, gateway: Gateway, items: list[Any]) -> list[Translations]:
    """Return the translations of a list of `{"text": ...}`.

    The query string says the languages, `from` and `to`. Without both, texts are translated as the only pair
    says where there is one; else the language of each is identified, and `to` must be there.
    """
    client = gateway.authorize(request, request.query_params.get("subscription-key", ""))
    if not items:
        raise InvalidError("Invalid request: the list of texts is empty")
    texts = [_text(item) for item in items]
    source = request.query_params.get("from") or request.query_params.get("source")
    targets = [each for value in request.query_params.getlist("to") for each in value.split(",") if each]
    targets = targets[:10] or [request.query_params.get("target", "")]
    if not (source or targets[0]) and len(pairs := gateway.service.catalogue.pairs) == 1:
        (only,) = pairs
        source, targets = only.src, [only.tgt]
    if not targets[0]:
        raise InvalidError("Invalid request: missing to parameter")
    rules = html_rules() if request.query_params.get("textType") == "html" else None
    of_targets: list[list[Answer]] = []
    for target in targets:
        asked = TranslationRequest(texts=tuple(texts), source=source, target=target, rules=rules)
        of_targets.append(await gateway.translate(request, client, asked))
    return [
        Translations(
            translations=[
                Translation(text=answer.text, to=target)
                for target, answer in zip(targets, answers, strict=True)
            ],
            detected=None
            if source
            else Detected(language=answers[0].source, score=round(answers[0].probability, 3)),
        )
        for answers in zip(*of_targets, strict=True)
    ]


def _text(item: object) -> str:
    if not isinstance(item, dict):
        raise InvalidError('Invalid request: each text must be an object, as {"text": "..."}')
    return validated(_Item, item).text
