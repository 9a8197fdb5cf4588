"""Exact Gaussian processes: known posteriors, gradients of the likelihood, draws."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from wattune.search.gaussian_process import (
    Hyper,
    HyperPrior,
    Inputs,
    _unlikeliness,
    condition,
    fit_process,
)


def _inputs(count: int, *, seed: int = 0, columns: int = 1) -> Inputs:
    random = np.random.default_rng(seed)
    return Inputs(random.random((count, 2)), random.standard_normal((count, columns)))


HYPER = Hyper(np.array([0.4, 0.7]), 0.5, 0.05)


def test_goes_through_values_without_noise_and_keeps_the_prior_far_away() -> None:
    near = Inputs(np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros((2, 1)))
    process = condition(HYPER, near, np.array([1.0, -1.0]), np.zeros(2))
    assert process.smoothed()[0] == pytest.approx([1.0, -1.0], abs=1e-6)
    mean, sd = process.predict(Inputs(np.array([[50.0, 50.0]]), np.zeros((1, 1))))
    assert mean[0] == pytest.approx(0.0, abs=1e-9)
    assert sd[0] == pytest.approx(np.hypot(0.5, 0.05))


def test_noise_of_a_measurement_is_shrunk_towards_its_neighbours() -> None:
    inputs = _inputs(20)
    values = np.zeros(20)
    values[3] = 1.0
    noise = np.full(20, 1e-6)
    noise[3] = 1.0
    mean, sd = condition(HYPER, inputs, values, noise).smoothed()
    assert abs(mean[3]) < 0.2
    assert sd[3] < 0.5


def test_weights_of_columns_are_learned() -> None:
    inputs = _inputs(30)
    process = condition(Hyper(np.array([1.0, 1.0]), 1e-3, 1e-3), inputs, 1.5 * inputs.basis[:, 0], np.zeros(30))
    new = _inputs(5, seed=9)
    assert process.predict(new)[0] == pytest.approx(1.5 * new.basis[:, 0], abs=0.01)


def test_gradient_of_the_likelihood_is_right() -> None:
    inputs, values = _inputs(12), np.random.default_rng(1).standard_normal(12)
    prior = HyperPrior(HYPER)
    noise = np.full(12, 0.01)
    at = HYPER.logs + 0.3
    numeric = approx_fprime(at, lambda logs: _unlikeliness(logs, inputs, values, noise, prior)[0], 1e-6)
    assert _unlikeliness(at, inputs, values, noise, prior)[1] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_a_fit_finds_which_feature_matters() -> None:
    random = np.random.default_rng(2)
    features = random.random((60, 2))
    inputs = Inputs(features, np.zeros((60, 1)))
    process = fit_process(
        inputs, np.sin(9.0 * features[:, 0]), prior=HyperPrior(Hyper(np.array([0.5, 0.5]), 0.5, 0.05))
    )
    assert process.hyper.lengths[0] < process.hyper.lengths[1]


def test_draws_have_the_predicted_moments() -> None:
    process = condition(HYPER, _inputs(8), np.linspace(-1, 1, 8), np.zeros(8))
    new = _inputs(6, seed=3)
    drawn = process.draws(new, 4000, np.random.default_rng(4))
    mean, sd = process.predict(new)
    assert drawn.mean(axis=0) == pytest.approx(mean, abs=0.1)
    assert drawn.std(axis=0) == pytest.approx(sd, rel=0.1)


def test_believing_the_expected_value_leaves_means_and_narrows_deviations() -> None:
    process = condition(HYPER, _inputs(8), np.linspace(-1, 1, 8), np.zeros(8))
    new = _inputs(6, seed=3)
    mean, sd = process.predict(new)
    believed = process.with_points(new.taken(np.array([2])), mean[2:3])
    after, narrower = believed.predict(new)
    others = [0, 1, 3, 4, 5]
    assert after[others] == pytest.approx(mean[others], abs=1e-6)
    assert (narrower <= sd + 1e-9).all()
