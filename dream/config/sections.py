"""What all sections of settings have in common, those of a training run and those of the laboratory."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dream.config.wording import kind_of

__all__ = ["Section", "setting"]


def setting(default: Any, description: str, unit: str = "", **bounds: Any) -> Any:
    """A field with its meaning, its unit and pydantic's bounds (gt, ge, le, min_length, max_length)."""
    return Field(default, description=description, json_schema_extra={"unit": unit}, **bounds)


class Section(BaseModel):
    """Frozen; unknown keys are refused; true and false are not numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_number(cls, value: Any, info: Any) -> Any:
        annotation = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and annotation is not bool:
            raise ValueError(f"must be {kind_of(annotation)}, not {str(value).lower()}")
        return value
