"""The configuration of a run: every key with its meaning, unit, bounds and default.

`load` reads a preset or a YAML file, lays `KEY=VALUE` overrides over it and checks all of it; what cannot be
run is refused with a `ConfigError` that names every fault, what is allowed and the nearest valid spelling.
"""

from __future__ import annotations

import difflib
import os
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from dream.errors import ConfigError

__all__ = [
    "AdvantageConfig",
    "Algorithm",
    "AverageConfig",
    "BaselineConfig",
    "CheckpointConfig",
    "ConfigError",
    "EvaluationConfig",
    "NetworkConfig",
    "RunConfig",
    "RuntimeConfig",
    "SamplingConfig",
    "from_mapping",
    "keys",
    "load",
    "merged",
    "nearest",
    "parse",
    "preset_names",
    "preset_summary",
    "preset_text",
    "reference",
    "resolve",
    "to_yaml",
    "tree_settings",
    "unknown",
    "with_overrides",
]

Algorithm = Literal["dream", "dream-avg", "sd-cfr", "os-sd-cfr", "deep-cfr"]

# Algorithms with a learned baseline (dream.methods says so too; a test keeps the two in step).
_WITH_BASELINE = frozenset({"dream", "dream-avg"})
_ROWS_MAX = 1_000_000_000
_STEPS_MAX = 10_000_000


def _field(default: Any, description: str, unit: str = "", **bounds: Any) -> Any:
    """A field with its meaning, its unit and pydantic's bounds (gt, ge, le, min_length, max_length)."""
    return Field(default, description=description, json_schema_extra={"unit": unit}, **bounds)


class _Section(BaseModel):
    """Frozen; unknown keys are refused; true and false are not numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_number(cls, value: Any, info: Any) -> Any:
        annotation = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and annotation is not bool:
            raise ValueError(f"must be {_kind(annotation)}, not {str(value).lower()}")
        return value


class SamplingConfig(_Section):
    """How traversals are played."""

    traversals: int = _field(1000, "traversals per player and iteration", "traversals", ge=1, le=100_000_000)
    epsilon: float = _field(0.5, "uniform exploration by the traverser (outcome sampling)", gt=0, le=1)
    chance: Literal["iid", "antithetic", "weyl"] = _field("iid", "how chance is drawn")
    chunk: int = _field(1024, "traversals played in lockstep as one batch", "traversals", ge=1, le=10_000_000)
    updates: Literal["alternating", "simultaneous"] = _field(
        "alternating", "whether the second player already meets the first one's new strategy"
    )
    reach_weight: Literal["scaled", "plain"] = _field(
        "scaled", "importance weight of a row: xi times the number of actions at earlier own decisions, or xi"
    )
    sampler: Literal["auto", "external", "outcome", "exact"] = _field(
        "auto", "auto is the algorithm's own; exact is full-width and needs a tree game"
    )
    backend: Literal["auto", "tree", "simulator"] = _field("auto", "auto is the tree if the game is small enough")
    enumerate_limit: int = _field(2_000_000, "largest game tree that is enumerated", "histories", ge=1, le=_ROWS_MAX)


class NetworkConfig(_Section):
    """A fully connected network."""

    hidden: tuple[int, ...] = _field(
        (64, 64, 64), "width of each hidden layer, 1 to 65,536", "units", min_length=1, max_length=16
    )
    layer_norm: bool = _field(False, "normalise each hidden layer")

    @field_validator("hidden")
    @classmethod
    def _widths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        bad = [width for width in value if not 1 <= width <= 65_536]
        if bad:
            raise ValueError(f"a width of {bad[0]} is out of range: from 1 to 65536 units")
        return value


class AdvantageConfig(_Section):
    """The advantage networks, one per player: what they learn from and how."""

    learner: Literal["network", "table"] = _field(
        "network", "table is the exact fit in place of a network and needs a tree game"
    )
    network: NetworkConfig = _field(NetworkConfig(), "the advantage network")
    buffer: Literal["reservoir", "merged"] = _field(
        "reservoir",
        "merged: exact sums per information state, full-batch steps; needs a tree game",
    )
    capacity: int = _field(2_000_000, "size of each player's reservoir", "rows", ge=1, le=_ROWS_MAX)
    steps: int = _field(3000, "optimiser steps of a fit from scratch", "steps", ge=1, le=_STEPS_MAX)
    fine_tune_steps: int | None = _field(
        None,
        "optimiser steps of the fits in between; null means the same as steps",
        "steps",
        ge=1,
        le=_STEPS_MAX,
    )
    batch: int = _field(2048, "rows per optimiser step (reservoir)", "rows", ge=1, le=100_000_000)
    learning_rate: float = _field(1e-3, "Adam's step size", gt=0, le=1)
    clip: float = _field(1.0, "largest gradient norm", gt=0, le=1e9)
    reset_every: int = _field(
        1,
        "fit from scratch every that many iterations; 1 is always, 0 is never",
        "iterations",
        ge=0,
        le=_ROWS_MAX,
    )

    def steps_in(self, iteration: int) -> int:
        """Optimiser steps of the fit of `iteration` (from 1)."""
        if self.fine_tune_steps is None or self.starts_afresh(iteration):
            return self.steps
        return self.fine_tune_steps

    def starts_afresh(self, iteration: int) -> bool:
        """Whether the fit of `iteration` (from 1) starts from new weights; the first one always does."""
        return iteration == 1 or (self.reset_every > 0 and (iteration - 1) % self.reset_every == 0)


class BaselineConfig(_Section):
    """DREAM's baseline: one network in player 0's payoff over full histories, never reset."""

    learner: Literal["network", "table"] = _field(
        "network", "table is the exact fit in place of a network and needs a tree game"
    )
    network: NetworkConfig = _field(NetworkConfig(), "the baseline network")
    capacity: int = _field(200_000, "size of the circular buffer", "transitions", ge=1, le=_ROWS_MAX)
    steps: int = _field(1000, "optimiser steps per iteration", "steps", ge=1, le=_STEPS_MAX)
    batch: int = _field(512, "transitions per optimiser step", "transitions", ge=1, le=100_000_000)
    learning_rate: float = _field(1e-3, "Adam's step size", gt=0, le=1)
    clip: float = _field(1.0, "largest gradient norm", gt=0, le=1e9)
    merge: bool = _field(False, "merge equal transitions and take full-batch steps; needs a tree game")


class AverageConfig(_Section):
    """The average network (deep-cfr and dream-avg), trained when the run is evaluated."""

    network: NetworkConfig = _field(NetworkConfig(), "the average network")
    buffer: Literal["reservoir", "merged"] = _field(
        "reservoir",
        "merged: exact sums per information state, full-batch steps; needs a tree game",
    )
    capacity: int = _field(2_000_000, "size of each player's reservoir", "rows", ge=1, le=_ROWS_MAX)
    steps: int = _field(4000, "optimiser steps per fit", "steps", ge=1, le=_STEPS_MAX)
    batch: int = _field(2048, "rows per optimiser step (reservoir)", "rows", ge=1, le=100_000_000)
    learning_rate: float = _field(1e-3, "Adam's step size", gt=0, le=1)
    clip: float = _field(1.0, "largest gradient norm", gt=0, le=1e9)
    loss: Literal["mse", "cross-entropy"] = _field("cross-entropy", "distance to the strategies that were played")


class EvaluationConfig(_Section):
    """When and how the run's average strategy is measured."""

    every: int = _field(
        0, "evaluate every that many iterations; 0 is only at the end", "iterations", ge=0, le=_ROWS_MAX
    )
    by: Literal["auto", "exploitability", "none"] = _field(
        "auto", "auto is exact exploitability where the game is small enough, else none"
    )


class CheckpointConfig(_Section):
    """When the run is committed to disk."""

    every: int = _field(10, "commit every that many iterations", "iterations", ge=1, le=_ROWS_MAX)
    keep: int = _field(2, "newest commits kept (networks are kept for ever)", "commits", ge=1, le=1_000_000)


class RuntimeConfig(_Section):
    """Where the work is done."""

    kind: Literal["local", "ray"] = _field("local", "local is this process")
    device: Literal["auto", "cpu", "cuda"] = _field("auto", "auto is a CUDA device where there is one")
    threads: int = _field(
        1, "torch threads; 0 is the number of cores (small networks are fastest on 1)", "threads", ge=0, le=4096
    )
    shards: int = _field(1, "shards of each reservoir", "shards", ge=1, le=65_536)
    parallel_learners: bool = _field(True, "fit both players side by side (simultaneous updates only)")


class RunConfig(_Section):
    """Everything that decides a run: the same configuration and seed give the same networks."""

    game: str = _field(..., "alias (`dream games`) or OpenSpiel game string", min_length=1)
    algorithm: Algorithm = _field(..., "training algorithm")
    iterations: int = _field(..., "iterations; each updates both players", "iterations", ge=1, le=_ROWS_MAX)
    seed: int = _field(1, "the run's only source of randomness", ge=0, le=2**63 - 1)
    sampling: SamplingConfig = _field(SamplingConfig(), "traversals")
    advantage: AdvantageConfig = _field(AdvantageConfig(), "advantage networks")
    baseline: BaselineConfig = _field(BaselineConfig(), "baseline (dream and dream-avg)")
    average: AverageConfig = _field(AverageConfig(), "average network (deep-cfr and dream-avg)")
    evaluation: EvaluationConfig = _field(EvaluationConfig(), "evaluation")
    checkpoint: CheckpointConfig = _field(CheckpointConfig(), "commits")
    runtime: RuntimeConfig = _field(RuntimeConfig(), "runtime")

    @model_validator(mode="after")
    def _coherent(self) -> RunConfig:
        faults = list(_conflicts(self))
        if faults:
            raise ValueError("\n".join(faults))
        return self


def _conflicts(config: RunConfig) -> Iterator[str]:
    """What single fields cannot see, one sentence each."""
    if config.runtime.kind == "ray":
        yield "runtime.kind=ray is not available in this version; use runtime.kind=local."
    sampling, sampler = config.sampling, config.sampling.sampler
    if config.algorithm in _WITH_BASELINE and sampler in ("external", "exact"):
        yield (
            f"sampling.sampler={sampler} does not go with algorithm={config.algorithm}, whose baseline "
            f"corrects outcome sampling; use sampling.sampler=auto, or algorithm=sd-cfr."
        )
    if sampler == "exact" and sampling.chance != "iid":
        yield f"sampling.chance={sampling.chance} does not go with sampling.sampler=exact, which draws none."
    if sampling.backend == "simulator":
        for setting in _tree_settings(config):
            yield f"{setting} needs the game tree; it does not go with sampling.backend=simulator."
    if config.advantage.buffer == "reservoir" and config.advantage.capacity < config.advantage.batch:
        yield _too_small("advantage", config.advantage.capacity, config.advantage.batch, "rows")
    if not config.baseline.merge and config.baseline.capacity < config.baseline.batch:
        yield _too_small("baseline", config.baseline.capacity, config.baseline.batch, "transitions")
    if config.average.buffer == "reservoir" and config.average.capacity < config.average.batch:
        yield _too_small("average", config.average.capacity, config.average.batch, "rows")


def _too_small(section: str, capacity: int, batch: int, unit: str) -> str:
    return f"{section}.capacity={capacity} {unit} is less than one batch ({section}.batch={batch})."


def _tree_settings(config: RunConfig) -> Iterator[str]:
    """The settings of `config` that only an enumerated game can serve, as `key=value`."""
    if config.sampling.sampler == "exact":
        yield "sampling.sampler=exact"
    if config.advantage.learner == "table":
        yield "advantage.learner=table"
    if config.advantage.buffer == "merged":
        yield "advantage.buffer=merged"
    if config.algorithm in _WITH_BASELINE:
        if config.baseline.learner == "table":
            yield "baseline.learner=table"
        if config.baseline.merge:
            yield "baseline.merge=true"
    if config.algorithm in ("deep-cfr", "dream-avg") and config.average.buffer == "merged":
        yield "average.buffer=merged"


def tree_settings(config: RunConfig) -> list[str]:
    """The settings of `config` that need an enumerated game, as `key=value`; empty when any game will do."""
    return list(_tree_settings(config))


# --- names -------------------------------------------------------------------------------------------------


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
        section = _section_of(info)
        found |= keys(section, f"{prefix}{name}.") if section else {f"{prefix}{name}": info}
    return found


def _section_of(info: FieldInfo) -> type[BaseModel] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


# --- presets -----------------------------------------------------------------------------------------------


def preset_names() -> list[str]:
    """All presets, sorted."""
    folder = resources.files("dream") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """The YAML of a preset as it is shipped. Raises ConfigError for an unknown one."""
    if name not in preset_names():
        listing = "`dream presets` lists them; a YAML file is given by its path"
        raise ConfigError(unknown("preset", name, preset_names(), listing=listing))
    return (resources.files("dream") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")


def preset_summary(name: str) -> str:
    """The first comment of a preset: what it is and about how long it takes."""
    return preset_text(name).splitlines()[0].lstrip("# ").strip()


# --- reading -----------------------------------------------------------------------------------------------


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


def parse(text: str) -> Any:
    """Plain values of YAML text, as they stand in a run folder's config.yaml. Raises ConfigError."""
    return _read_yaml(text, "the configuration")


def load(preset_or_path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The checked configuration of a preset or a YAML file, with `KEY=VALUE` overrides laid over it.

    A name with a path separator or ending in .yaml or .yml, or that of an existing file, is a file. Raises
    ConfigError naming every fault.
    """
    name = str(preset_or_path)
    path = Path(name)
    if name not in preset_names() and (path.suffix in (".yaml", ".yml") or path.is_file() or os.sep in name):
        text, source = _file_text(path), name
    else:
        text, source = preset_text(name), f"preset {name}"
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
    result = dict(values)
    faults = []
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals or not key:
            faults.append(f"{override!r} is not of the form KEY=VALUE, as in sampling.traversals=500.")
        elif key not in keys():
            faults.append(_unknown_key(key))
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
        faults = [line for each in _innermost(error.errors()) for line in _explain(each).splitlines()]
        heading = f"{source} cannot be run:"
        raise ConfigError(faults[0] if len(faults) == 1 else "\n  ".join([heading, *faults])) from None


def resolve(config: RunConfig) -> RunConfig:
    """`config` with `runtime.threads` = 0 replaced by the number of cores this process may use."""
    if config.runtime.threads:
        return config
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return merged(config, {"runtime": {"threads": cores}})


# --- explaining faults -------------------------------------------------------------------------------------


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
        return _unknown_key(key)
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
    limits = _limits(info)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"{key}={value!r} is out of range: it must be {limits}."
    return f"{key}={value!r} is not valid: it must be {_kind(info.annotation)}{', ' + limits if limits else ''}."


def _unknown_key(key: str) -> str:
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


def _field_at(parts: Sequence[str]) -> FieldInfo:
    model: type[BaseModel] = RunConfig
    info = model.model_fields[parts[0]]
    for part in parts[1:]:
        section = _section_of(info)
        if section is None:  # an element of a list
            break
        info = section.model_fields[part]
    return info


def _limits(info: FieldInfo) -> str:
    """The range of a field in words, with its unit; empty when it has none."""
    text = _range(info)
    return f"{text} {_unit(info)}" if text and _unit(info) else text


def _range(info: FieldInfo) -> str:
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


def _unit(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
}


def _kind(annotation: Any) -> str:
    """A type in words."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in get_args(annotation))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        return "a list of whole numbers, as [64, 64, 64]"
    return _TYPE_NAMES.get(annotation, "a section with keys of its own")


# --- writing -----------------------------------------------------------------------------------------------


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
    unit = _unit(info) if _unit(info) not in (info.description or "") else ""
    notes = " | ".join(map(str, choices)) or unit
    return f"{info.description} ({notes})" if notes else str(info.description)


def _scalar(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump(plain, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


# --- the reference page ------------------------------------------------------------------------------------

_PAGE = """# Configuration

<!-- Written by `make docs` from dream/config.py: change the fields there, not this page. -->

Every key that a YAML file, a `KEY=VALUE` argument or the Python functions take. A key in a section is written
with dots on the command line (`sampling.traversals=500`) and nested in YAML (`sampling: {traversals: 500}`). Keys
that are left out have their default; unknown keys, and values out of range, are refused before anything starts.
`dream config PRESET` prints a preset with all keys filled in.
"""
_PAGE_END = """
## Keys that depend on each other

- *Tree only.* `sampling.sampler=exact`, `advantage.learner=table`, `advantage.buffer=merged`, and (where the algorithm
  uses them) `baseline.learner=table`, `baseline.merge=true`, `average.buffer=merged` need the enumerated game: at most
  `sampling.enumerate_limit` histories, and not `sampling.backend=simulator`.
- `dream` and `dream-avg` need outcome sampling: not `sampling.sampler=external` or `exact`.
- `sampling.sampler=exact` draws no chance: only `sampling.chance=iid`.
- A reservoir or circular buffer must hold one batch: `capacity` is at least `batch`.
- `runtime.kind=ray` is known but not available in this version.
"""


def reference() -> str:
    """docs/configuration.md: every key with its default, what is allowed, its unit and its meaning."""
    tables: dict[str, list[str]] = {}
    for key, info in keys().items():
        section = key.partition(".")[0] if "." in key else ""
        tables.setdefault(section, []).append(_reference_row(key, info))
    parts = [_PAGE]
    for section, rows in tables.items():
        model = _section_of(RunConfig.model_fields[section]) if section else RunConfig
        title = f"`{section}`" if section else "The run"
        about = (model.__doc__ if model else None) or ""
        head = "| key | default | allowed | unit | meaning |\n| --- | --- | --- | --- | --- |"
        parts.append("\n".join([f"\n## {title}\n", f"{about.strip()}\n", head, *rows]) + "\n")
    return "".join([*parts, _PAGE_END])


def _reference_row(key: str, info: FieldInfo) -> str:
    default = "required" if info.is_required() else f"`{_scalar(info.default)}`"
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    allowed = ", ".join(f"`{choice}`" for choice in choices) or ", ".join(
        filter(None, (_kind(info.annotation), _range(info)))
    )
    return f"| `{key}` | {default} | {allowed} | {_unit(info)} | {info.description} |"
