"""A fit that diverges is told as one sentence: whose, when, and what to lower."""

from typing import Any

import pytest
from oracles.tiny_runs import MERGED, RESERVOIR

from actors.strategies.strategy import TableProfile
from buffers.sharded import buffers_of
from dream import config, wiring
from dream.errors import DivergenceError, DreamError
from dream.runtime.assembly import TRANSITIONS


def raising(*_: Any, **__: Any) -> None:
    raise FloatingPointError("the fit diverged: loss nan, gradient norm inf")


def built(settings: list[str]) -> wiring.System:
    return wiring.System.build(config.load("kuhn-dream-avg-quick", settings))


@pytest.mark.parametrize("settings", [MERGED, RESERVOIR], ids=["merged", "reservoir"])
@pytest.mark.parametrize("player", [0, 1])
def test_a_regression_that_diverges_names_player_iteration_and_remedy(
    settings: list[str], player: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assembly = built([*settings, "advantage.learning_rate=0.25", "average.clip=7"]).assembly
    fits: list[tuple[str, Any, str]] = [
        ("advantage", assembly.advantage_fit(player), "lower advantage.learning_rate=0.25 or"),
        ("average", assembly.average_fit(player), "or average.clip=7."),
    ]
    for name, fit, remedy in fits:
        monkeypatch.setattr(fit, "_feed", lambda buffers: None)
        monkeypatch.setattr(fit.learner, "fit", raising)
        with pytest.raises(DivergenceError) as caught:
            fit.fit(3, [])
        message = str(caught.value)
        assert f"iteration 3, {name} network of player {player}: the fit diverged: loss nan" in message
        assert remedy in message


@pytest.mark.parametrize("settings", [MERGED, RESERVOIR], ids=["merged", "reservoir"])
def test_a_baseline_that_diverges_names_itself(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assembly = built(settings).assembly
    fit = assembly.baseline_fit()
    for name in ("fit", "fit_merged"):
        monkeypatch.setattr(fit._learner, name, raising)
    profile: Any = object.__new__(TableProfile)  # is not asked
    with pytest.raises(DreamError, match=r"iteration 2, baseline network: .* lower baseline\.learning_rate=0\.003 or"):
        fit.fit(2, buffers_of(assembly.store(TRANSITIONS)), profile)
