"""A fit that diverges is told as one sentence: whose, when, and what to lower."""

from typing import Any

import pytest
from oracles.tiny_runs import MERGED, RESERVOIR

from actors.strategies.strategy import TableProfile
from dream import config, wiring
from dream.errors import DivergenceError, DreamError


def raising(*_: Any, **__: Any) -> None:
    raise FloatingPointError("the fit diverged: loss nan, gradient norm inf")


def built(settings: list[str]) -> wiring.System:
    return wiring.System.build(config.load("kuhn-dream-avg-quick", settings))


@pytest.mark.parametrize("settings", [MERGED, RESERVOIR], ids=["merged", "reservoir"])
@pytest.mark.parametrize("player", [0, 1])
def test_a_regression_that_diverges_names_player_iteration_and_remedy(
    settings: list[str], player: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = built([*settings, "advantage.learning_rate=0.25", "average.clip=7"]).runtime.parts
    assert parts.average is not None
    assert parts.strategy_rows is not None
    for name, fit, rows, remedy in (
        ("advantage", parts.advantage[player], parts.advantage_rows[player], "lower advantage.learning_rate=0.25 or"),
        ("average", parts.average[player], parts.strategy_rows[player], "or average.clip=7."),
    ):
        monkeypatch.setattr(fit, "_feed", lambda store: None)
        monkeypatch.setattr(fit.learner, "fit", raising)
        with pytest.raises(DivergenceError) as caught:
            fit.fit(3, rows)  # type: ignore[arg-type]
        message = str(caught.value)
        assert f"iteration 3, {name} network of player {player}: the fit diverged: loss nan" in message
        assert remedy in message


@pytest.mark.parametrize("settings", [MERGED, RESERVOIR], ids=["merged", "reservoir"])
def test_a_baseline_that_diverges_names_itself(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = built(settings).runtime.parts
    assert parts.baseline is not None
    assert parts.transitions is not None
    for name in ("fit", "fit_merged"):
        monkeypatch.setattr(parts.baseline._learner, name, raising)
    profile: Any = object.__new__(TableProfile)  # is not asked
    with pytest.raises(DreamError, match=r"iteration 2, baseline network: .* lower baseline\.learning_rate=0\.003 or"):
        parts.baseline.fit(2, parts.transitions, profile)
