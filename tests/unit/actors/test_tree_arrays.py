"""The enumerated tree is OpenSpiel's game: same children in the same order, and broken games are refused."""

import numpy as np
import pyspiel
import pytest
from oracles import python_games, textbook
from oracles.bridge import case

from actors.games.batch import CHANCE, TERMINAL
from actors.games.description import GameError
from actors.games.enumeration import TooLargeError, enumerate_game
from actors.games.registry import open_game

GAMES = ["kuhn", "leduc", "goofspiel-4", python_games.SECRET]


def enumerated(name, limit=100_000):
    """Past the probe, which would refuse the game earlier."""
    python_games.register()
    return enumerate_game(*open_game(name), limit)


@pytest.mark.parametrize("name", GAMES)
def test_nodes_are_openspiels_breadth_first(name):
    here = case(name)
    arrays, keys = here.game.arrays, here.keys
    assert arrays.nodes == len(here.nodes)
    for node in here.nodes:
        k = node.number
        assert arrays.player[k] == node.player
        assert arrays.payoff[k] == node.payoff
        assert arrays.decision[k] == node.decision
        if not node.children:
            assert arrays.first_child[k] == -1
            continue
        assert [c.number for c in node.children] == list(
            range(arrays.first_child[k], arrays.first_child[k] + len(node.children))
        )
        if node.player >= 0:
            state = arrays.state[k]
            assert keys[state] == node.key
            assert np.flatnonzero(arrays.legal[state]).tolist() == node.actions
            assert arrays.rank[state][node.actions].tolist() == list(range(len(node.actions)))
        else:
            law = np.diff(np.r_[0.0, arrays.cdf[arrays.chance[k], : len(node.law) - 1], 1.0])
            np.testing.assert_allclose(law, node.law, atol=1e-12)


def test_sizes_are_the_known_ones():
    kuhn, leduc = case("kuhn").game, case("leduc").game
    assert (kuhn.arrays.nodes, kuhn.arrays.num_states) == (58, (6, 6))
    assert (leduc.arrays.nodes, leduc.arrays.num_states) == (9457, (468, 468))


@pytest.mark.parametrize("name", GAMES)
def test_walks_follow_openspiel(name):
    """Random play in a batch and in OpenSpiel states, move by move; batches taken apart on the way."""
    game, rng = case(name).game, np.random.default_rng(3)
    root = textbook.load(game.description.game_string).new_initial_state()
    batch, states = game.start(40), [root.clone() for _ in range(40)]
    while True:
        at = np.flatnonzero(batch.player == CHANCE)
        while len(at):
            ordinals = batch.step_chance(at, rng.random(len(at)))
            for lane, ordinal in zip(at, ordinals, strict=True):
                outcomes = [a for a, p in states[lane].chance_outcomes() if p > 0]
                states[lane].apply_action(outcomes[ordinal])
            at = np.flatnonzero(batch.player == CHANCE)
        over = np.array([s.is_terminal() for s in states])
        assert np.array_equal(batch.player == TERMINAL, over)
        payoffs = [s.returns()[0] if s.is_terminal() else 0.0 for s in states]
        assert batch.returns().tolist() == payoffs
        alive = np.flatnonzero(~over)
        if not len(alive):
            return
        index = rng.permutation(np.r_[alive, alive[:3]])
        batch, states = batch.take(index), [states[k].clone() for k in index]
        assert len(batch) == len(states)
        assert batch.player.tolist() == [s.current_player() for s in states]
        names = [game.arrays.names[k] for k in batch.information_state()]
        assert names == [s.information_state_string() for s in states]
        assert batch.legal().tolist() == [np.array(s.legal_actions_mask(), bool).tolist() for s in states]
        actions = np.array([rng.choice(s.legal_actions()) for s in states])
        batch.step(actions)
        for state, action in zip(states, actions, strict=True):
            state.apply_action(action)


@pytest.mark.parametrize("player", [0, 1])
def test_codecs_read_openspiels_tensors(player):
    """Tensors are divided by their largest entry per feature; Leduc's are bits, so they stay as they are."""
    here = case("leduc")
    game, seen = here.game, {}
    state = pyspiel.load_game("leduc_poker").new_initial_state()
    stack = [state]
    while stack:
        state = stack.pop()
        if not state.is_terminal():
            if not state.is_chance_node() and state.current_player() == player:
                seen[state.information_state_string()] = state.information_state_tensor()
            stack += [state.child(a) for a in state.legal_actions()]
    own = game.states_of(player)
    keys = np.arange(own.start, own.stop, dtype=np.int32)
    features, legal = game.state_codec(player).decode(keys)
    assert np.array_equal(features, np.array([seen[game.arrays.names[k]] for k in keys], np.float32))
    assert np.array_equal(legal, game.arrays.legal[own])


def test_uniforms_pick_outcomes_by_their_law():
    """(0.5, 0.3, 0.2): the inverse CDF is closed on the left, and 1 is never reached."""
    game = case(python_games.SECRET).game
    uniforms = np.array([0.0, 0.4999, 0.5, 0.7999, 0.8001, np.nextafter(1.0, 0.0)])
    ordinals = game.start(6).step_chance(np.arange(6), uniforms)
    assert ordinals.tolist() == [0, 0, 1, 1, 2, 2]


def test_outcomes_without_probability_are_left_out():
    arrays = enumerated("python_secret_zero_chance").arrays
    assert (arrays.chance_reach > 0).all()
    root = arrays.first_child[0]
    assert np.flatnonzero(arrays.player == CHANCE)[1:].tolist() == [root, root + 1]


def test_taking_lanes_leaves_the_others_alone():
    game = case("kuhn").game
    batch = game.start(3)
    batch.step_chance(np.arange(3), np.array([0.1, 0.5, 0.9]))
    batch.step_chance(np.arange(3), np.array([0.1, 0.5, 0.9]))
    twice = batch.take(np.array([2, 2, 0]))
    before = twice.node[1:].copy()
    twice.step(np.array([0, 1, 1]))
    other = batch.take(np.array([2, 0]))
    assert np.array_equal(other.node, before)
    assert twice.node[0] + 1 == twice.node[1]


def test_imperfect_recall_is_refused():
    with pytest.raises(GameError, match="imperfect recall: player 0 reaches information state"):
        enumerated("python_secret_forgetful")


def test_shared_tensors_are_refused():
    with pytest.raises(GameError, match=r"information states .* and .* of player \d share one tensor"):
        enumerated("python_secret_colliding")


def test_trees_beyond_the_limit_are_refused():
    with pytest.raises(TooLargeError, match="more than 9,456 histories"):
        enumerated("leduc", limit=9456)
    assert enumerated("leduc", limit=9457).arrays.nodes == 9457
