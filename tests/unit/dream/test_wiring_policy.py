"""The average strategy as an OpenSpiel policy: exactly what the run reported, by tree and by simulator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel
import pytest
from open_spiel.python.algorithms import exploitability
from oracles.tiny_runs import MERGED, RESERVOIR

import dream
from dream import config, wiring
from dream.adapters import openspiel
from dream.errors import UsageError
from dream.store import RunFolder


def train(folder: Path, algorithm: str, settings: list[str], iterations: int = 5) -> dream.Result:
    overrides = [*settings, f"iterations={iterations}"]
    return dream.train(f"kuhn-{algorithm}-quick", run_dir=folder, overrides=overrides, progress=False)


@pytest.fixture(scope="module")
def kuhn_run(tmp_path_factory: pytest.TempPathFactory) -> dream.Result:
    return train(tmp_path_factory.mktemp("policy") / "run", "dream", [*MERGED, "advantage.network.layer_norm=true"])


def decisions(game: Any) -> Iterator[Any]:
    stack = [game.new_initial_state()]
    while stack:
        state = stack.pop()
        if not state.is_terminal():
            if not state.is_chance_node():
                yield state
            stack.extend(state.child(action) for action in state.legal_actions())


def by_simulator(run: Path, iteration: int | None, *changes: str) -> openspiel.AveragePolicy:
    """The policy that a run of the same networks gives whose game is not enumerated."""
    settings = config.load(
        run / "config.yaml",
        ["sampling.backend=simulator", "advantage.buffer=reservoir", "baseline.merge=false", *changes],
    )
    system = wiring.System.build(settings)
    average = system.average(RunFolder.open(run))
    average._commit = RunFolder.open(run).checkpoints.load_newest()  # which names the tree: not to be compared
    return openspiel.make_policy(average, iteration)


def test_openspiel_measures_what_the_run_reported(kuhn_run: dream.Result) -> None:
    reported = {row["iteration"]: row["nash_conv_chips"] for row in kuhn_run.evaluations}
    for iteration in (1, 2, 5):
        policy = dream.load_policy(kuhn_run.run_dir, iteration)
        assert exploitability.nash_conv(policy.game, policy) == pytest.approx(reported[iteration], abs=1e-9)
    newest = dream.load_policy(kuhn_run.run_dir)
    assert exploitability.exploitability(newest.game, newest) == pytest.approx(kuhn_run.exploitability_chips, abs=1e-9)


def test_average_networks_are_measured_the_same(tmp_path: Path) -> None:
    result = train(tmp_path, "deep-cfr", MERGED, iterations=2)
    policy = dream.load_policy(tmp_path)
    assert exploitability.nash_conv(policy.game, policy) == pytest.approx(result.nash_conv_chips, abs=1e-9)
    with pytest.raises(UsageError, match="iteration 1 cannot be fitted any more"):
        dream.load_policy(tmp_path, 1)


@pytest.mark.parametrize("iteration", [1, 2, 5])
def test_the_simulators_bank_is_the_trees(kuhn_run: dream.Result, iteration: int) -> None:
    tree = dream.load_policy(kuhn_run.run_dir, iteration)
    simulator = by_simulator(kuhn_run.run_dir, iteration)
    assert isinstance(simulator, openspiel.BankPolicy)
    for state in decisions(tree.game):
        theirs, own = tree.action_probabilities(state), simulator.action_probabilities(state)
        assert own == pytest.approx(theirs, abs=1e-5)


def test_a_full_memory_changes_nothing(kuhn_run: dream.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = by_simulator(kuhn_run.run_dir, None)
    assert isinstance(simulator, openspiel.BankPolicy)
    expected = [simulator.action_probabilities(state) for state in decisions(simulator.game)]
    monkeypatch.setattr(simulator, "_room", 1)
    assert [simulator.action_probabilities(state) for state in decisions(simulator.game)] == expected


def test_a_bank_without_own_reach_is_noticed(kuhn_run: dream.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named mutant: entries weighed with t alone, whatever their own earlier actions."""
    monkeypatch.setattr(openspiel.BankPolicy, "_reach", lambda self, state, player: np.ones(len(self._iterations)))
    tree, mutant = dream.load_policy(kuhn_run.run_dir), by_simulator(kuhn_run.run_dir, None)
    gaps = [
        abs(tree.action_probabilities(state)[action] - probability)
        for state in decisions(tree.game)
        for action, probability in mutant.action_probabilities(state).items()
    ]
    assert max(gaps) > 1e-3


def test_the_simulators_average_network_is_the_trees(tmp_path: Path) -> None:
    """The networks are fitted once; both read them."""
    train(tmp_path / "run", "deep-cfr", [*RESERVOIR, "sampling.backend=simulator"], iterations=2)
    policy = dream.load_policy(tmp_path / "run")
    assert isinstance(policy, openspiel.NetworkPolicy)
    settings = config.load(tmp_path / "run" / "config.yaml", ["sampling.backend=tree"])
    tree = wiring.System.build(settings)
    simulator = wiring.System.build(config.load(tmp_path / "run" / "config.yaml"))
    networks = simulator.average(RunFolder.open(tmp_path / "run")).networks(2)
    for player, parameters in enumerate(networks):
        keys = np.arange(6, dtype=np.int32) + 6 * player
        game = tree.game
        table = tree.assembly.players.from_average(player, parameters).probabilities(
            keys, game.state_codec(player).decode(keys)[1]
        )
        rows = {
            game.arrays.names[key]: row  # type: ignore[union-attr]
            for key, row in zip(keys, table, strict=True)
        }
        for state in decisions(policy.game):
            if state.current_player() == player:
                row = rows[state.information_state_string()]
                assert policy.action_probabilities(state) == pytest.approx(dict(enumerate(row)), abs=1e-5)


def test_questions_without_an_answer_are_refused(kuhn_run: dream.Result) -> None:
    policy = dream.load_policy(kuhn_run.run_dir)
    state = policy.game.new_initial_state()
    with pytest.raises(ValueError, match="nobody acts"):
        policy.action_probabilities(state)
    state.apply_action(0)
    state.apply_action(1)
    with pytest.raises(ValueError, match="player 1 is not to act"):
        policy.action_probabilities(state, 1)
    assert policy.action_probabilities(state, 0) == policy.action_probabilities(state)
    with pytest.raises(UsageError, match="iteration 6 is not stored"):
        dream.load_policy(kuhn_run.run_dir, 6)


def test_states_of_another_game_are_refused(kuhn_run: dream.Result) -> None:
    policy = dream.load_policy(kuhn_run.run_dir)
    for other in ("leduc_poker", "kuhn_poker(players=3)", "goofspiel(imp_info=True,num_cards=3)"):
        state = pyspiel.load_game(other).new_initial_state()
        with pytest.raises(ValueError, match=r"plays kuhn_poker\(\), and the state is of " + other.split("(")[0]):
            policy.action_probabilities(state, 0)
    same = pyspiel.load_game("kuhn_poker(players=2)").new_initial_state()
    for action in (0, 1):
        same.apply_action(action)
    assert sum(policy.action_probabilities(same).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("backend", ["tree", "simulator"])
def test_states_of_a_simultaneous_original_are_understood(tmp_path: Path, backend: str) -> None:
    game_string = "goofspiel(imp_info=True,num_cards=3,points_order=descending)"
    settings = [*RESERVOIR, f"game={game_string}", f"sampling.backend={backend}", "sampling.traversals=20"]
    train(tmp_path, "sd-cfr", settings, iterations=3)
    policy = dream.load_policy(tmp_path)
    original = pyspiel.load_game(game_string).new_initial_state()
    turn = policy.game.new_initial_state()
    for bids in ([1, 2], [2, 0]):
        with pytest.raises(ValueError, match="both players act"):
            policy.action_probabilities(original)
        assert policy.action_probabilities(original, 0) == policy.action_probabilities(turn)
        turn.apply_action(bids[0])
        assert policy.action_probabilities(original, 1) == policy.action_probabilities(turn)
        turn.apply_action(bids[1])
        original.apply_actions(bids)
    with pytest.raises(ValueError, match="nobody acts"):
        policy.action_probabilities(original)
