"""A group of settings: the types of their values, how they are checked, and what is said of a wrong one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from heedful.errors import ConfigError, suggestion
from heedful.settings.parsing import as_json, shown
from heedful.settings.words import WORDS

Positive = Annotated[int, Field(gt=0, lt=2**63)]
Depth = Annotated[int, Field(gt=0, le=1000)]
Width = Annotated[int, Field(gt=0, le=2**20)]  # products of two are still valid sizes of a matrix
Heads = Annotated[int, Field(gt=0, le=2**16)]
VocabSize = Annotated[int, Field(ge=0, le=2**24)]  # ids up to there are exact in float32
NumPositions = Annotated[int, Field(gt=0, le=2**24)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]
# Factors of weights and gradients: more than any use needs, and their products are valid in float32.
PositiveFactor = Annotated[float, Field(gt=0.0, le=1e6)]
NonNegativeFactor = Annotated[float, Field(ge=0.0, le=1e6)]
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # which no name of a file and no string of TOML has
AUTO_IS_ZERO = BeforeValidator(lambda value: 0 if value == "auto" else value)


class Section(BaseModel):
    """A frozen group of settings; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    if not TYPE_CHECKING:  # a type checker finds the keys of each section in its fields

        def __init__(self, **settings: Any) -> None:  # noqa: ANN401
            """Check the settings, and take the defaults of all others.

            Raises:
                ConfigError: a wrong key, the first one, with a suggestion if one is close.
            """
            try:
                super().__init__(**settings)
            except ValidationError as error:
                raise ConfigError(_first_mistake(type(self), error)) from None

        # A section inside another is validated with it, so that the message has the whole key.
        __init__.__pydantic_base_init__ = True

    def _rules(self) -> Iterator[tuple[object, str]]:
        """Yield (is_broken, message) for each rule between settings."""
        return iter(())

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for is_broken, message in self._rules():
            if is_broken:
                raise ValueError(message)
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse to change a value.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{name}: settings cannot be changed; replace({name}=...) returns a changed copy")

    @field_validator("*", mode="before")
    @classmethod
    def _as_toml_means_it(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401
        """Convert whole numbers to floats, `false` to None, lists and "a,b" to tuples."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        accepts = str(annotation)
        match value:
            case False if type(None) in get_args(annotation):
                return None
            case list() if "tuple" in accepts:
                return tuple(value)
            case str() if _NO_TEXT.search(value):
                problem = "is not UTF-8; rename the file, or check the encoding"
                raise PydanticCustomError("text", "has a NUL character" if "\0" in value else problem)
            case str() if accepts.startswith(("tuple[str", "tuple[typing.Annotated[str")):
                return tuple(filter(None, map(str.strip, value.split(","))))
            case int() if "float" in accepts and not isinstance(value, bool):
                return float(value) if abs(value) < 2**63 else value
        return value

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return a validated copy with some values changed; the others count as set only if they were.

        Raises:
            ConfigError: a wrong key or value, as in a new section.
        """
        return type(self)(**self.model_dump(exclude_unset=True) | changes)


def _first_mistake(kind: type[Section], error: ValidationError) -> str:
    first = error.errors()[0]
    *sections, name = map(str, _fields_in(kind, first["loc"])) if first["loc"] else ("",)
    key = ".".join([*sections, name])
    if first["type"] == "extra_forbidden":
        return f"unknown key {shown(key)}{_meaning(name, kind, sections)}"
    message = _in_words_of_toml(first["type"], sections, name) or first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        return message
    message = message[0].lower() + message[1:]
    if first["type"] == "literal_error" and (last := error.errors()[-1])["type"] == "plugin":
        message += f", or a part of a plugin, {last['ctx']['form']}"
    if isinstance(first["input"], str) and "," in first["input"]:
        message += f"; for a run with each value, give --sweep {key}={first['input']}"
    return f"{key}={as_json(first['input'])}: {message}"


def _fields_in(kind: type[Section], location: Sequence[int | str]) -> Sequence[int | str]:
    """Return the place of a value, without the types of a union that follow the name of its field."""
    for number, name in enumerate(location[:-1], start=1):
        field = kind.model_fields.get(str(name))
        sections = _sections_in(field.annotation) if field else [kind] * isinstance(name, int)
        if not sections:
            is_item = number < len(location) and isinstance(location[number], int)
            return location[: number + is_item]
        [kind] = sections
    return location


def _meaning(name: str, kind: type[Section], sections: Sequence[str]) -> str:
    """Return which key a wrong one of a section may mean: one of the section, else one of another."""
    known, elsewhere = _known_keys(kind, sections), whole_keys(kind)
    words = {word: key.rpartition(".")[2] for word, key in WORDS.items()}
    is_elsewhere = WORDS.get(name) in elsewhere or any(key.endswith(f".{name}") for key in elsewhere)
    if sections and is_elsewhere and words.get(name) not in known:
        return suggestion(name, elsewhere, WORDS)
    return suggestion(name, known, words)


def whole_keys(kind: type[Section]) -> list[str]:
    """Return the keys of all settings, such as model.d_model."""
    keys: list[str] = []
    for name, field in kind.model_fields.items():
        if isinstance(field.default, Section):
            keys += (f"{name}.{key}" for key in type(field.default).model_fields)
    return keys


def _known_keys(kind: type[Section], sections: Sequence[str]) -> Mapping[str, object]:
    """Return the fields of a section inside another; a table in a list has a number before its fields."""
    for name in sections:
        if name in kind.model_fields:
            [kind] = _sections_in(kind.model_fields[name].annotation)
    return kind.model_fields


def _sections_in(annotation: object) -> list[type[Section]]:
    """Return the classes of sections that a type is or holds."""
    kinds = (annotation, *get_args(annotation))
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]


def _in_words_of_toml(mistake: str, sections: Sequence[str], name: str) -> str | None:
    """Return the type that a value should have, if it is a table or a list."""
    words = {"model_type": f"input should be a table, [{name}]", "tuple_type": "input should be a list"}
    if [*sections, name][:2] == ["data", "corpora"]:
        words["model_type"] = "input should be a table, [[data.corpora]]"
        words["tuple_type"] = "input should be a list of tables, [[data.corpora]]"
    return words.get(mistake)
