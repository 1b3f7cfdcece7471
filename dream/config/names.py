"""Names: the keys of a configuration, and what to say of a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dream.config.models import RunConfig

__all__ = ["keys", "nearest", "section_of", "unknown", "unknown_key"]


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The most similar of `allowed`, or None when nothing is near; case does not count."""
    candidates = {each.lower(): each for each in allowed}
    found = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.6)
    return candidates[found[0]] if found else None


def unknown(kind: str, name: str, allowed: Iterable[str], *, listing: str | None = None) -> str:
    """One message for a name that does not exist: the name, the nearest valid one, what is allowed."""
    choices = list(allowed)
    near = nearest(name, choices)
    hint = f"; did you mean {near!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} {listing or 'Allowed: ' + ', '.join(choices)}."


def keys(model: type[BaseModel] = RunConfig, prefix: str = "") -> dict[str, FieldInfo]:
    """Every dotted key that holds a value, with its field, in the order of the file."""
    found: dict[str, FieldInfo] = {}
    for name, info in model.model_fields.items():
        section = section_of(info)
        found |= keys(section, f"{prefix}{name}.") if section else {f"{prefix}{name}": info}
    return found


def section_of(info: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, or None when it holds a value."""
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def unknown_key(key: str) -> str:
    """Says which key is meant; a leaf name alone is pointed to its full key, never guessed."""
    valid = keys()
    section = next((each for each in valid if each.startswith(key + ".")), None)
    if section:
        inside = ", ".join(each for each in valid if each.startswith(key + "."))
        return f"{key!r} is a section, not a key. Its keys: {inside}."
    leaves = [each for each in valid if each.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    if leaves and nearest(key, valid) is None:
        return f"unknown key {key!r}; did you mean {' or '.join(leaves)}?"
    parent = key.rpartition(".")[0]
    siblings = [each for each in valid if each.rpartition(".")[0] == parent]
    names = siblings if parent and siblings else list(RunConfig.model_fields)
    near = nearest(key, siblings) or nearest(key, valid) or nearest(key, names)
    hint = f"; did you mean {near!r}?" if near else "."
    return f"unknown key {key!r}{hint} Allowed here: {', '.join(names)}."
