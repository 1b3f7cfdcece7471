"""From a preset or a YAML file and `KEY=VALUE` overrides to a checked configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from dream.config.faults import explained
from dream.config.models import RunConfig
from dream.config.names import keys, unknown_key
from dream.config.presets import preset_names, preset_text
from dream.errors import ConfigError

__all__ = ["from_mapping", "load", "load_text", "merged", "parse", "resolve", "with_overrides"]


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number and refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def _read_yaml(text: str, source: str) -> Any:
    try:
        return yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{source} is not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply: no key lies deeper than two sections.") from None


def parse(text: str) -> Any:
    """Plain values of YAML text, as they stand in a run folder's config.yaml. Raises ConfigError."""
    return _read_yaml(text, "the configuration")


def load(preset_or_path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked configuration of a preset or a YAML file, with `KEY=VALUE` overrides laid over it.

    A name with a path separator or ending in .yaml or .yml, or that of an existing file, is a file. Raises
    ConfigError naming every fault.
    """
    if not isinstance(preset_or_path, str | Path):
        raise ConfigError(
            f"a configuration is the name of a preset, the path of a YAML file or a RunConfig, not "
            f"{type(preset_or_path).__name__}; `dream.RunConfig(game=..., algorithm=..., iterations=...)` makes one."
        )
    name = str(preset_or_path)
    path = Path(name)
    if name not in preset_names() and (path.suffix in (".yaml", ".yml") or path.is_file() or os.sep in name):
        text, source = _file_text(path), name
    else:
        text, source = preset_text(name), f"preset {name}"
    return load_text(text, source, overrides)


def load_text(text: str, source: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked configuration of YAML text; `source` names it in errors. Raises ConfigError."""
    values = _read_yaml(text, source)
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds no keys and values; `dream config leduc-dream` shows some.")
    return from_mapping(_overridden(values, overrides), source)


def _file_text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"there is no configuration file {path}; `dream presets` lists the presets.")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def with_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """`config` with `KEY=VALUE` overrides laid over it, checked again. Raises ConfigError."""
    return from_mapping(_overridden(config.model_dump(), overrides), "the configuration")


def merged(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """`config` with a nested mapping laid over it, as `{"sampling": {"traversals": 100}}`; checked again."""
    return from_mapping(_merge(config.model_dump(), changes), "the configuration")


def _merge(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for key, change in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(change, Mapping)
        result[key] = _merge(old, change) if both else change  # type: ignore[arg-type]
    return result


def _overridden(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    if isinstance(overrides, str) or not all(isinstance(each, str) for each in overrides):
        raise ConfigError(
            f"overrides must be a list of KEY=VALUE texts, as ['sampling.traversals=500'], not {overrides!r}."
        )
    result = dict(values)
    faults = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            faults.append(f"{override!r} is not of the form KEY=VALUE, as in sampling.traversals=500.")
        elif key not in keys():
            faults.append(unknown_key(key))
        else:
            change: Any = _read_yaml(text, f"the value of {key}")
            for part in reversed(key.split(".")):
                change = {part: change}
            result = _merge(result, change)
    if faults:
        raise ConfigError("\n".join(faults))
    return result


def from_mapping(values: Mapping[str, Any], source: str = "the configuration") -> RunConfig:
    """Checks plain values and makes a RunConfig. Raises ConfigError naming every fault."""
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        faults = explained(error)
        heading = f"{source} cannot be run:"
        raise ConfigError(faults[0] if len(faults) == 1 else "\n  ".join([heading, *faults])) from None


def resolve(config: RunConfig) -> RunConfig:
    """`config` with `runtime.threads` = 0 replaced by the number of cores this process may use."""
    if config.runtime.threads:
        return config
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return merged(config, {"runtime": {"threads": cores}})
