"""What the training loop asks of the place where it runs."""

from collections.abc import Sequence
from typing import Protocol

from actors.strategies.strategy import Profile
from buffers.frames import Snapshot
from learners.networks import Parameters


class Runtime(Protocol):
    """Samples rows into buffers and fits networks on them."""

    @property
    def states(self) -> int:
        """States visited since the start of the run."""
        ...

    def sample(self, iteration: int, traversers: Sequence[int], profile: Profile) -> None:
        """Play the iteration's traversals of each of `traversers` under `profile`; the rows go to the buffers."""
        ...

    def fit_advantages(self, iteration: int, players: Sequence[int]) -> list[Parameters]:
        """Fit the players' advantage networks to all their rows."""
        ...

    def fit_baseline(self, iteration: int, profile: Profile) -> None:
        """Fit the baseline to the played transitions, with `profile` at the next decisions."""
        ...

    def fit_averages(self, iteration: int) -> list[Parameters]:
        """Fit both players' average networks from scratch to all strategy rows; leaves no trace."""
        ...

    def take_metrics(self) -> dict[str, float]:
        """Scalars gathered since the last call, by slash names."""
        ...

    def snapshot(self) -> dict[str, Snapshot]:
        """Everything needed to go on, by part."""
        ...

    def restore(self, parts: dict[str, Snapshot]) -> None:
        """Continue from `snapshot`."""
        ...

    def close(self) -> None:
        """Let go of everything that works for the run."""
        ...
