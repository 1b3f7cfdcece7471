"""Samplers against bare OpenSpiel stepping: states and decisions per second of one thread."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyspiel
import torch

from actors.games import registry
from actors.games.batch import Game
from actors.games.tree import TreeGame
from actors.sampling import lanes
from actors.sampling.chance import Iid
from actors.sampling.external import ExternalSampler
from actors.sampling.outcome import Baseline, OutcomeSampler
from actors.sampling.traversals import Traversals
from actors.strategies.strategy import Profile, StrategyProfile, TableProfile
from benchmarks.measure import Budget, Result, Target, Work, compare
from dream.config import RunConfig
from dream.runtime.players import Players
from learners.networks import Network, NetworkSpec, Parameters
from learners.predict import Predictor

Play = Callable[[lanes.Keys, int], Traversals]  # lane keys and the iteration, whose parity is the traverser

_EPSILON = 0.5
CHUNKS = (1_000, 4_000, 16_000)
STATES = "bare stepping"
UNIFORM_CHANCE = "bare stepping, chance by legal_actions"
LAW_CHANCE = "bare stepping, chance by chance_outcomes"


def bare_stepping(name: str, games: int, by_law: bool, terminals: bool) -> Work:
    """The plain loop over OpenSpiel states: uniform play, the information-state tensor read at each decision.

    Chance is drawn from `chance_outcomes` or, cheaper, from `legal_actions`; in both cases by one uniform number,
    which is the chance law of all games measured here. Counts decisions, and terminals if asked to.
    """
    game, _ = registry.open_game(name)
    draw = random.Random(1).random

    def work() -> float:
        decisions = 0
        for _ in range(games):
            state = game.new_initial_state()
            while not state.is_terminal():
                if state.is_chance_node():
                    if by_law:
                        outcomes = state.chance_outcomes()
                        state.apply_action(outcomes[int(draw() * len(outcomes))][0])
                        continue
                else:
                    state.information_state_tensor()
                    decisions += 1
                actions = state.legal_actions()
                state.apply_action(actions[int(draw() * len(actions))])
        return decisions + games * terminals

    return work


def outcome(sampler: OutcomeSampler, profile: Profile, baseline: Baseline | None = None) -> Play:
    """One chunk of outcome sampling, independent chance."""
    return lambda keys, t: sampler.sample(t, t % 2, keys, profile, Iid(), baseline)


def sampling(play: Play, traversals: int, decisions_only: bool) -> Work:
    """Chunks of `traversals`, the traverser and the seed changing from one to the next; rows are made."""
    played = 0

    def work() -> float:
        nonlocal played
        played += 1
        keys = lanes.start(1, played, played % 2, 0, traversals)
        result = play(keys, played)
        return result.states - traversals * decisions_only

    return work


def random_tables(game: TreeGame, seed: int = 1) -> tuple[TableProfile, Baseline]:
    """A fixed strategy with random positive probabilities, and a fixed baseline table in chips."""
    rng = np.random.default_rng(seed)
    legal = game.arrays.legal
    weights = np.where(legal, rng.random(legal.shape) + 0.1, 0.0)
    values = rng.normal(size=(game.num_histories, legal.shape[1]))
    return TableProfile(weights / weights.sum(axis=1, keepdims=True)), lambda keys: values.take(keys, axis=0)


def tree_sampler(budget: Budget, chunks: tuple[int, ...] = CHUNKS) -> list[Result]:
    """Leduc, enumerated: outcome sampling with and without a baseline table, and external sampling."""
    game = registry.load("leduc", "tree")
    assert isinstance(game, TreeGame)
    profile, values = random_tables(game)
    with_rows = OutcomeSampler(game, _EPSILON, keep_transitions=True)
    plain = OutcomeSampler(game, _EPSILON)
    external = ExternalSampler(game)
    plays = {
        "outcome sampling": outcome(plain, profile),
        "outcome sampling + baseline + transitions": outcome(with_rows, profile, values),
        "external sampling": lambda keys, t: external.sample(t, t % 2, keys, profile, Iid()),
    }
    results = []
    bare = {STATES: bare_stepping("leduc", 50, by_law=True, terminals=True)}
    for case, play in plays.items():
        for chunk in chunks:
            ours = sampling(play, chunk, decisions_only=False)
            case_name = f"leduc, {case}, {chunk:,} traversals"
            goal = {"": Target(rate=2e6)}
            results += compare("tree_sampler", case_name, "states", ours, bare, budget, goal)
    return results


def network_players(game: Game, name: str) -> tuple[Profile, Baseline]:
    """Two 3x64 advantage networks to play, and a 3x64 baseline network.

    The advantages are all close to 1, so that play is close to uniform: games are as long as those of the bare loop.
    """
    config = RunConfig(game=name, algorithm="dream", iterations=1)
    device = torch.device("cpu")
    players = Players(game, config, device)
    strategies = [players.from_advantages(p, _even(_fresh(players.advantage_spec(p), p))) for p in (0, 1)]
    inputs = players.history_inputs()
    spec = players.baseline_spec(inputs)
    predictor = Predictor(spec, device)
    predictor.load(_fresh(spec, 2))
    return (
        StrategyProfile((strategies[0], strategies[1])),
        lambda keys: predictor.values(inputs, keys).astype(np.float64),
    )


def _even(parameters: Parameters) -> Parameters:
    last = f"bias_{len([name for name in parameters if name.startswith('bias_')]) - 1}"
    return parameters | {last: np.ones_like(parameters[last])}


def _fresh(spec: NetworkSpec, seed: int) -> Parameters:
    network = Network(spec, torch.device("cpu"))
    network.reset(torch.Generator().manual_seed(seed))
    return network.export()


def simulator(budget: Budget, chunks: tuple[int, ...] = (1024, 4096)) -> list[Result]:
    """Leduc and Flop Hold'em as OpenSpiel states in lockstep, network inference and rows included."""
    results = []
    for name in ("leduc", "fhp"):
        game = registry.load(name, "simulator")
        profile, baseline = network_players(game, name)
        plain = OutcomeSampler(game, _EPSILON)
        full = OutcomeSampler(game, _EPSILON, keep_transitions=True)
        plays = {"os-sd-cfr": outcome(plain, profile), "dream": outcome(full, profile, baseline)}
        bare = {
            LAW_CHANCE: bare_stepping(name, 20, by_law=True, terminals=False),
            UNIFORM_CHANCE: bare_stepping(name, 20, by_law=False, terminals=False),
        }
        for (method, play), chunk in itertools.product(plays.items(), chunks):
            ours = sampling(play, chunk, decisions_only=True)
            case = f"{name}, {method}, {chunk:,} traversals"
            goal = {LAW_CHANCE: Target(ratio=0.4), UNIFORM_CHANCE: Target(ratio=0.4)}
            results += compare("simulator", case, "decisions", ours, bare, budget, goal)
    return results


def openspiel_deep_cfr(budget: Budget) -> list[Result]:
    """Leduc: traversals of OpenSpiel's own Deep CFR (PyTorch) beside our external sampling on the simulator.

    Raises ImportError where OpenSpiel's module cannot be imported: it needs dm-tree, which dream does not.
    """
    from open_spiel.python.pytorch import deep_cfr

    openspiel = pyspiel.load_game("leduc_poker")
    game = registry.load("leduc", "simulator")
    profile, _ = network_players(game, "leduc")
    external = ExternalSampler(game, keep_strategy=True)
    ours = sampling(lambda keys, t: external.sample(t, t % 2, keys, profile, Iid()), 346, decisions_only=False)
    theirs = {"OpenSpiel's Deep CFR": _their_traversals(deep_cfr, openspiel)}
    return compare("openspiel_deep_cfr", "leduc, external sampling", "states", ours, theirs, budget)


def _their_traversals(deep_cfr: Any, game: Any) -> Work:
    solver = deep_cfr.DeepCFRSolver(
        game, policy_network_layers=(64, 64, 64), advantage_network_layers=(64, 64, 64), num_traversals=1
    )
    states = 0
    traverse = solver._traverse_game_tree

    def counting(state: Any, player: int) -> Any:
        nonlocal states
        states += not state.is_chance_node()
        return traverse(state, player)

    solver._traverse_game_tree = counting
    played = 0

    def work() -> float:
        nonlocal played
        before = states
        played += 1
        solver._traverse_game_tree(game.new_initial_state(), played % 2)
        return states - before

    return work
