"""The requests of each dialect in OpenAPI's form: with the languages and limits of this server."""

from typing import Any

from heedful.serving.catalogue import Catalogue
from heedful.serving.http.fields import AUTO
from heedful.serving.limits import Limits

Schema = dict[str, Any]
_FORMS = ("application/json", "application/x-www-form-urlencoded")


def texts(limits: Limits) -> Schema:
    """Return the schema of one text, or of a list of them."""
    return {
        "oneOf": [
            {"type": "string", "minLength": 1, "maxLength": limits.characters},
            {
                "type": "array",
                "items": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": limits.characters // limits.texts,
                },
                "minItems": 1,
                "maxItems": limits.texts,
            },
        ]
    }


def libretranslate(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of LibreTranslate's POST /translate."""
    return _object(
        {
            "q": texts(limits),
            "source": {"type": "string", "enum": [AUTO, *catalogue.sources]},
            "target": {"type": "string", "enum": list(catalogue.targets)},
            "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
            "alternatives": {
                "type": "integer",
                "minimum": 0,
                "maximum": limits.alternatives,
                "default": 0,
            },
            "api_key": {"type": "string"},
        },
        required=["q", "source", "target"],
    )


def microsoft(limits: Limits) -> Schema:
    """Return the schema of Microsoft's POST /translate."""
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters // limits.texts}
    item = _object({"text": text}, required=["text"])
    return {"type": "array", "items": item, "minItems": 1, "maxItems": limits.texts}


def detect(limits: Limits) -> Schema:
    """Return the schema of POST /detect."""
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters}
    return _object({"q": text, "api_key": {"type": "string"}}, required=["q"])


def explain(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of POST /explain."""
    return _object(
        {
            "q": {"type": "string", "minLength": 1, "maxLength": limits.characters},
            "source": {"type": "string", "enum": [AUTO, *catalogue.sources]},
            "target": {"type": "string", "enum": list(catalogue.targets)},
            "attention": {"type": "string", "enum": ["cross", "encoder", "decoder"]},
            "layer": {"type": "integer", "minimum": 1},
            "api_key": {"type": "string"},
        },
        required=["q", "source", "target"],
    )


def deepl(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of DeepL's POST /v2/translate."""
    names = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
    return _object(
        {
            "text": texts(limits),
            "target_lang": {"type": "string", "enum": [code.upper() for code in catalogue.targets]},
            "source_lang": {"type": "string", "enum": [code.upper() for code in catalogue.sources]},
            "split_sentences": {"type": "string", "enum": ["0", "1", "nonewlines"], "default": "1"},
            "tag_handling": {"type": "string", "enum": ["html", "xml"]},
            "splitting_tags": names,
            "non_splitting_tags": names,
            "ignore_tags": names,
        },
        required=["text", "target_lang"],
    )


def body(schema: Schema, *others: Schema) -> Schema:
    """Return OpenAPI's description of a body that is an object, as JSON or as a form, or others as JSON."""
    as_json = {"oneOf": [schema, *others]} if others else schema
    content = {_FORMS[0]: {"schema": as_json}, _FORMS[1]: {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def query(schema: Schema) -> Schema:
    """Return OpenAPI's description of the same parameters in a query string."""
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": name in schema["required"],
            "schema": value["oneOf"][0] if "oneOf" in value else value,
        }
        for name, value in schema["properties"].items()
        if value.get("type") != "array"
    ]
    return {"parameters": parameters}


def _object(properties: Schema, *, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required}
