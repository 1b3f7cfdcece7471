"""Identity 8: the same rows for any chunk size and for both game backends."""

from functools import cache

import numpy as np
import pytest
from oracles import python_games
from oracles.bridge import case, random_table

from actors.games.registry import load
from actors.games.tree import TreeGame
from actors.sampling import chance, lanes
from actors.sampling.exact import ExactSampler
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import OutcomeSampler
from actors.strategies.strategy import StrategyProfile, TableProfile
from buffers.chunks import plan
from buffers.rows import concatenate

SMALL_POKER = (
    "universal_poker(betting=limit,numPlayers=2,numRounds=2,blind=5 10,firstPlayer=1 1,numSuits=2,numRanks=3,"
    "numHoleCards=1,numBoardCards=0 1,raiseSize=10 20,maxRaises=2 2)"
)
GAMES = ["kuhn", "leduc", "goofspiel-4", python_games.SECRET, SMALL_POKER]
KINDS = ["outcome", "baseline", "external"]
TRAVERSALS = 60
ITERATION, SEED = 3, 17


class Backend:
    """A game of one backend that plays and is judged by tables over the tree's numbers."""

    def __init__(self, name, simulated):
        self.tree = case(name).game
        self.game = load(name, "simulator") if simulated else self.tree
        rng = np.random.default_rng(31)
        self.table = random_table(self.tree, rng, pure=0.2)
        self.q = rng.normal(size=(self.tree.num_histories, self.tree.description.num_actions))
        self.numbers = ({}, {}, {})
        for p in (0, 1):
            keys = np.arange(self.tree.num_states, dtype=np.int32)[self.tree.states_of(p)]
            self.numbers[p].update(zip(_state_names(self.tree, p, keys), keys, strict=True))
        rows = np.arange(self.tree.num_histories, dtype=np.int32)
        self.numbers[2].update(zip(_history_names(self.tree, rows), rows, strict=True))

    def states(self, player, keys):
        """[n] the tree's numbers of information states."""
        if self.game is self.tree:
            return keys
        return np.array([self.numbers[player][name] for name in _state_names(self.game, player, keys)], np.int32)

    def histories(self, keys):
        """[n] the tree's numbers of decision histories (one of them, where nobody can tell two apart)."""
        names = _history_names(self.game, keys)
        return np.array([self.numbers[2][name] for name in names], np.int32)

    def profile(self):
        if self.game is self.tree:
            return TableProfile(self.table)
        return StrategyProfile((Translated(self, 0), Translated(self, 1)))

    def sample(self, kind, traverser, keys, streams):
        if kind == "external":
            sampler = ExternalSampler(self.game, keep_strategy=True)
            result = sampler.sample(ITERATION, traverser, keys, self.profile(), streams)
        else:
            sampler = OutcomeSampler(self.game, 0.4, keep_strategy=True, keep_transitions=True)
            values = (lambda k: self.q[self.histories(k)]) if kind == "baseline" else None
            result = sampler.sample(ITERATION, traverser, keys, self.profile(), streams, values)
        parts = {"advantage": dict(result.advantage), "strategy": dict(result.strategy)}
        for part, player in (("advantage", traverser), ("strategy", 1 - traverser)):
            parts[part]["key"] = self.states(player, parts[part]["key"])
        if result.transitions is not None:
            parts["transitions"] = dict(result.transitions)
            for column in ("history", "next_history"):
                parts["transitions"][column] = self.histories(parts["transitions"][column])
        return parts, result.states


class Translated:
    """One player's table, read through a simulator's keys."""

    def __init__(self, backend, player):
        self.backend, self.player = backend, player

    def probabilities(self, keys, legal):
        return self.backend.table[self.backend.states(self.player, keys)]


def _scale(game, player):
    if isinstance(game, TreeGame):
        largest = np.abs(game.arrays.views[player]).max(axis=0)
        return np.where(largest > 0, largest, 1)
    return game.state_codec(player).layout.scale


def _names(features, scale):
    return [row.tobytes() for row in np.round(features * scale, 3) + 0.0]


def _state_names(game, player, keys):
    return _names(game.state_codec(player).decode(keys)[0], _scale(game, player))


def _history_names(game, keys):
    decoded = game.history_codec().decode(keys)
    scale = np.concatenate([_scale(game, 0), _scale(game, 1)])
    names = _names(decoded.features, scale)
    return [name + bytes([player]) for name, player in zip(names, decoded.player, strict=True)]


@cache
def backend(name, simulated=False):
    return Backend(name, simulated)


def collect(here, kind, traverser, chunk, stream="iid", first_of=lambda c: c.first, renew=False):
    """All rows of TRAVERSALS traversals, chunk after chunk, and the states visited."""
    streams = chance.make(stream, 5)
    parts, states = [], 0
    for piece in plan(ITERATION, traverser, TRAVERSALS, chunk):
        keys = lanes.start(SEED, ITERATION, traverser, first_of(piece), piece.count)
        rows, visited = here.sample(kind, traverser, keys, chance.make(stream, 5) if renew else streams)
        parts.append(rows)
        states += visited
    return {part: concatenate([p[part] for p in parts]) for part in parts[0]}, states


def check_same(mine, theirs):
    assert mine[1] == theirs[1]
    assert mine[0].keys() == theirs[0].keys()
    for part, rows in mine[0].items():
        assert len(next(iter(rows.values()))) > 0
        for column, values in rows.items():
            assert values.dtype == theirs[0][part][column].dtype
            assert np.array_equal(values, theirs[0][part][column]), f"{part}: {column}"


@pytest.mark.parametrize("stream", ["iid", "antithetic", "weyl"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GAMES)
def test_chunks_do_not_matter(name, kind, stream):
    here = backend(name)
    for traverser in (0, 1):
        whole = collect(here, kind, traverser, TRAVERSALS, stream)
        for chunk in (7, 33):
            check_same(collect(here, kind, traverser, chunk, stream), whole)


@pytest.mark.parametrize("stream", ["iid", "antithetic"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GAMES)
def test_backends_do_not_matter(name, kind, stream):
    """Weyl streams are left out: their phases belong to the backend's own names of chance nodes."""
    for traverser in (0, 1):
        tree = collect(backend(name), kind, traverser, TRAVERSALS, stream)
        simulated = collect(backend(name, simulated=True), kind, traverser, 33, stream)
        check_same(simulated, tree)


def test_chunks_of_one_traversal():
    here = backend("leduc")
    check_same(collect(here, "external", 1, 1, "weyl"), collect(here, "external", 1, TRAVERSALS, "weyl"))


def test_chunks_do_not_matter_in_the_simulator():
    here = backend("leduc", simulated=True)
    check_same(collect(here, "external", 0, 13, "weyl"), collect(here, "external", 0, TRAVERSALS, "weyl"))


def test_traversals_of_other_chunks_are_other_traversals():
    """Named mutant: every chunk starts counting at its own first lane."""
    here = backend("leduc")
    whole = collect(here, "outcome", 0, TRAVERSALS)
    with pytest.raises(AssertionError):
        check_same(collect(here, "outcome", 0, 25, first_of=lambda c: 0), whole)


@pytest.mark.parametrize("stream", ["antithetic", "weyl"])
def test_streams_outlive_chunks(stream):
    """Named mutant: chance streams begin anew with every chunk."""
    here = backend("leduc")
    whole = collect(here, "external", 0, TRAVERSALS, stream)
    with pytest.raises(AssertionError):
        check_same(collect(here, "external", 0, 25, stream, renew=True), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_ordered_by_traversal(kind):
    """The rows of a traversal stand together: those of one alone are a piece of those of all."""
    here = backend("leduc")
    alone = [collect_one(here, kind, k) for k in range(5)]
    together = here.sample(kind, 0, lanes.start(SEED, ITERATION, 0, 0, 5), chance.Iid())[0]["advantage"]
    for column in together:
        assert np.array_equal(np.concatenate([rows[column] for rows in alone]), together[column])


def collect_one(here, kind, index):
    return here.sample(kind, 0, lanes.start(SEED, ITERATION, 0, index, 1), chance.Iid())[0]["advantage"]


def test_states_are_decisions_and_terminals():
    """Chance is not counted: recounted from the rows that every decision leaves."""
    rows, states = collect(backend("leduc"), "outcome", 0, TRAVERSALS)
    assert states == len(rows["transitions"]["action"]) + TRAVERSALS
    assert states == len(rows["advantage"]["key"]) + len(rows["strategy"]["key"]) + TRAVERSALS
    assert rows["transitions"]["terminal"].sum() == TRAVERSALS


def test_transitions_chain_histories():
    """next_history of a row is the history of the next row of the traversal; the last one pays."""
    rows = collect(backend("leduc"), "baseline", 1, TRAVERSALS)[0]["transitions"]
    going_on = np.flatnonzero(~rows["terminal"])
    assert np.array_equal(rows["next_history"][going_on], rows["history"][going_on + 1])
    assert not rows["reward"][going_on].any()
    arrays = case("leduc").game.arrays
    node = np.flatnonzero(arrays.decision >= 0)[rows["history"]]
    state = arrays.state[node]
    assert arrays.legal[state, rows["action"]].all()
    last = np.flatnonzero(rows["terminal"])
    child = arrays.first_child[node[last]] + arrays.rank[state[last], rows["action"][last]]
    assert np.array_equal(arrays.payoff[child].astype(np.float32), rows["reward"][last])


def test_exact_rows_are_the_regrets():
    """Every reachable state once: r / pi_{-i}, weight t pi_{-i}; strategy rows weigh t pi_i."""
    here = case("leduc")
    table = random_table(here.game, np.random.default_rng(8), pure=0.3)
    keys = lanes.start(1, ITERATION, 0, 0, 50)
    result = ExactSampler(here.game, keep_strategy=True).sample(ITERATION, 0, keys, TableProfile(table), chance.Iid())
    r, others, _ = here.regrets(table, 0)
    rows = result.advantage
    assert np.array_equal(rows["key"], np.flatnonzero(others > 0))
    np.testing.assert_allclose(rows["weight"], ITERATION * others[rows["key"]], rtol=1e-6)
    np.testing.assert_allclose(rows["target"] * others[rows["key"], None], r[rows["key"]], atol=1e-6)
    assert len(np.unique(rows["priority"])) == len(rows["key"])
    _, _, own = here.regrets(table, 1)
    strategy = result.strategy
    np.testing.assert_allclose(strategy["target"], table[strategy["key"]], atol=1e-7)
    np.testing.assert_allclose(strategy["weight"], ITERATION * own[strategy["key"]], rtol=1e-6)


def test_exact_sampling_needs_tables():
    with pytest.raises(TypeError, match="table profile"):
        ExactSampler(case("kuhn").game).sample(
            1, 0, lanes.start(1, 1, 0, 0, 1), StrategyProfile((None, None)), chance.Iid()
        )
