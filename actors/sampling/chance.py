"""Chance streams: where the uniforms of chance nodes come from.

iid: the lane's own number. antithetic: pairs u, 1 - u per concrete chance node. weyl: one persistent stream per
concrete chance node c, u_n = (phi_c + n g) mod 1 with g = (sqrt(5) - 1) / 2, phi_c fixed by the run's seed and
the node's identity, n the number of draws that the node has consumed (Correlated Chance Sampling, 2026). Every
draw is marginally uniform, so the chance law, the estimator and the regret update are untouched.
"""

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.sampling import lanes

Kind = Literal["iid", "antithetic", "weyl"]
GOLDEN_RATIO = (5.0**0.5 - 1.0) / 2.0


class ChanceStreams(Protocol):
    """Turns the lanes' own uniforms into the uniforms that chance nodes consume."""

    def draw(self, nodes: NDArray[np.uint64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """[m] uniforms for draws at `nodes` [m], in lane order; the same node may occur many times."""
        ...

    def snapshot(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.float64]]:
        """The streams' positions."""
        ...

    def restore(self, snapshot: dict[str, NDArray[np.uint64]]) -> None:
        """Continue from `snapshot`."""
        ...


class Iid:
    """Independent draws: no state."""

    def draw(self, nodes: NDArray[np.uint64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """The lanes' own numbers."""
        return uniforms

    def snapshot(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.float64]]:
        """Nothing to remember."""
        return {}

    def restore(self, snapshot: dict[str, NDArray[np.uint64]]) -> None:
        """Nothing to restore."""


class _Counted:
    """Counts the draws of every node; sorted identities, so that look-ups are one searchsorted."""

    def __init__(self) -> None:
        self._nodes = np.zeros(0, np.uint64)
        self._count = np.zeros(0, np.int64)

    def _positions(self, nodes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each draw: the node's row, and n, its number among the node's draws, in lane order."""
        fresh = np.setdiff1d(nodes, self._nodes)
        if len(fresh):
            self._insert(fresh)
        row = np.searchsorted(self._nodes, nodes)
        order = np.argsort(row, kind="stable")
        grouped = row[order]
        first = np.r_[True, grouped[1:] != grouped[:-1]]
        starts = np.flatnonzero(first)
        rank = np.arange(len(row)) - np.repeat(starts, np.diff(np.r_[starts, len(row)]))
        n = np.empty(len(row), np.int64)
        n[order] = self._count[grouped] + rank
        self._count += np.bincount(row, minlength=len(self._nodes))
        return row, n

    def _insert(self, fresh: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Add unseen nodes; returns where they went."""
        at = np.searchsorted(self._nodes, fresh)
        self._nodes = np.insert(self._nodes, at, fresh)
        self._count = np.insert(self._count, at, 0)
        return at

    def snapshot(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.float64]]:
        """Identities and draw counts."""
        return {"nodes": self._nodes.copy(), "count": self._count.copy()}

    def restore(self, snapshot: dict[str, NDArray[np.uint64]]) -> None:
        """Continue from `snapshot`."""
        self._nodes = snapshot["nodes"].astype(np.uint64)
        self._count = snapshot["count"].astype(np.int64)


class Weyl(_Counted):
    """Golden-ratio rotation per chance node: outcome frequencies deviate by O(log N / N)."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = np.uint64(lanes.derive(seed, 0x7E71))

    def draw(self, nodes: NDArray[np.uint64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """u_n = (phi_c + n g) mod 1."""
        _, n = self._positions(nodes)
        phase = lanes.uniform(lanes.child(nodes ^ self._seed, np.zeros(len(nodes), np.int64)))
        return np.asarray((phase + n * GOLDEN_RATIO) % 1.0)


class Antithetic(_Counted):
    """Pairs per chance node: an odd draw mirrors the even one before it."""

    def __init__(self) -> None:
        super().__init__()
        self._last = np.zeros(0, np.float64)

    def _insert(self, fresh: NDArray[np.uint64]) -> NDArray[np.int64]:
        at = super()._insert(fresh)
        self._last = np.insert(self._last, at, 0.0)
        return at

    def draw(self, nodes: NDArray[np.uint64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """U on even draws, 1 - u of the draw before (kept below 1) on odd ones."""
        row, n = self._positions(nodes)
        result = uniforms.copy()
        order = np.lexsort((n, row))
        row, n = row[order], n[order]
        before = np.r_[0.0, uniforms[order][:-1]]
        opens = np.r_[True, row[1:] != row[:-1]]
        before = np.where(opens, self._last[row], before)
        odd = n % 2 == 1
        result[order[odd]] = np.minimum(1.0 - before[odd], np.nextafter(1.0, 0.0))
        self._last[row] = uniforms[order]
        return result

    def snapshot(self) -> dict[str, NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.float64]]:
        """Identities, draw counts and the numbers that wait for their mirror."""
        return {**super().snapshot(), "last": self._last.copy()}

    def restore(self, snapshot: dict[str, NDArray[np.uint64]]) -> None:
        """Continue from `snapshot`."""
        super().restore(snapshot)
        self._last = snapshot["last"].astype(np.float64)


def make(kind: Kind, seed: int) -> ChanceStreams:
    """Streams of a kind; `seed` fixes the phases of weyl streams."""
    if kind == "weyl":
        return Weyl(seed)
    return Antithetic() if kind == "antithetic" else Iid()
