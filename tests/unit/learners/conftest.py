import random
from contextlib import contextmanager

import numpy as np
import pytest
import torch


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: a second thread costs more than it brings, and bits must not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def untouched_global_rng():
    """A context that fails where it moves a global random state."""

    @contextmanager
    def untouched():
        states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        yield
        assert torch.equal(states[0], torch.get_rng_state())
        assert states[1][2] == np.random.get_state()[2]  # noqa: NPY002
        np.testing.assert_array_equal(states[1][1], np.random.get_state()[1])  # noqa: NPY002
        assert states[2] == random.getstate()

    return untouched
