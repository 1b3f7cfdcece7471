"""A configuration as YAML, and the reference page of all keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dream.config.models import RunConfig
from dream.config.names import keys, section_of
from dream.config.wording import kind_of, range_of, unit_of

__all__ = ["reference", "to_yaml"]


def to_yaml(config: RunConfig, *, comments: bool = True) -> str:
    """Every key of `config` as YAML that `load` reads back to an equal configuration.

    With `comments`, each line ends with the key's meaning and, for a choice, what is allowed.
    """
    return "\n".join(_lines(config, 0, comments)) + "\n"


def _lines(model: BaseModel, depth: int, comments: bool) -> Iterator[str]:
    pad = "  " * depth
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield f"{pad}{name}:"
            yield from _lines(value, depth + 1, comments)
            continue
        line = f"{pad}{name}: {_scalar(value)}"
        yield f"{line:<36} # {_comment(info)}" if comments else line


def _comment(info: FieldInfo) -> str:
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    unit = unit_of(info) if unit_of(info) not in (info.description or "") else ""
    notes = " | ".join(map(str, choices)) or unit
    return f"{info.description} ({notes})" if notes else str(info.description)


def _scalar(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


# --- the reference page ------------------------------------------------------------------------------------

_PAGE = """# Configuration

<!-- Written by `make docs` from dream/config/models.py: change the fields there, not this page. -->

Every key that a YAML file, a `KEY=VALUE` argument or the Python functions take. A key in a section is written
with dots on the command line (`sampling.traversals=500`) and nested in YAML (`sampling: {traversals: 500}`). Keys
that are left out have their default; unknown keys, and values out of range, are refused before anything starts.
`dream config PRESET` prints a preset with all keys filled in.
"""
_PAGE_END = """
## Keys that depend on each other

- *Tree only.* `sampling.sampler=exact`, `advantage.learner=table`, `advantage.buffer=merged`, and (where the algorithm
  uses them) `baseline.learner=table`, `baseline.merge=true`, `average.buffer=merged`, `evaluation.by=exploitability`
  need the enumerated game: at most `sampling.enumerate_limit` histories, and not `sampling.backend=simulator`.
- `dream` and `dream-avg` need outcome sampling: not `sampling.sampler=external` or `exact`.
- `sampling.sampler=exact` draws no chance: only `sampling.chance=iid`.
- A reservoir or circular buffer must hold one batch: `capacity` is at least `batch`; a reservoir has a row for each of
  `runtime.shards`.
- `sampling.chance=antithetic` and `weyl` need `runtime.kind=local`: their streams tie every chunk to the one before.
- `runtime.address` goes with `runtime.kind=ray` or `auto`. The runtime may change whenever a run goes on: the networks
  are the same bits on the same kind of hardware.
"""


def reference() -> str:
    """docs/configuration.md: every key with its default, what is allowed, its unit and its meaning."""
    tables: dict[str, list[str]] = {}
    for key, info in keys().items():
        section = key.partition(".")[0] if "." in key else ""
        tables.setdefault(section, []).append(_reference_row(key, info))
    parts = [_PAGE]
    for section, rows in tables.items():
        model = section_of(RunConfig.model_fields[section]) if section else RunConfig
        title = f"`{section}`" if section else "The run"
        about = (model.__doc__ if model else None) or ""
        head = "| key | default | allowed | unit | meaning |\n| --- | --- | --- | --- | --- |"
        parts.append("\n".join([f"\n## {title}\n", f"{about.strip()}\n", head, *rows]) + "\n")
    return "".join([*parts, _PAGE_END])


def _reference_row(key: str, info: FieldInfo) -> str:
    default = "required" if info.is_required() else f"`{_scalar(info.default)}`"
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    allowed = ", ".join(f"`{choice}`" for choice in choices) or ", ".join(
        filter(None, (kind_of(info.annotation), range_of(info)))
    )
    return f"| `{key}` | {default} | {allowed} | {unit_of(info)} | {info.description} |"
