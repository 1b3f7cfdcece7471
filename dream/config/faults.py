"""Pydantic's errors in our words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from dream.config.models import RunConfig
from dream.config.names import keys, section_of, unknown, unknown_key
from dream.config.wording import kind_of, limits_of

__all__ = ["explained"]


def explained(error: ValidationError) -> list[str]:
    """The faults of a RunConfig that pydantic refused, one sentence each."""
    return [line for each in _innermost(error.errors()) for line in _explain(each).splitlines()]


def _innermost(errors: Sequence[Any]) -> list[Any]:
    """Without those of a list or section some of whose elements have an error of their own."""
    places = [each["loc"] for each in errors]
    inside = {place[:length] for place in places for length in range(len(place))}
    return [each for each in errors if each["loc"] not in inside]


def _explain(error: Any) -> str:
    """One of pydantic's errors, in our words."""
    parts = [str(part) for part in error["loc"]]
    key, kind, value = ".".join(parts), error["type"], error["input"]
    if kind == "extra_forbidden":
        return _dotted(key) if key in keys() else unknown_key(key)
    if kind == "invalid_key":
        return _not_text(value, ".".join(parts[:-1]))
    if kind == "missing":
        return f"{key} is missing: {_field_at(parts).description}."
    if kind == "value_error" and not parts:
        return str(error["ctx"]["error"])
    if kind == "value_error":
        return f"{key}: {error['ctx']['error']}."
    if kind == "model_type":
        return f"{key} must be a section with keys of its own, not {value!r}."
    info = _field_at(parts)
    if kind == "literal_error":
        return unknown(key, str(value), [str(each) for each in get_args(info.annotation)])
    limits = limits_of(info)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"{key}={value!r} is out of range: it must be {limits}."
    return f"{key}={value!r} is not valid: it must be {kind_of(info.annotation)}{', ' + limits if limits else ''}."


def _dotted(key: str) -> str:
    """A valid key with its dots, where sections are nested: only `KEY=VALUE` texts take dots."""
    *sections, leaf = key.split(".")
    nested = f"{{{leaf}: ...}}"
    for section in reversed(sections[1:]):
        nested = f"{{{section}: {nested}}}"
    return f"{key!r} is written nested here: {sections[0]}: {nested}; KEY=VALUE arguments alone take dots."


def _not_text(name: Any, section: str) -> str:
    """A name that YAML (or the program) reads as a number, a truth value (on, off, yes, no) or nothing (~)."""
    where = f" in {section}" if section else ""
    siblings = [key for key in keys() if key.startswith(f"{section}.")] if section else list(RunConfig.model_fields)
    return f"the key {name!r}{where} is {type(name).__name__}, not text. Allowed here: {', '.join(siblings)}."


def _field_at(parts: Sequence[str]) -> FieldInfo:
    model: type[BaseModel] = RunConfig
    info = model.model_fields[parts[0]]
    for part in parts[1:]:
        section = section_of(info)
        if section is None:  # an element of a list
            break
        info = section.model_fields[part]
    return info
