"""Regret matching with the deep methods' fallback, against the textbook."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import textbook

from actors.strategies.regret_matching import regret_matching


@st.composite
def cases(draw):
    shape = draw(st.tuples(st.integers(1, 20), st.integers(1, 6)))
    entries = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-30]), st.floats(-1e6, 1e6, width=32))
    advantages = draw(hnp.arrays(draw(st.sampled_from([np.float32, np.float64])), shape, elements=entries))
    legal = draw(hnp.arrays(np.bool_, shape))
    legal[np.arange(shape[0]), draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))] = True
    return advantages, legal


def check(matching, advantages, legal):
    before = advantages.copy()
    p = matching(advantages, legal)
    assert p.dtype == np.float64
    assert p.shape == legal.shape
    assert np.array_equal(advantages, before)
    assert not p[~legal].any()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    expected = [
        textbook.matched(row, np.flatnonzero(mask).tolist())
        for row, mask in zip(advantages.astype(np.float64), legal, strict=True)
    ]
    np.testing.assert_allclose(p, expected, rtol=1e-12, atol=0)


@settings(max_examples=100)
@given(cases())
def test_any_advantages(case):
    check(regret_matching, *case)


@pytest.mark.parametrize(
    ("advantages", "legal", "expected"),
    [
        ([3.0, 1.0, 0.0], [1, 1, 1], [0.75, 0.25, 0.0]),
        ([3.0, 1.0, 5.0], [1, 1, 0], [0.75, 0.25, 0.0]),  # the largest entry is illegal
        ([-3.0, -1.0, -2.0], [1, 1, 1], [0.0, 1.0, 0.0]),
        ([-3.0, -1.0, -2.0], [1, 0, 1], [0.0, 0.0, 1.0]),
        ([0.0, 0.0, 0.0], [1, 1, 1], [1.0, 0.0, 0.0]),  # ties go to the lowest id
        ([0.0, 0.0, 0.0], [0, 1, 1], [0.0, 1.0, 0.0]),
        ([-2.0, -1.0, -1.0], [1, 1, 1], [0.0, 1.0, 0.0]),
        ([9.0, -1.0, -5.0], [0, 0, 1], [0.0, 0.0, 1.0]),
    ],
)
def test_by_hand(advantages, legal, expected):
    p = regret_matching(np.array([advantages]), np.array([legal], bool))
    assert p.tolist() == [expected]


def uniform_fallback(advantages, legal):
    positive = np.where(legal, np.maximum(advantages.astype(np.float64), 0), 0)
    total = positive.sum(axis=1, keepdims=True)
    return np.where(total > 0, positive / np.where(total > 0, total, 1), legal / legal.sum(axis=1, keepdims=True))


def illegal_fallback(advantages, legal):
    p = uniform_fallback(advantages, legal)
    stuck = (np.where(legal, advantages, 0) <= 0).all(axis=1)
    p[stuck] = np.eye(legal.shape[1])[advantages[stuck].argmax(axis=1)]
    return p


def highest_on_ties(advantages, legal):
    p = regret_matching(advantages, legal)
    stuck = (np.where(legal, advantages, 0) <= 0).all(axis=1)
    masked = np.where(legal, advantages, -np.inf)[:, ::-1]
    last = legal.shape[1] - 1 - masked.argmax(axis=1)
    p[stuck] = np.eye(legal.shape[1])[last[stuck]]
    return p


@pytest.mark.parametrize("mutant", [uniform_fallback, illegal_fallback, highest_on_ties])
def test_wrong_fallbacks_are_rejected(mutant):
    """Named mutants: uniform where nothing is positive; an illegal action there; ties to the highest id."""
    advantages = np.array([[-1.0, -2.0, 0.5], [-1.0, -1.0, -3.0], [1.0, 2.0, 0.0]])
    legal = np.array([[True, True, False], [True, True, True], [True, True, True]])
    check(regret_matching, advantages, legal)
    with pytest.raises(AssertionError):
        check(mutant, advantages, legal)
