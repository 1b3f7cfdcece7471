import subprocess
import sys

import numpy as np
import pyspiel
import pytest
from oracles import python_games

from actors.games import simulator
from actors.games.batch import CHANCE, TERMINAL
from actors.games.probe import Findings, probe
from actors.games.registry import load, open_game
from actors.games.simulator import SimulatorGame


@pytest.fixture(autouse=True, scope="module")
def _registered():
    python_games.register()


def deal(batch, rng):
    while (at := np.flatnonzero(batch.player == CHANCE)).size:
        batch.step_chance(at, rng.random(at.size))


def walk(game, lanes, seed, visit):
    """Uniform play; `visit(batch)` at every step where all lanes decide."""
    rng = np.random.default_rng(seed)
    batch = game.start(lanes)
    while True:
        deal(batch, rng)
        batch = batch.take(np.flatnonzero(batch.player != TERMINAL))
        if not len(batch):
            return
        visit(batch)
        legal = batch.legal()
        batch.step(np.argmax(np.where(legal, rng.random(legal.shape), -1.0), axis=1))


@pytest.mark.parametrize("name", ["leduc", "fhp", "universal_poker", python_games.SECRET])
def test_keys_decode_to_openspiels_tensors_and_masks(name):
    game = load(name, "simulator")
    scale = game.state_codec(0).layout.scale

    def check(batch):
        keys = batch.information_state()
        features, legal = game.state_codec(0).decode(keys)
        histories = game.history_codec().decode(batch.history())
        assert np.array_equal(batch.information_state(), keys)  # cut out of the history's keys this time
        states = batch._states
        for lane, state in enumerate(states):
            player = state.current_player()
            assert batch.player[lane] == histories.player[lane] == player
            np.testing.assert_allclose(features[lane] * scale, state.information_state_tensor(player), rtol=1e-6)
            both = state.information_state_tensor(0) + state.information_state_tensor(1)
            np.testing.assert_allclose(histories.features[lane] * np.tile(scale, 2), both, rtol=1e-6)
            assert legal[lane].tolist() == [bool(x) for x in state.legal_actions_mask()]

    walk(game, 60, 1, check)


@pytest.mark.parametrize("name", ["leduc", python_games.SECRET])
def test_the_slow_path_writes_the_same_keys(name):
    """Without OpenSpiel's observer the tensors come from lists."""
    game, description = open_game(name)
    findings = probe(game, description)
    fields = {**vars(findings), "fast_observer": False}
    keys = []
    for f in (findings, Findings(**fields)):
        seen = []
        walk(
            SimulatorGame(game, description, f),
            50,
            2,
            lambda b, seen=seen: seen.append((b.information_state(), b.history())),
        )
        keys.append(seen)
    for (state, history), (slow_state, slow_history) in zip(*keys, strict=True):
        assert np.array_equal(state, slow_state)
        assert np.array_equal(history, slow_history)


def test_outcomes_follow_the_inverse_cdf_of_the_law():
    game = load(python_games.SECRET, "simulator")
    uniforms = np.array([0.0, 0.4999, 0.5, 0.7999, 0.8001, np.nextafter(1.0, 0.0)])
    batch = game.start(len(uniforms))
    assert batch.step_chance(np.arange(len(uniforms)), uniforms).tolist() == [0, 0, 1, 1, 2, 2]
    assert [state.history()[0] for state in batch._states] == [0, 0, 1, 1, 2, 2]


def test_outcomes_without_probability_are_never_drawn():
    game = load("python_secret_zero_chance", "simulator")
    uniforms = np.array([0.0, 0.5999, 0.6, 0.99])
    batch = game.start(4)
    assert batch.step_chance(np.arange(4), uniforms).tolist() == [0, 0, 1, 1]
    assert [state.history()[0] for state in batch._states] == [0, 0, 2, 2]


def test_remembered_and_forgotten_laws_are_the_same(monkeypatch):
    def ordinals():
        game, rng, drawn = load("fhp", "simulator"), np.random.default_rng(5), []
        for _ in range(2):
            batch = game.start(40)
            while (at := np.flatnonzero(batch.player == CHANCE)).size:
                drawn.append(batch.step_chance(at, rng.random(at.size)))
        return np.concatenate(drawn)

    remembered = ordinals()
    monkeypatch.setattr(simulator, "_REMEMBERED_OUTCOMES", 0)
    monkeypatch.setattr(simulator, "_REMEMBERED_SUMS", 0)
    assert np.array_equal(remembered, ordinals())


def test_a_hidden_action_does_not_show_in_the_key_but_in_the_history():
    game = load(python_games.SECRET, "simulator")
    batch = game.start(2)
    for _ in range(2):
        batch.step_chance(np.arange(2), np.zeros(2))
    batch.step(np.array([python_games.PLAIN, python_games.HIDDEN]))
    assert batch.player.tolist() == [1, 0]
    short, long = batch.take(np.array([0])), batch.take(np.array([1]))
    long.step(np.array([python_games.DOUBLE]))
    assert np.array_equal(short.information_state(), long.information_state())
    assert not np.array_equal(short.history(), long.history())


def test_repeated_lanes_play_on_independently():
    game = load("leduc", "simulator")
    rng = np.random.default_rng(0)
    batch = game.start(3)
    deal(batch, rng)
    before = batch.information_state()
    batch = batch.take(np.array([2, 0, 2, 2]))
    assert np.array_equal(batch.information_state(), before[[2, 0, 2, 2]])
    batch.step(np.array([1, 2, 2, 1]))
    keys = batch.information_state()
    assert np.array_equal(keys[0], keys[3])
    assert not np.array_equal(keys[0], keys[2])
    assert batch._states[0].history() == batch._states[3].history()
    assert batch._states[0] is not batch._states[3]


def test_returns_are_player_zeros_chips_at_terminals_only():
    game = load("leduc", "simulator")
    batch = game.start(2)
    deal(batch, np.random.default_rng(0))
    batch.step(np.array([2, 2]))
    batch.step(np.array([0, 1]))  # lane 0: player 1 folds after the raise; lane 1 goes on to the board card
    assert batch.player.tolist() == [TERMINAL, CHANCE]
    assert batch.returns().tolist() == [1.0, 0.0]


def test_players_read_before_a_step_stay_as_they_were():
    game = load("kuhn", "simulator")
    batch = game.start(2)
    before = batch.player
    deal(batch, np.random.default_rng(0))
    assert before.tolist() == [CHANCE, CHANCE]
    assert batch.player.tolist() == [0, 0]


def test_chance_nodes_tell_histories_apart_and_are_the_same_in_every_process():
    code = (
        "import numpy as np; from actors.games.registry import load; b = load('leduc', 'simulator').start(30);"
        "n = [b.chance_nodes(np.arange(30))]; b.step_chance(np.arange(30), np.arange(30) / 30);"
        "n += [b.chance_nodes(np.arange(30))]; print(np.concatenate(n).tolist())"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    batch = load("leduc", "simulator").start(30)
    nodes = [batch.chance_nodes(np.arange(30))]
    ordinals = batch.step_chance(np.arange(30), np.arange(30) / 30)
    nodes += [batch.chance_nodes(np.arange(30))]
    assert output.strip() == str(np.concatenate(nodes).tolist())
    assert len(np.unique(nodes[0])) == 1
    assert len(np.unique(nodes[1])) == len(np.unique(np.column_stack([nodes[1], ordinals]), axis=0)) == 6


def test_an_unseen_value_is_refused_not_packed_wrongly():
    game, description = open_game("universal_poker")
    narrow = probe(game, description, episodes=1)
    with pytest.raises(ValueError, match="episodes of the probe"):
        walk(SimulatorGame(game, description, narrow), 200, 0, lambda batch: batch.information_state())


def test_empty_batches():
    batch = load("kuhn", "simulator").start(2).take(np.array([], np.int64))
    assert len(batch) == 0
    assert batch.returns().shape == batch.chance_nodes(np.array([], np.int64)).shape == (0,)


def test_openspiel_ids_are_as_assumed():
    assert (int(pyspiel.PlayerId.CHANCE), int(pyspiel.PlayerId.TERMINAL)) == (-1, -4)
