"""From words of the command line to settings of the laboratory, with every fault in one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from dream.config import parse, unknown
from dream.config.wording import kind_of, limits_of
from dream.errors import ConfigError
from dream.laboratory.settings import LabSettings

__all__ = ["grid", "pairs", "settings_from"]


def pairs(texts: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping; values are read as YAML. Raises ConfigError for another form or key."""
    return {key: parse(value) for key, value in _split(texts)}


def grid(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Every combination of `KEY=VALUE,VALUE,...` texts, the last key fastest. Raises ConfigError."""
    axes = [[(key, parse(value)) for value in values.split(",")] for key, values in _split(texts)]
    return [dict(combination) for combination in itertools.product(*axes)]


def _split(texts: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise ConfigError(f"{text!r} is not of the form KEY=VALUE, as in epsilon=0.5.")
        if key not in LabSettings.model_fields:
            raise ConfigError(unknown("setting", key, LabSettings.model_fields))
        if any(key == other for other, _ in found):
            raise ConfigError(f"{key} is given twice.")
        found.append((key, value))
    return found


def settings_from(values: Mapping[str, Any]) -> LabSettings:
    """Checked settings. Raises ConfigError that names every fault, the allowed values and the nearest one."""
    try:
        return LabSettings.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError("\n".join(map(_explain, error.errors()))) from None


def _explain(error: Any) -> str:
    """One of pydantic's errors, in our words."""
    kind, value = error["type"], error["input"]
    if not error["loc"]:
        return str(error.get("ctx", {}).get("error", error["msg"]))
    key = str(error["loc"][0])
    if kind == "extra_forbidden":
        return unknown("setting", key, LabSettings.model_fields)
    info = LabSettings.model_fields[key]
    if kind == "literal_error":
        return unknown(key, str(value), [str(each) for each in get_args(info.annotation)])
    if kind == "value_error":
        return f"{key}={value!r}: {error['ctx']['error']}"
    limits = limits_of(info)
    return f"{key}={value!r} is not valid: it must be {kind_of(info.annotation)}{', ' + limits if limits else ''}."
