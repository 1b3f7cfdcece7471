"""The configuration of a run: every key with its meaning, unit, bounds and default.

`load` reads a preset or a YAML file, lays `KEY=VALUE` overrides over it and checks all of it; what cannot be
run is refused with a `ConfigError` that names every fault, what is allowed and the nearest valid spelling.
"""

from dream.config.models import (
    AdvantageConfig,
    Algorithm,
    AverageConfig,
    BaselineConfig,
    CheckpointConfig,
    EvaluationConfig,
    NetworkConfig,
    RunConfig,
    RuntimeConfig,
    SamplingConfig,
    tree_settings,
)
from dream.config.names import keys, nearest, unknown
from dream.config.presets import preset_names, preset_summary, preset_text
from dream.config.reading import from_mapping, load, load_text, merged, parse, resolve, with_overrides
from dream.config.writing import reference, to_yaml
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
    "load_text",
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
