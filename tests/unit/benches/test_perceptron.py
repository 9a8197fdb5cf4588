"""The small network."""

import numpy as np
import pytest

from wattune_bench.run.odpp import untrained

INPUTS = np.random.default_rng(0).uniform(-1, 1, (300, 2))
TARGETS = np.abs(INPUTS[:, 0]) + 0.5 * INPUTS[:, 1]


def test_the_network_learns_a_kinked_plane():
    network = untrained(INPUTS, hidden=(16, 16))
    before = np.mean((network(INPUTS) - TARGETS) ** 2)
    after = np.mean((network.trained(INPUTS, TARGETS, epochs=60, batch=24)(INPUTS) - TARGETS) ** 2)
    assert after < 0.05 * before
    assert after < 0.01


def test_training_does_not_change_the_old_network():
    network = untrained(INPUTS, hidden=(8,))
    before = network(INPUTS)
    network.trained(INPUTS, TARGETS, epochs=2, batch=24)
    assert np.array_equal(network(INPUTS), before)


def test_the_same_training_gives_the_same_network():
    first, second = (untrained(INPUTS, hidden=(8,)).trained(INPUTS, TARGETS, epochs=3, batch=24) for _ in range(2))
    assert np.array_equal(first(INPUTS), second(INPUTS))


def test_gradients_are_those_of_the_squared_error():
    network = untrained(INPUTS, hidden=(5, 4), seed=2)
    inputs, targets = INPUTS[:20], TARGETS[:20]
    gradients = network._gradients(inputs, targets)
    weight = network.weights[1]
    step = 1e-6
    weight[2, 1] += step
    above = np.mean((network(inputs) - targets) ** 2)
    weight[2, 1] -= 2 * step
    below = np.mean((network(inputs) - targets) ** 2)
    weight[2, 1] += step
    assert gradients[1][2, 1] == pytest.approx((above - below) / (2 * step), rel=1e-4, abs=1e-8)


def test_a_constant_column_gives_finite_outputs():
    inputs = np.column_stack([INPUTS, np.ones(len(INPUTS))])
    assert np.all(np.isfinite(untrained(inputs, hidden=(4,))(inputs)))
