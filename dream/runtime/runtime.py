"""What the training loop asks of the place where it runs."""

from collections.abc import Callable, Mapping, Sequence
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

    def begin_averages(self, iteration: int) -> Callable[[], tuple[list[Parameters], dict[str, float]]]:
        """Fit both players' average networks from scratch to all strategy rows of now; leaves no trace.

        The call of what is returned gives networks and metrics. Only one such fit may be begun and not ended.
        """
        ...

    def take_metrics(self) -> dict[str, float]:
        """Scalars gathered since the last call, by slash names."""
        ...

    def begin_snapshot(self) -> Callable[[], dict[str, Snapshot]]:
        """Everything needed to go on, by part, as it stands now: what the call of what is returned gives.

        In one process the arrays are views, to be written before anything changes.
        """
        ...

    def restore(self, parts: Mapping[str, Snapshot]) -> None:
        """Continue from a snapshot."""
        ...

    def close(self) -> None:
        """Let go of everything that works for the run."""
        ...
