"""What decides a run of a tabular solver, beside its seed and its budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dream.config.wording import kind_of

__all__ = ["Algorithm", "Baseline", "Chance", "LabSettings", "Update"]

Algorithm = Literal["cfr", "es-mccfr", "os-mccfr", "vr-mccfr", "ftrl", "pftrl-kl", "pftrl-rkl"]
Update = Literal["vanilla", "cfr+", "linear", "discounted"]
Chance = Literal["iid", "antithetic", "weyl", "weyl-iteration", "weyl-traversal"]
Baseline = Literal["none", "history", "information-state"]

# Settings that mean something to some algorithms only: given for another, they are refused.
_SAMPLED = frozenset({"es-mccfr", "os-mccfr", "vr-mccfr", "ftrl", "pftrl-kl", "pftrl-rkl"})
_REGRETS = frozenset({"cfr", "es-mccfr", "os-mccfr", "vr-mccfr"})
_LEADERS = frozenset({"ftrl", "pftrl-kl", "pftrl-rkl"})
_PERTURBED = frozenset({"pftrl-kl", "pftrl-rkl"})
_MEANT_FOR: dict[str, frozenset[str]] = {
    "update": _REGRETS,
    "chance": _SAMPLED,
    "epsilon": frozenset({"os-mccfr", "vr-mccfr"}) | _LEADERS,
    "baseline": frozenset({"vr-mccfr"}),
    "chance_baseline": frozenset({"vr-mccfr"}),
    "decay": frozenset({"vr-mccfr"}),
    "control_variate": frozenset({"es-mccfr"}),
    "learning_rate": _LEADERS,
    "sampling": _LEADERS,
    "regulariser": _LEADERS,
    "strength": _PERTURBED,
    "anchor_every": _PERTURBED,
}


def _field(default: Any, description: str, unit: str = "", **bounds: Any) -> Any:
    """A field with its meaning, its unit and pydantic's bounds."""
    return Field(default, description=description, json_schema_extra={"unit": unit}, **bounds)


class LabSettings(BaseModel):
    """One solver on one game. A setting given explicitly for an algorithm that does not use it is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    game: str = _field(..., "alias (`dream games`) or OpenSpiel game string that can be enumerated", min_length=1)
    algorithm: Algorithm = _field(..., "solver")
    update: Update = _field("vanilla", "how regrets and the average are weighted (cfr and the mccfr family)")
    alpha: float = _field(1.5, "exponent of the discount of positive regrets (discounted)", ge=-100, le=100)
    beta: float = _field(0.0, "exponent of the discount of negative regrets (discounted)", ge=-100, le=100)
    gamma: float = _field(2.0, "exponent of the average's weights (discounted)", ge=0, le=20)
    chance: Chance = _field(
        "iid", "how chance is drawn; weyl-iteration and weyl-traversal start streams anew that often"
    )
    epsilon: float = _field(
        0.6, "uniform exploration: by the traverser, or by both players under sampling=current", ge=0, le=1
    )
    baseline: Baseline = _field("history", "what learned baselines of actions are kept by (vr-mccfr)")
    chance_baseline: bool = _field(False, "learned baselines of chance outcomes, by history (vr-mccfr)")
    decay: float = _field(0.5, "weight of a baseline's newest value; 0 is the plain mean (vr-mccfr)", ge=0, le=1)
    control_variate: bool = _field(False, "restricted control variate of the opponent's actions (es-mccfr)")
    learning_rate: float = _field(0.001, "eta, by which the sums of estimates are multiplied", "1/chips", gt=0, le=1e6)
    sampling: Literal["uniform", "current"] = _field("uniform", "what both players sample by (ftrl family)")
    regulariser: Literal["entropy", "euclidean"] = _field("entropy", "psi: a softmax, or a projection (ftrl family)")
    strength: float = _field(0.1, "mu, strength of the perturbation (pftrl)", "chips", ge=0, le=1e6)
    anchor_every: int = _field(
        0, "iterations after which the current strategy becomes the anchor; 0 keeps the uniform one", "iterations", ge=0
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_number(cls, value: Any, info: Any) -> Any:
        annotation = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and annotation is not bool:
            raise ValueError(f"must be {kind_of(annotation)}, not {str(value).lower()}")
        return value

    @model_validator(mode="after")
    def _coherent(self) -> LabSettings:
        faults = list(_conflicts(self))
        if faults:
            raise ValueError("\n".join(faults))
        return self


def _conflicts(settings: LabSettings) -> Iterator[str]:
    """Settings that would be ignored, one sentence each."""
    given = settings.model_fields_set
    for name, algorithms in _MEANT_FOR.items():
        standing = getattr(settings, name) == type(settings).model_fields[name].default
        if name in given and not standing and settings.algorithm not in algorithms:
            yield (
                f"{name}={getattr(settings, name)} does not go with algorithm={settings.algorithm}:"
                f" it is for {', '.join(sorted(algorithms))}."
            )
    for name in ("alpha", "beta", "gamma"):
        standing = getattr(settings, name) == type(settings).model_fields[name].default
        if name in given and not standing and (settings.update != "discounted" or settings.algorithm not in _REGRETS):
            yield f"{name}={getattr(settings, name)} goes with update=discounted only, not update={settings.update}."
