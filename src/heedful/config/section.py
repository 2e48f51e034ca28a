"""The types of settings, and the base class of their sections."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

Positive = Annotated[int, Field(gt=0, lt=2**63)]
Depth = Annotated[int, Field(gt=0, le=1000)]
Width = Annotated[int, Field(gt=0, le=2**20)]  # products of two are still valid sizes of a matrix
Heads = Annotated[int, Field(gt=0, le=2**16)]
VocabSize = Annotated[int, Field(ge=0, le=2**24)]  # ids up to there are exact in float32
NumPositions = Annotated[int, Field(gt=0, le=2**24)]
Beam = Annotated[int, Field(gt=0, le=1000)]
Whole = Annotated[int, Field(lt=2**63)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
PositiveFloat = Annotated[float, Field(gt=0.0)]
NonNegativeFloat = Annotated[float, Field(ge=0.0)]


def _check_text(value: str) -> None:
    """Refuse text that is no valid file name or TOML string."""
    if "\0" in value:
        raise PydanticCustomError("nul", "must not contain a NUL character")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "not_utf_8", "is not UTF-8; rename the file, or check the encoding"
        ) from None


def check_id(key: str, value: int | None, text: str, vocab_size: int) -> None:
    """Refuse an id outside of a vocabulary, if its size is known."""
    if value is not None and 0 < vocab_size <= value:
        raise ValueError(f"{key}={value} must be below model.{text}_vocab_size={vocab_size}")


class Section(BaseModel):
    """A frozen group of settings; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_toml_means_it(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401
        """Convert whole numbers to floats, `false` to None, lists and "a,b" to tuples."""
        accepts = str(cls.model_fields[info.field_name or ""].annotation)
        if value is False and "None" in accepts:
            return None
        if isinstance(value, list) and "tuple" in accepts:
            return tuple(value)
        if isinstance(value, str):
            _check_text(value)
        if isinstance(value, str) and "tuple[str" in accepts:
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return float(value) if type(value) is int and abs(value) < 2**63 and "float" in accepts else value

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401
        """Return a validated copy with some values changed; it is still known which were never set."""
        return type(self).model_validate(self.model_dump(exclude_unset=True) | changes)
