"""Do weyl chance streams help deep methods? External-sampling SD-CFR and DREAM on Kuhn and Leduc; not published."""

from __future__ import annotations

from dream.laboratory.experiments import Arm
from dream.laboratory.study import Comparison, Study

__all__ = ["STUDY"]

_CHANCE = ("iid", "antithetic", "weyl")
_LEARNERS = ("table", "network")
# Leduc: the published numbers of traversals, at which both methods visit about as many states.
_TRAVERSALS = {("kuhn", "sd-cfr"): 50, ("kuhn", "dream"): 100, ("leduc", "sd-cfr"): 346, ("leduc", "dream"): 900}
# Fits of networks take most of the time.
_ITERATIONS = {("kuhn", "table"): 100, ("kuhn", "network"): 50, ("leduc", "table"): 150, ("leduc", "network"): 60}


def _job(game: str, algorithm: str, learner: str, chance: str) -> dict[str, object]:
    """A preset and the settings laid over it; the task adds the seed."""
    iterations = _ITERATIONS[game, learner]
    settings = {
        "iterations": iterations,
        "sampling.traversals": _TRAVERSALS[game, algorithm],
        "sampling.chance": chance,
        "advantage.learner": learner,
        "evaluation.every": iterations // 10,
        "checkpoint.every": iterations // 10,
    }
    if algorithm == "dream":
        settings["baseline.learner"] = learner
    return {"preset": f"{game}-{algorithm}-quick", "overrides": [f"{key}={value}" for key, value in settings.items()]}


def _name(game: str, algorithm: str, learner: str, chance: str) -> str:
    return f"{game} {algorithm} {learner} {chance}"


STUDY = Study(
    name="deep-chance",
    summary="chance streams under SD-CFR and DREAM, with exact tables and small networks, on Kuhn and Leduc",
    arms=tuple(
        Arm(
            _name(game, algorithm, learner, chance),
            f"{game} {algorithm} {learner}",
            _job(game, algorithm, learner, chance),
        )
        for game, algorithm in _TRAVERSALS
        for learner in _LEARNERS
        for chance in _CHANCE
    ),
    comparisons=tuple(
        Comparison(
            f"{game} {algorithm} {learner}: {chance} against iid",
            _name(game, algorithm, learner, "iid"),
            _name(game, algorithm, learner, chance),
        )
        for game, algorithm in _TRAVERSALS
        for learner in _LEARNERS
        for chance in _CHANCE[1:]
    ),
    seeds=20,
    task="dream.lab_training:train_seed",
    x_label="states visited",
    counted="states visited: decisions of both players and terminals entered while sampling; chance nodes do not count",
    notes=(
        "The bank's average strategy. Nobody has published this.",
        "table is the exact fit in place of networks, also in place of DREAM's baseline network.",
    ),
)
