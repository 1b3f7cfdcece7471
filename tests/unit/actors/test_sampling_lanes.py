"""Keys that carry the randomness: reproducible, well spread, and the actions drawn from them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from actors.sampling import lanes
from actors.sampling.traversals import inverse_cdf

FALSE_ALARM = 1e-6

KNOWN_SEED = 10407170657964905584
KNOWN_KEYS = [14133293894920602245, 16754443010938510322]
KNOWN_CHILDREN = [2500483041016788712, 17703660386599763854]


def check_uniform(u, cells=64):
    seen = np.histogram(u, cells, (0, 1))[0]
    statistic = ((seen - len(u) / cells) ** 2).sum() / (len(u) / cells)
    assert statistic < stats.chi2.isf(FALSE_ALARM, cells - 1)


def test_keys_of_a_traversal_do_not_depend_on_its_chunk():
    whole = lanes.start(1, 2, 0, 0, 100)
    assert np.array_equal(whole[37:60], lanes.start(1, 2, 0, 37, 23))


@pytest.mark.parametrize("other", [(2, 2, 0), (1, 3, 0), (1, 2, 1)])
def test_seed_iteration_and_player_give_other_keys(other):
    keys = np.concatenate([lanes.start(1, 2, 0, 0, 10_000), lanes.start(*other, 0, 10_000)])
    assert len(np.unique(keys)) == len(keys)


def test_known_keys():
    """Written down once: a change of the hash would change every run."""
    assert lanes.derive(7, 1, 2) == KNOWN_SEED
    assert lanes.start(7, 1, 0, 5, 2).tolist() == KNOWN_KEYS
    assert lanes.child(np.array(KNOWN_KEYS, np.uint64), np.array([0, 3])).tolist() == KNOWN_CHILDREN


def test_numbers_are_uniform_and_independent_of_their_relatives():
    """N = 200,000 per test, false-alarm rate 1e-6: of traversals, of children, and of priorities."""
    keys = lanes.start(3, 1, 0, 0, 200_000)
    children = [lanes.child(keys, np.full(len(keys), a)) for a in (0, 1)]
    numbers = [lanes.uniform(keys), *map(lanes.uniform, children), lanes.priority(keys) / 2.0**32]
    for first in numbers:
        check_uniform(first)
    for first, second in zip(numbers, numbers[1:] + numbers[:1], strict=True):
        check_uniform((first + second) % 1.0)
        check_uniform((first - second) % 1.0)


def test_children_along_a_path_are_uniform():
    """One key followed for 200,000 steps of action 0."""
    keys, numbers = lanes.start(4, 1, 0, 0, 1000), []
    for _ in range(200):
        keys = lanes.child(keys, np.zeros(1000, np.int64))
        numbers.append(lanes.uniform(keys))
    check_uniform(np.concatenate(numbers))


def test_priorities_taken_from_the_same_bits_are_rejected():
    """Named mutant: a row's priority is the number that chose its action."""
    keys = lanes.start(3, 1, 0, 0, 200_000)
    same = (keys >> np.uint64(32)).astype(np.uint32) / 2.0**32
    with pytest.raises(AssertionError):
        check_uniform((lanes.uniform(keys) - same) % 1.0)


@st.composite
def laws(draw):
    shape = draw(st.tuples(st.integers(1, 8), st.integers(1, 6)))
    weights = draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1e-12, 0.1, 0.3, 1.0, 7.0])))
    weights[weights.sum(axis=1) == 0, -1] = 1.0
    return weights / weights.sum(axis=1, keepdims=True)


@settings(max_examples=300)
@given(laws(), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.999999, float(np.nextafter(1.0, 0.0))]))
def test_actions_without_probability_are_never_drawn(law, uniform):
    action = inverse_cdf(law, np.full(len(law), uniform))
    row = np.arange(len(law))
    assert (law[row, action] > 0).all()
    below = np.array([law[k, : action[k]].sum() for k in row])
    assert (below <= uniform + 1e-9).all()
    assert (below + law[row, action] >= uniform - 1e-9).all()


def test_actions_follow_their_law():
    law = np.array([0.5, 0.0, 0.2, 0.3])
    n = 100_000
    drawn = inverse_cdf(np.tile(law, (n, 1)), lanes.uniform(lanes.start(5, 1, 0, 0, n)))
    seen = np.bincount(drawn, minlength=4)
    assert seen[1] == 0
    positive = law > 0
    statistic = ((seen - n * law)[positive] ** 2 / (n * law[positive])).sum()
    assert statistic < stats.chi2.isf(FALSE_ALARM, 2)
