"""The baseline: expected SARSA's fixed point is the value of every history, exactly in tables, nearly in networks."""

import numpy as np
import pytest
import torch
from oracles.bridge import case, random_table

import learners.baseline
from actors.games.batch import CHANCE, TERMINAL
from buffers import frames
from buffers.rows import concatenate, take
from learners.baseline import BaselineLearner, Transitions
from learners.inputs import history_inputs
from learners.networks import Network, NetworkSpec
from learners.regression import OptimiserSettings
from learners.table import exact_baseline

CPU = torch.device("cpu")
RATE, NO_CLIP = 3e-3, 1e9


def all_transitions(game):
    """Every (h, a) once, or once per outcome where chance follows (its outcomes are equally likely in Leduc)."""
    arrays = game.arrays
    rows = {name: [] for name in ("history", "action", "reward", "next_history", "terminal")}
    for node in np.flatnonzero(arrays.player >= 0):
        history, state = arrays.decision[node], arrays.state[node]
        for action in np.flatnonzero(arrays.legal[state]):
            child = arrays.first_child[node] + arrays.rank[state, action]
            children = [child]
            if arrays.player[child] == CHANCE:
                law = np.diff(arrays.cdf[arrays.chance[child]], prepend=0.0)
                count = int(np.searchsorted(arrays.cdf[arrays.chance[child]], 1.5)) + 1
                np.testing.assert_allclose(law[: count - 1], 1 / count)
                children = arrays.first_child[child] + np.arange(count)
            for following in children:
                over = arrays.player[following] == TERMINAL
                rows["history"].append(history)
                rows["action"].append(action)
                rows["reward"].append(arrays.payoff[following])
                rows["next_history"].append(history if over else arrays.decision[following])
                rows["terminal"].append(over)
    kinds = {"action": np.int16, "reward": np.float32, "terminal": np.bool_}
    return {name: np.array(column, kinds.get(name, np.int32)) for name, column in rows.items()}


class Problem:
    """A game, a fixed random profile, all transitions, and the true values by recursion over OpenSpiel's states."""

    def __init__(self, name):
        self.case = case(name)
        self.game = self.case.game
        self.table = random_table(self.game, np.random.default_rng(3))
        self.rows = all_transitions(self.game)
        self.q, _ = self.case.history_values(self.table)
        self.state = self.game.history_codec().state
        self.legal = self.game.arrays.legal[self.state]
        self.sweeps = self.game.description.horizon + 1
        self.scale = float(self.game.description.payoff_scale)

    def next_probabilities(self, histories):
        return self.table[self.state[histories]]

    def transitions(self, rows=None):
        return Transitions(self.rows if rows is None else rows, self.next_probabilities)

    def check(self, found, tolerance):
        np.testing.assert_allclose(found[self.legal], self.q[self.legal], rtol=0, atol=tolerance)

    def learner(self, hidden=(64, 64), rate=RATE, clip=NO_CLIP):
        inputs = history_inputs(self.game.history_codec(), CPU)
        spec = NetworkSpec(inputs.width, self.case.num_actions, hidden)
        return BaselineLearner(spec, inputs, OptimiserSettings(rate, clip), self.scale, CPU), spec, inputs

    def values(self, parameters, spec, inputs):
        network = Network(spec, CPU)
        network.load(parameters)
        histories = np.arange(self.game.num_histories, dtype=np.int32)
        return self.scale * network(inputs.read(histories)).detach().numpy()


@pytest.fixture(scope="module")
def kuhn():
    return Problem("kuhn")


@pytest.mark.parametrize("name", ["kuhn", "leduc"])
def test_exact_fixed_point_is_the_true_value_of_every_history(name, rng):
    problem = Problem(name)
    rows = take(problem.rows, rng.permutation(len(problem.rows["action"])))
    start = np.where(problem.legal, 5.0 * rng.standard_normal(problem.q.shape), 0.0)
    problem.check(exact_baseline(start, problem.transitions(rows), problem.sweeps), 1e-12)


def negated(problem):
    return Transitions(problem.rows | {"reward": -problem.rows["reward"]}, problem.next_probabilities)


def greedy(problem):
    def best(histories):
        return np.eye(problem.case.num_actions)[problem.next_probabilities(histories).argmax(axis=1)]

    return Transitions(problem.rows, best)


def endless(problem):
    return Transitions(problem.rows | {"terminal": np.zeros_like(problem.rows["terminal"])}, problem.next_probabilities)


@pytest.mark.parametrize("mutant", [negated, greedy, endless])
def test_other_targets_are_rejected(mutant, kuhn):
    """Named mutants: the other player's payoff; one action at the next history; games that go on after their end."""
    with pytest.raises(AssertionError):
        kuhn.check(exact_baseline(np.zeros(kuhn.q.shape), mutant(kuhn), kuhn.sweeps), 1e-12)


def test_one_sweep_less_than_the_depth_is_rejected(kuhn):
    """Named mutant: Kuhn has three decisions in a row, so two sweeps leave some values unfinished."""
    kuhn.check(exact_baseline(np.zeros(kuhn.q.shape), kuhn.transitions(), 3), 1e-12)
    with pytest.raises(AssertionError):
        kuhn.check(exact_baseline(np.zeros(kuhn.q.shape), kuhn.transitions(), 2), 1e-12)


def test_pairs_without_transitions_keep_their_values(kuhn):
    start = np.arange(kuhn.q.size, dtype=np.float64).reshape(kuhn.q.shape)
    before = start.copy()
    missing = np.flatnonzero(kuhn.rows["terminal"])[[0, 3]]
    rows = take(kuhn.rows, np.setdiff1d(np.arange(len(kuhn.rows["action"])), missing))
    found = exact_baseline(start, kuhn.transitions(rows), kuhn.sweeps)
    pairs = kuhn.rows["history"][missing], kuhn.rows["action"][missing]
    np.testing.assert_array_equal(found[pairs], start[pairs])
    np.testing.assert_array_equal(start, before)
    # Everywhere else the values satisfy their equation, those kept included.
    following = (kuhn.next_probabilities(rows["next_history"]) * found[rows["next_history"]]).sum(axis=1)
    expected = rows["reward"] + np.where(rows["terminal"], 0.0, following)
    np.testing.assert_allclose(found[rows["history"], rows["action"]], expected, rtol=0, atol=1e-12)
    assert np.abs(found - kuhn.q)[kuhn.legal].max() > 1  # the values kept are far off, and are seen above


def test_repeated_transitions_are_averaged(kuhn):
    """Rewards 1 and 4 in proportion 2 to 1 are 2."""
    end = np.flatnonzero(kuhn.rows["terminal"])[:1]
    rows = take(kuhn.rows, np.repeat(end, 3))
    rows["reward"] = np.array([1, 4, 1], np.float32)
    found = exact_baseline(np.zeros(kuhn.q.shape), kuhn.transitions(rows), 2)
    assert found[rows["history"][0], rows["action"][0]] == 2.0
    assert np.count_nonzero(found) == 1


def fitted(problem, kind, steps, transitions=None):
    learner, spec, inputs = problem.learner()
    learner.start(1)
    transitions = transitions or problem.transitions()
    if kind == "merged":
        parameters, _ = learner.fit_merged(transitions, steps)
    else:
        parameters, _ = learner.fit(transitions, steps, 64, seed=2)
    return problem.values(parameters, spec, inputs)


# Values run from -2 to 2. After 600 steps the largest error was at most 0.06 in six seeds of each kind (Adam's bursts
# at a constant rate, where nothing is left to learn); the mutants are 1.2 and more away.
NETWORK_TOLERANCE = 0.2


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
def test_networks_approach_the_true_values(kind, kuhn):
    kuhn.check(fitted(kuhn, kind, 600), NETWORK_TOLERANCE)


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
@pytest.mark.parametrize("mutant", [negated, greedy])
def test_networks_on_other_targets_are_rejected(mutant, kind, kuhn):
    """Named mutants as above, at the tolerance of the networks."""
    with pytest.raises(AssertionError):
        kuhn.check(fitted(kuhn, kind, 600, mutant(kuhn)), NETWORK_TOLERANCE)


def semi_gradient(problem, network, inputs, rows):
    """Mean over rows of 2 (Q(h, a) - target) dQ(h, a), row by row; the target is a number."""
    q = network(inputs.read(np.arange(problem.game.num_histories, dtype=np.int32)))
    fixed = q.detach().double().numpy()
    total = torch.zeros(())
    for h, a, r, following, over in zip(*(rows[name] for name in rows), strict=True):
        target = r / problem.scale + (0.0 if over else problem.table[problem.state[following]] @ fixed[following])
        total = total + (q[int(h), int(a)] - float(target)) ** 2
    (total / len(rows["action"])).backward()
    return network.flat.grad.numpy()


def first_gradient(problem, kind, rows):
    """The gradient of the first step, which the first moment keeps a tenth of, and what it should be."""
    learner, spec, inputs = problem.learner(hidden=(16,))
    learner.start(1)
    network = Network(spec, CPU)
    network.load(learner.export())
    if kind == "merged":
        _, metrics = learner.fit_merged(problem.transitions(rows), 1)
    else:
        _, metrics = learner.fit(problem.transitions(rows), 1, 32, seed=5)
        rows = take(rows, np.random.default_rng(5).integers(len(rows["action"]), size=32))
    found = learner.snapshot()["optimiser.first_moment"] / np.float32(0.1)
    assert metrics.gradient_norm == pytest.approx(np.linalg.norm(found), rel=1e-4)
    return found, semi_gradient(problem, network, inputs, rows)


def check_first_gradient(problem, kind, rng):
    """Rows repeat unequally, so that counts matter. Single precision: 1e-5 of the largest entry."""
    rows = take(problem.rows, rng.integers(len(problem.rows["action"]), size=80))
    found, expected = first_gradient(problem, kind, rows)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
def test_gradient_is_that_of_a_loop_over_rows(kind, kuhn, rng):
    check_first_gradient(kuhn, kind, rng)


class FlowingTorch:
    """Torch, but `no_grad` lets gradients through."""

    no_grad = torch.enable_grad

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
def test_gradient_through_the_target_is_rejected(kind, kuhn, rng, monkeypatch):
    """Named mutant: the target is not held fixed."""
    monkeypatch.setattr(learners.baseline, "torch", FlowingTorch())
    with pytest.raises(AssertionError):
        check_first_gradient(kuhn, kind, rng)


@pytest.mark.parametrize("kind", ["merged", "minibatches"])
def test_counts_left_out_are_rejected(kind, kuhn, rng, monkeypatch):
    """Named mutant: transitions weigh as often as they differ, or half of them nothing."""
    right = learners.baseline.baseline_loss

    def wrong(output, action, target, weight):
        weight = torch.ones_like(weight) if kind == "merged" else weight * (torch.arange(len(weight)) % 2) * 2
        return right(output, action, target, weight)

    monkeypatch.setattr(learners.baseline, "baseline_loss", wrong)
    with pytest.raises(AssertionError):
        check_first_gradient(kuhn, kind, rng)


def elsewhere_after_the_end(rows, rng, histories):
    """The rows with any history as successor of those that end the game."""
    other = rng.integers(histories, size=len(rows["action"])).astype(np.int32)
    return rows | {"next_history": np.where(rows["terminal"], other, rows["next_history"])}


def check_ends(problem, kind, rows, other):
    """The same fit from both: to the bit from minibatches, to rounding where merged in another order."""
    if kind == "table":
        pair = [exact_baseline(np.zeros(problem.q.shape), problem.transitions(each), 5) for each in (rows, other)]
        np.testing.assert_allclose(*pair, rtol=0, atol=1e-12)
    elif kind == "minibatches":
        np.testing.assert_array_equal(*(fitted(problem, kind, 5, problem.transitions(each)) for each in (rows, other)))
    else:
        pair = [first_gradient(problem, kind, each)[0] for each in (rows, other)]
        np.testing.assert_allclose(*pair, rtol=0, atol=1e-6 * np.abs(pair[0]).max())


@pytest.mark.parametrize("kind", ["table", "minibatches", "merged"])
def test_nothing_follows_the_end(kind, kuhn, rng):
    check_ends(kuhn, kind, kuhn.rows, elsewhere_after_the_end(kuhn.rows, rng, kuhn.game.num_histories))


@pytest.mark.parametrize("kind", ["table", "minibatches", "merged"])
def test_ends_that_are_not_marked_are_rejected(kind, kuhn, rng):
    """Named mutant: the end is not looked at, hence the successors of the last decisions count."""
    unmarked = {"terminal": np.zeros_like(kuhn.rows["terminal"])}
    other = elsewhere_after_the_end(kuhn.rows, rng, kuhn.game.num_histories)
    with pytest.raises(AssertionError):
        check_ends(kuhn, kind, kuhn.rows | unmarked, other | unmarked)


class Counted:
    """Next probabilities that count the rows asked for."""

    def __init__(self, problem):
        self.rows, self._problem = 0, problem

    def __call__(self, histories):
        self.rows += len(histories)
        return self._problem.next_probabilities(histories)


@pytest.mark.parametrize(("draws", "computed"), [(10, 10), (300, None)])
def test_drawn_is_the_same_however_the_strategy_is_computed(draws, computed, kuhn, rng):
    """Fewer draws than rows, and more: the smaller number of strategy rows is computed, to the same values."""
    asked = Counted(kuhn)
    index = rng.integers(len(kuhn.rows["action"]), size=draws)
    rows, played = Transitions(kuhn.rows, asked).drawn(index)
    assert asked.rows == (computed or len(kuhn.rows["action"])) <= draws
    for name, column in kuhn.rows.items():
        np.testing.assert_array_equal(rows[name], column[index])
    np.testing.assert_array_equal(played, kuhn.next_probabilities(kuhn.rows["next_history"][index]))


def test_minibatches_do_not_depend_on_how_the_strategy_is_computed(kuhn):
    """80 draws of 144 rows: computed for the draws, or for every row, the fit is the same to the bit."""
    rows = concatenate([kuhn.rows] * 3)
    asked = Counted(kuhn), Counted(kuhn)
    fits = []
    for counted, kind in zip(asked, (Transitions, EveryRow), strict=True):
        learner, _, _ = kuhn.learner(hidden=(8,))
        learner.start(1)
        fits.append(learner.fit(kind(rows, counted), 20, 4, seed=3))
    assert (asked[0].rows, asked[1].rows) == (80, len(rows["action"]))
    assert fits[0][1] == fits[1][1]
    for name, value in fits[0][0].items():
        np.testing.assert_array_equal(value, fits[1][0][name])


class EveryRow(Transitions):
    """Computes the strategy of every row, whatever is drawn."""

    def drawn(self, index, total=None):
        return take(self.rows, index), self.next_probabilities(self.rows["next_history"])[index]


def test_same_seed_same_bits(kuhn, untouched_global_rng):
    def run(seed):
        learner, _, _ = kuhn.learner(hidden=(8,))
        learner.start(1)
        return learner.fit(kuhn.transitions(), 10, 8, seed)

    with untouched_global_rng():
        first, second, other = run(1), run(1), run(2)
    assert first[1] == second[1]
    assert all(np.array_equal(first[0][name], second[0][name]) for name in first[0])
    assert not all(np.array_equal(first[0][name], other[0][name]) for name in first[0])


def test_fits_go_on_where_the_last_one_stopped_also_when_restored(kuhn):
    """Never reset: 10 steps and 15 more are 25; a learner restored in between, through a frame, ends alike."""
    whole, parts, restored = (kuhn.learner(hidden=(8,))[0] for _ in range(3))
    for learner in (whole, parts):
        learner.start(1)
    whole.fit_merged(kuhn.transitions(), 25)
    parts.fit_merged(kuhn.transitions(), 10)
    restored.restore(frames.decode(b"".join(frames.encode(parts.snapshot()))))
    for learner in (parts, restored):
        learner.fit_merged(kuhn.transitions(), 15)
        for name, value in whole.export().items():
            np.testing.assert_array_equal(learner.export()[name], value)
