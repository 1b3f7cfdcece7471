"""One run: exploitability along the way, the value it ends at, and what the chance streams did."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.games.registry import load
from actors.games.tree import TreeGame
from actors.sampling import lanes
from dream.evaluation.exploitability import exploitability
from dream.laboratory.diagnostics import chance_diagnostics, regret_scatter
from dream.laboratory.flat_game import FlatGame
from dream.laboratory.settings import LabSettings
from dream.laboratory.solvers import Solver, make

_SCATTER = 0x5CA  # purpose of the seed of `regret_scatter`


@dataclass(frozen=True)
class Curve:
    """What a run was like at its points. Exploitability is NashConv / 2 in chips, per game and seat."""

    touches: NDArray[np.int64]  # [k] node touches really used: the iteration that crosses a budget is finished
    iterations: NDArray[np.int64]  # [k]
    average: NDArray[np.float64]  # [k] exploitability of the average strategy
    last: NDArray[np.float64]  # [k] exploitability of the last iterate
    value: float  # player 0's payoff in chips under the final average strategy
    diagnostics: dict[str, Any] = field(default_factory=dict)  # `chance_diagnostics`, and `regret_scatter` if sampled


def solve(settings: LabSettings, seed: int, touches: int, points: Sequence[int]) -> Curve:
    """Run a solver for `touches` node touches and measure it at `points`, budgets of touches in ascending order.

    The same settings and seed give the same run bit for bit, whatever the points are. Raises `ValueError` for points
    that do not ascend from 1 to `touches`, `GameError` for a game that cannot be enumerated.
    """
    if len(points) == 0 or points[0] < 1 or points[-1] > touches or any(np.diff(points) <= 0):
        raise ValueError(f"points={list(points)} must ascend, from 1 to touches={touches}, at least one of them.")
    flat = flat_game(settings.game)
    solver = make(flat, settings, seed)
    rows = []
    for point in points:
        solver.run(point)
        rows.append((solver.touches, solver.iterations, *_exploitabilities(flat.game, solver)))
    solver.run(touches)
    used, iterations, average, last = zip(*rows, strict=True)
    return Curve(
        touches=np.array(used, np.int64),
        iterations=np.array(iterations, np.int64),
        average=np.array(average),
        last=np.array(last),
        value=flat.game.sequences.value(solver.average()),
        diagnostics=_diagnostics(solver, seed),
    )


@lru_cache(maxsize=8)
def flat_game(name: str) -> FlatGame:
    """The game called `name`, enumerated; kept for the next run. Raises `GameError`."""
    game = load(name, "tree")
    assert isinstance(game, TreeGame)
    return FlatGame.build(game)


def _diagnostics(solver: Solver, seed: int) -> dict[str, Any]:
    found = chance_diagnostics(solver.flat, solver.streams)
    if solver.settings.algorithm != "cfr":
        found["regret_scatter"] = regret_scatter(solver, lanes.derive(seed, _SCATTER))
    return found


def _exploitabilities(game: TreeGame, solver: Any) -> tuple[float, float]:
    average, last = (
        exploitability(game, table)["exploitability_chips"] for table in (solver.average(), solver.current())
    )
    return average, last
