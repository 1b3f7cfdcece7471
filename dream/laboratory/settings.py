"""What decides a run of a tabular solver, beside its seed and its budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from dream.config.sections import Section, setting

__all__ = ["Algorithm", "Baseline", "Chance", "LabSettings", "Update"]

Algorithm = Literal["cfr", "es-mccfr", "os-mccfr", "vr-mccfr", "ftrl", "pftrl-kl", "pftrl-rkl"]
Update = Literal["vanilla", "cfr+", "linear", "discounted"]
Chance = Literal[
    "iid", "antithetic", "weyl", "weyl-iteration", "weyl-traversal", "antithetic-by-traverser", "weyl-by-traverser"
]
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


class LabSettings(Section):
    """One solver on one game. A setting given explicitly for an algorithm that does not use it is refused."""

    game: str = setting(..., "alias (`dream games`) or OpenSpiel game string that can be enumerated", min_length=1)
    algorithm: Algorithm = setting(..., "solver")
    update: Update = setting("vanilla", "how regrets and the average are weighted (cfr and the mccfr family)")
    alpha: float = setting(1.5, "exponent of the discount of positive regrets (discounted)", ge=-100, le=100)
    beta: float = setting(0.0, "exponent of the discount of negative regrets (discounted)", ge=-100, le=100)
    gamma: float = setting(2.0, "exponent of the average's weights (discounted)", ge=0, le=20)
    chance: Chance = setting(
        "iid",
        "how chance is drawn; weyl-iteration and weyl-traversal start streams anew that often; by-traverser: each "
        "player's traversals have streams of their own (mccfr family)",
    )
    epsilon: float = setting(
        0.6, "uniform exploration: by the traverser, or by both players under sampling=current", ge=0, le=1
    )
    baseline: Baseline = setting("history", "what learned baselines of actions are kept by (vr-mccfr)")
    chance_baseline: bool = setting(False, "learned baselines of chance outcomes, by history (vr-mccfr)")
    decay: float = setting(0.5, "weight of a baseline's newest value; 0 is the plain mean (vr-mccfr)", ge=0, le=1)
    control_variate: bool = setting(False, "restricted control variate of the opponent's actions (es-mccfr)")
    learning_rate: float = setting(0.001, "eta, by which the sums of estimates are multiplied", "1/chips", gt=0, le=1e6)
    sampling: Literal["uniform", "current"] = setting("uniform", "what both players sample by (ftrl family)")
    regulariser: Literal["entropy", "euclidean"] = setting("entropy", "psi: a softmax, or a projection (ftrl family)")
    strength: float = setting(0.1, "mu, strength of the perturbation (pftrl)", "chips", ge=0, le=1e6)
    anchor_every: int = setting(
        0, "iterations after which the current strategy becomes the anchor; 0 keeps the uniform one", "iterations", ge=0
    )

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
    if settings.chance.endswith("-by-traverser") and settings.algorithm in _LEADERS:
        yield (
            f"chance={settings.chance} does not go with algorithm={settings.algorithm}:"
            " both players learn from one path."
        )
    for name in ("alpha", "beta", "gamma"):
        standing = getattr(settings, name) == type(settings).model_fields[name].default
        if name in given and not standing and (settings.update != "discounted" or settings.algorithm not in _REGRETS):
            yield f"{name}={getattr(settings, name)} goes with update=discounted only, not update={settings.update}."
