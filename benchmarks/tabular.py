"""The laboratory's solvers against OpenSpiel's C++ ones, in node touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyspiel

from benchmarks.measure import Budget, Result, Target, Work, compare
from dream.laboratory.settings import LabSettings
from dream.laboratory.solve import flat_game
from dream.laboratory.solvers import make

OPENSPIEL = "OpenSpiel's {} (C++)"
_OURS: Mapping[str, tuple[dict[str, Any], Target | None]] = {
    "external sampling": ({"algorithm": "es-mccfr"}, Target(rate=5e6)),
    "outcome sampling": ({"algorithm": "os-mccfr"}, None),
    "full width": ({"algorithm": "cfr"}, None),
}


def _theirs(kind: str, game: Any) -> tuple[str, Callable[[], None]]:
    """A solver's name and its iteration."""
    if kind == "external sampling":
        return "ExternalSamplingMCCFRSolver", pyspiel.ExternalSamplingMCCFRSolver(game, 1).run_iteration
    if kind == "outcome sampling":
        return "OutcomeSamplingMCCFRSolver", pyspiel.OutcomeSamplingMCCFRSolver(game, 0.6, 1).run_iteration
    return "CFRSolver", pyspiel.CFRSolver(game).evaluate_and_update_policy


def tabular_solvers(budget: Budget, game: str = "leduc", touches: int = 200_000) -> list[Result]:
    """Iterations of ours and of OpenSpiel's; an iteration of either enters as many nodes as one of ours does."""
    flat = flat_game(game)
    results = []
    for kind, (settings, target) in _OURS.items():
        solver = make(flat, LabSettings(game=game, **settings), seed=1)
        solver.run(touches)
        per_iteration = solver.touches / solver.iterations
        name, iterate = _theirs(kind, pyspiel.load_game(flat.game.description.game_string))
        results += compare(
            "tabular_solvers",
            f"{game}, {kind}",
            "touches",
            _ours(solver, touches),
            {OPENSPIEL.format(name): _calls(iterate, per_iteration)},
            budget,
            {"": target} if target else None,
        )
    return results


def _ours(solver: Any, touches: int) -> Work:
    def work() -> float:
        before = solver.touches
        solver.run(before + touches)
        return float(solver.touches - before)

    return work


def _calls(iterate: Callable[[], None], touches: float) -> Work:
    def work() -> float:
        iterate()
        return touches

    return work
