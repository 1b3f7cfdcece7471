"""A field in words: the kind of value, its bounds and its unit, as messages and the reference page say them."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

__all__ = ["kind_of", "limits_of", "range_of", "unit_of"]

_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}


def kind_of(annotation: Any) -> str:
    """A type in words."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(kind_of(each) for each in get_args(annotation))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "a list of whole numbers, as [64, 64, 64]"
    return _TYPE_NAMES.get(annotation, "a section with keys of its own")


def limits_of(info: FieldInfo) -> str:
    """The range of a field in words, with its unit; empty when it has none."""
    text = range_of(info)
    return f"{text} {unit_of(info)}" if text and unit_of(info) else text


def range_of(info: FieldInfo) -> str:
    """The range of a field in words; empty when it has none."""
    low = high = ""
    for rule in info.metadata:
        low = f"above {_plain(rule.gt):,}" if hasattr(rule, "gt") else low
        low = f"at least {_plain(rule.ge):,}" if hasattr(rule, "ge") else low
        high = f"at most {_plain(rule.le):,}" if hasattr(rule, "le") else high
    return " and ".join(part for part in (low, high) if part)


def _plain(bound: float) -> float:
    """Without the decimals of a whole number."""
    return int(bound) if bound == int(bound) else bound


def unit_of(info: FieldInfo) -> str:
    """The unit of a field; empty when it has none."""
    extra = info.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""
