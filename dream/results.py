"""What a run hands back: its evaluations and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from dream.store.places import Location

__all__ = ["EVALUATION_KEYS", "Evaluation", "Result"]


class Evaluation(TypedDict):
    """One evaluation, with the keys that `--json` and `metrics.jsonl` share.

    `exploitability_chips` is NashConv / 2 in the game's payoff unit; `exploitability_milli` is the same in
    thousandths of `unit`'s ante or big blind (`mA/g`, `mbb/g` or `m/g`). `states` are decision nodes and
    terminals entered while sampling; `seconds` is the run's own time, over all its sittings.
    """

    iteration: int
    states: int
    seconds: float
    nash_conv_chips: float
    exploitability_chips: float
    exploitability_milli: float
    unit: str
    average: str


EVALUATION_KEYS: tuple[str, ...] = tuple(Evaluation.__annotations__)


@dataclass(frozen=True)
class Result:
    """Where a run stands after training, and all evaluations that it has made so far.

    `iteration`, `states` (sampled so far) and `seconds` are the run's own; the last evaluation may be of an
    earlier iteration. The four values of the last evaluation are None when nothing was evaluated.
    """

    run_dir: Location
    iteration: int
    states: int
    seconds: float
    evaluations: Sequence[Evaluation] = field(default_factory=tuple)
    interrupted: bool = False

    @property
    def last(self) -> Evaluation | None:
        """The newest evaluation, if any."""
        return self.evaluations[-1] if self.evaluations else None

    @property
    def nash_conv_chips(self) -> float | None:
        """NashConv of the last evaluation, in chips (the game's payoff unit)."""
        return self.last["nash_conv_chips"] if self.last else None

    @property
    def exploitability_chips(self) -> float | None:
        """NashConv / 2 of the last evaluation, in chips."""
        return self.last["exploitability_chips"] if self.last else None

    @property
    def exploitability_milli(self) -> float | None:
        """Exploitability of the last evaluation in thousandths; `unit` names of what."""
        return self.last["exploitability_milli"] if self.last else None

    @property
    def unit(self) -> str | None:
        """`mA/g`, `mbb/g` or `m/g`."""
        return self.last["unit"] if self.last else None

    @property
    def average(self) -> str | None:
        """Which average strategy was evaluated: `bank` or `network`."""
        return self.last["average"] if self.last else None

    def as_json(self) -> dict[str, Any]:
        """The document of `--json`: the last evaluation, the run, and every evaluation as a list.

        `iteration`, `states` and `seconds` belong to the last evaluation where there is one;
        `completed_iterations` is where the run stands.
        """
        own: dict[str, Any] = dict.fromkeys(EVALUATION_KEYS)
        own |= {"iteration": self.iteration, "states": self.states, "seconds": self.seconds}
        return {
            "run_dir": str(self.run_dir),
            "completed_iterations": self.iteration,
            "interrupted": self.interrupted,
            **own,
            **(dict(self.last) if self.last else {}),
            "evaluations": [dict(each) for each in self.evaluations],
        }
