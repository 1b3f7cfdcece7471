"""What an iteration's scalars are made of: chunks summed up one after another, in their order."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from actors.sampling.traversals import Traversals

_SAMPLING = "time/sampling_seconds"
_RATES = {"states": "throughput/states_per_second", "rows": "throughput/rows_per_second"}


@dataclass(frozen=True)
class Summary:
    """A chunk without its rows: states visited, advantage rows, their target entries and the sum of their squares."""

    states: int
    rows: int
    entries: int
    squares: float
    metrics: dict[str, float]

    @classmethod
    def of(cls, result: Traversals) -> "Summary":
        """Of the rows that a chunk gave."""
        target = result.advantage["target"]
        squares = float(np.square(target, dtype=np.float64).sum())
        return cls(result.states, len(target), target.size, squares, result.metrics)


class Tally:
    """Scalars of an iteration's rows over all its chunks: the largest of a maximum, the rows' mean of the rest.

    `target_scale/advantage` is the root mean square of the sampled advantages, in chips.
    """

    def __init__(self) -> None:
        self.states = 0
        self.rows = 0
        self._entries = 0
        self._squares = 0.0
        self._largest: dict[str, float] = {}
        self._sums: dict[str, float] = {}

    def add(self, summary: Summary) -> None:
        """Enter the next chunk."""
        self.states += summary.states
        self.rows += summary.rows
        self._entries += summary.entries
        self._squares += summary.squares
        for name, value in summary.metrics.items():
            if name.endswith("/max"):
                self._largest[name] = max(value, self._largest.get(name, value))
            else:
                self._sums[name] = self._sums.get(name, 0.0) + summary.rows * value

    def metrics(self) -> dict[str, float]:
        """The scalars, by slash names."""
        means = {name: total / max(self.rows, 1) for name, total in self._sums.items()}
        scale = math.sqrt(self._squares / max(self._entries, 1))
        return means | self._largest | {"target_scale/advantage": scale}


def of_players(metrics: Sequence[dict[str, float]]) -> dict[str, float]:
    """Both players' scalars, each name with its player."""
    return {f"{name}_{player}": value for player, own in enumerate(metrics) for name, value in own.items()}


class Meter:
    """Scalars gathered since the last `take`."""

    def __init__(self) -> None:
        self._metrics: dict[str, float] = {}
        self._counts = dict.fromkeys(_RATES, 0)

    def set(self, metrics: dict[str, float], suffix: str = "") -> None:
        """Take scalars over; `suffix` is appended to their names."""
        self._metrics |= {name + suffix: value for name, value in metrics.items()}

    def filled(self, player: int, size: int, capacity: int, seen: int) -> None:
        """Enter how the player's advantage rows stand."""
        self.set({"buffer/fill_advantage": size / capacity, "buffer/seen_advantage": float(seen)}, f"_{player}")

    def sampled(self, traverser: int, tally: Tally) -> None:
        """Enter what was sampled for a traverser."""
        self.set(tally.metrics(), f"_{traverser}")
        self._counts["states"] += tally.states
        self._counts["rows"] += tally.rows

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Adds the block's duration to `time/<what>_seconds`."""
        began = time.perf_counter()
        yield
        name = f"time/{what}_seconds"
        self._metrics[name] = self._metrics.get(name, 0.0) + time.perf_counter() - began

    def take(self) -> dict[str, float]:
        """Everything since the last call; rates are of both players, over the time that sampling took."""
        metrics, counts = self._metrics, self._counts
        if _SAMPLING in metrics:
            metrics |= {rate: counts[what] / metrics[_SAMPLING] for what, rate in _RATES.items()}
        self._metrics, self._counts = {}, dict.fromkeys(_RATES, 0)
        return metrics
