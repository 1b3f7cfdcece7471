"""One iteration's report and its form as a record of metrics.jsonl.

Keys of a record:
- `iteration`, `states` (visited so far, both players), `seconds` (training time so far, over all resumes);
- where the iteration was evaluated: `nash_conv_chips`, `exploitability_chips` (half of it),
  `exploitability_milli` in `unit` (`mA/g`, `mbb/g` or `m/g`), `average` (`bank` or `network`);
- on a cluster `cluster/...`: workers, losses, bytes, which depend on the machines;
- scalars by group and name, as in TensorBoard: `loss/advantage_0`, `gradient_norm/advantage_0`,
  `target_scale/advantage_0`, `importance_weight/{mean,max,p99}_0`, `buffer/{fill,seen}_advantage_0`,
  `throughput/rows_per_second`, `throughput/states_per_second`,
  `time/{sampling,fitting,evaluating,committing}_seconds`. One that is not finite is stored as null.

Everything that depends on the clock has a key that ends in `seconds` or `_per_second`, and nothing else has:
`deterministic_view` drops those and `cluster/...`; what stays is the same in two runs of one configuration and seed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EVALUATION_KEYS = ("nash_conv_chips", "exploitability_chips", "exploitability_milli", "unit", "average")
_CLOCK_SUFFIXES = ("seconds", "_per_second")
_CLUSTER_PREFIX = "cluster/"
_AXES = ("iteration", "states", "seconds")


@dataclass(frozen=True)
class IterationReport:
    """What is known at the end of an iteration. `metrics` maps group/name to a scalar."""

    iteration: int
    states: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluation: Mapping[str, float | str] | None = None

    def __post_init__(self) -> None:
        for name in self.metrics:
            if "/" not in name:
                raise ValueError(f"metric {name!r} has no group: name it group/name, as loss/advantage_0")
        if self.evaluation is not None and (missing := [k for k in EVALUATION_KEYS if k not in self.evaluation]):
            raise ValueError(f"an evaluation lacks {', '.join(missing)}")

    def record(self) -> dict[str, Any]:
        """The report as one object of metrics.jsonl."""
        record: dict[str, Any] = {"iteration": int(self.iteration), "states": int(self.states)}
        record["seconds"] = round(float(self.seconds), 3)
        if self.evaluation is not None:
            record |= {key: _plain(self.evaluation[key]) for key in EVALUATION_KEYS}
        return record | {name: _plain(value) for name, value in self.metrics.items()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "IterationReport":
        """The report that `record` was made from; scalars stored as null come back as NaN."""
        metrics = {name: math.nan if v is None else v for name, v in record.items() if "/" in name}
        evaluation = {key: record[key] for key in EVALUATION_KEYS} if EVALUATION_KEYS[0] in record else None
        iteration, states, seconds = (record[key] for key in _AXES)
        return cls(iteration, states, seconds, metrics, evaluation)


def deterministic_view(record: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a record that depends neither on the clock nor on the machines."""
    return {k: v for k, v in record.items() if not (k.endswith(_CLOCK_SUFFIXES) or k.startswith(_CLUSTER_PREFIX))}


def _plain(value: float | str) -> float | int | str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    number = float(value)  # also from numpy scalars
    return number if math.isfinite(number) else None
