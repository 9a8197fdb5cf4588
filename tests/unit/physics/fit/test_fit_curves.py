"""Priors, the most likely parameters under them, and the process of residuals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.physics.fit.overlap_curve import fit_residuals
from wattune.physics.fit.prior import Prior, logistic, logit, most_likely


@given(st.floats(0.01, 0.99))
def test_a_logit_stands_for_its_share(share):
    assert float(logistic(logit(share))) == pytest.approx(share)


def test_without_data_the_prior_is_what_is_believed():
    estimate = most_likely(lambda values: values[:0], [Prior(2.0, 0.5), Prior(-1.0, 3.0)])
    assert estimate.values == pytest.approx([2.0, -1.0])
    assert estimate.sd == pytest.approx([0.5, 3.0])


def test_more_data_makes_surer():
    def few(values):
        return (np.full(2, values[0]) - 1.0) / 0.1

    def many(values):
        return (np.full(200, values[0]) - 1.0) / 0.1

    prior = [Prior(0.0, 1.0)]
    assert most_likely(many, prior).sd[0] < most_likely(few, prior).sd[0] / 5


def test_residuals_are_followed_near_and_forgotten_far_away():
    places = np.linspace(0.0, 2.0, 15)[:, None]
    process = fit_residuals(places, np.sin(3 * places[:, 0]), noise_sd=0.01)
    assert process.predict(np.array([[0.5], [1.3]])) == pytest.approx(np.sin([1.5, 3.9]), abs=0.05)
    assert process.predict(np.array([[60.0]])) == pytest.approx([0.0], abs=1e-6)


def test_zero_residuals_predict_zero():
    places = np.arange(6.0)[:, None]
    process = fit_residuals(places, np.zeros(6), noise_sd=0.01)
    assert process.predict(places) == pytest.approx(np.zeros(6), abs=1e-9)
