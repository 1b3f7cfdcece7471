"""What chance did in a run, and how far sampled regrets scatter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dream.laboratory.flat_game import Flat, FlatGame, Table
from dream.laboratory.kernels.arrays import Streams
from dream.laboratory.settings import LabSettings
from dream.laboratory.solvers import Solver, frozen


def chance_diagnostics(flat: FlatGame, streams: Streams) -> dict[str, Any]:
    """Visits and frequency errors of a run's chance nodes; NaN where no chance node was visited.

    `chance_nodes`: how many the game has. `chance_nodes_visited`. `visited_once`: share of the visited ones with one
    visit. `visits_quartiles` [3]: of the visited ones. `frequency_error`: mean over the visited nodes, weighted by
    visits, of max_o |share of o - p(o)|; `frequency_error_scaled`: largest over the nodes of that error times
    N / log(N + 1), N the node's visits, which stays below 3 for a Weyl stream that is never reset.
    """
    visits = streams.outcomes.sum(axis=1)
    seen = visits[visits > 0]
    if len(seen) == 0:
        nothing = float("nan")
        return {
            "chance_nodes": len(visits),
            "chance_nodes_visited": 0,
            "visited_once": nothing,
            "visits_quartiles": np.full(3, nothing),
            "frequency_error": nothing,
            "frequency_error_scaled": nothing,
        }
    error = frequency_errors(flat, streams)[visits > 0]
    return {
        "chance_nodes": len(visits),
        "chance_nodes_visited": len(seen),
        "visited_once": float((seen == 1).mean()),
        "visits_quartiles": np.quantile(seen, [0.25, 0.5, 0.75]),
        "frequency_error": float(np.average(error, weights=seen)),
        "frequency_error_scaled": float((error * seen / np.log(seen + 1.0)).max()),
    }


def frequency_errors(flat: FlatGame, streams: Streams) -> NDArray[np.float64]:
    """[C] max_o |share of outcome o - p(o)| of each chance node; NaN where it was not visited."""
    visits = streams.outcomes.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(streams.outcomes / visits - flat.tree.law).max(axis=1))


def regret_scatter(solver: Solver, seed: int, traversals: int = 2000) -> float:
    """Mean over all (information state, action) of the variance of one traversal's estimate, in chips^2.

    Under the solver's current strategies, with its baselines as they stand; the solver is left as it is. `traversals`
    by each player, with random numbers of their own.
    """
    twin = frozen(solver.flat, solver.settings, seed, solver.current())
    for copy, original in zip(twin.corrections(), solver.corrections(), strict=True):
        copy[:] = original
    twin.run(np.iinfo(np.int64).max, traversals)
    mean = twin.tables.moments[0] / traversals
    return float((twin.tables.moments[1] / traversals - mean**2).mean())


def regret_moments(
    flat: FlatGame, settings: LabSettings, strategy: Table, traverser: int, traversals: int, seed: int
) -> tuple[Table, Table]:
    """Mean and variance [S, A] of one traversal's estimates under a fixed `strategy`; nothing is learned meanwhile.

    Estimates are sampled instantaneous regrets, or for the ftrl family the estimates g of both players.
    """
    solver = frozen(flat, settings, seed, strategy)
    solver.advance(np.iinfo(np.int64).max, traversals, (traverser, traverser + 1))
    mean: Flat = solver.tables.moments[0] / traversals
    variance: Flat = np.maximum(solver.tables.moments[1] / traversals - mean**2, 0.0)
    return flat.table(mean), flat.table(variance)
