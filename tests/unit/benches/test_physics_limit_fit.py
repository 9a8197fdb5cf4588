"""Curves under power limits: made by the model with known parameters, or by a simulated GPU of the catalogue."""

import numpy as np
import pytest

from wattune_bench.datasets.zeus_tables import LimitCurve
from wattune_bench.physics.limit_fit import BOARD, BatchDrift, Board, epoch_seconds, fit_limits, predict

LIMITS = np.arange(100.0, 301.0, 25.0)
GPU = Board(*(prior.mean for prior in BOARD))
USUAL = np.array([3.0, -1.0, -0.4, 0.1, -2.5, -2.0])
"""A network that keeps the GPU busy."""


def curve(own, batch_size=32, workload="net", limits=LIMITS, board=GPU):
    epochs = predict(board, own[None], limits[None] / 300.0)
    return LimitCurve(workload, batch_size, limits, np.exp(epochs.log_time[0]), np.exp(epochs.log_power[0]) * 300.0)


def family(sizes=(8, 16, 32, 64, 128), workload="net"):
    """Epochs of a + c/b seconds, with the core busier at larger batches."""
    return [
        curve(USUAL + np.array([np.log(1 + 20 / size), 0, 0.05 * np.log2(size / 32), 0, 0, 0]), size, workload)
        for size in sizes
    ]


def test_a_higher_limit_is_never_slower_and_never_draws_less():
    made = curve(USUAL)
    assert np.all(np.diff(made.time_s) <= 0)
    assert np.all(np.diff(made.power_w) >= 0)


def test_no_limit_is_exceeded_where_the_clock_can_still_fall():
    made = curve(USUAL)
    free = made.limit_w >= 125
    assert np.all(made.power_w[free] <= made.limit_w[free])


def test_a_limit_below_the_floor_clock_is_exceeded():
    epochs = predict(GPU, USUAL[None], np.array([[0.05, 0.10, 0.5]]))
    assert np.exp(epochs.log_power[0, 0]) > 0.05
    assert epochs.clock[0, 0] == pytest.approx(np.exp(GPU.log_floor), rel=0.15)


def test_who_waits_for_the_host_does_not_feel_a_limit():
    waiting = curve(USUAL + np.array([0, 3.0, 0, 0, 0, 0]))
    assert waiting.time_s == pytest.approx(np.full(len(LIMITS), waiting.time_s[-1]), rel=0.02)
    assert waiting.power_w.max() < 0.5 * curve(USUAL).power_w.max()


def test_three_limits_predict_the_others():
    curves = family()
    used = [(0, 4, 8)] * len(curves)
    fit = fit_limits(curves, used)
    for place, made in enumerate(curves):
        time_s, power_w = fit.predict(place, made.limit_w)
        assert time_s == pytest.approx(made.time_s, rel=0.06)
        assert power_w == pytest.approx(made.power_w, rel=0.03)


def test_a_batch_size_that_was_not_measured_comes_from_its_neighbours():
    curves = family()
    used = [() if made.batch_size == 32 else tuple(range(9)) for made in curves]
    time_s, power_w = fit_limits(curves, used).predict(2, LIMITS)
    assert time_s == pytest.approx(curves[2].time_s, rel=0.04)
    assert power_w == pytest.approx(curves[2].power_w, rel=0.04)


def test_noise_does_not_lead_the_fit_astray():
    rng = np.random.default_rng(7)
    curves = [
        LimitCurve(
            made.workload,
            made.batch_size,
            made.limit_w,
            made.time_s * np.exp(rng.normal(0, 0.02, 9)),
            made.power_w * np.exp(rng.normal(0, 0.02, 9)),
        )
        for made in family()
    ]
    fit = fit_limits(curves, [tuple(range(9))] * len(curves))
    for place, truth in enumerate(family()):
        time_s, power_w = fit.predict(place, LIMITS)
        assert np.mean(np.abs(time_s / truth.time_s - 1)) < 0.02
        assert np.mean(np.abs(power_w / truth.power_w - 1)) < 0.02


def test_curves_may_have_different_limits():
    curves = [*family((8, 16)), curve(USUAL, 32, limits=LIMITS[::2])]
    fit = fit_limits(curves, [(0, 4, 8), (0, 4, 8), (0, 2, 4)])
    time_s, _ = fit.predict(2, curves[2].limit_w)
    assert time_s.shape == (5,)
    assert np.all(np.isfinite(time_s))


def test_epochs_are_never_negative_beyond_the_sizes_that_were_measured():
    sizes = np.array([8.0, 16.0, 32.0, 64.0])
    seconds = epoch_seconds(sizes, 10.0 + 80.0 / sizes, np.array([2.0, 1024.0]))
    assert seconds == pytest.approx([50.0, 10.078125], rel=1e-6)
    falling = epoch_seconds(sizes, 100.0 / sizes, np.array([1e6]))
    assert falling[0] >= 0


def test_drift_makes_near_batch_sizes_alike():
    drift = BatchDrift(mean=0.0, offset=0.5, slope=0.1, smooth=0.3, own=0.05)
    covariance = drift.covariance(np.array([8.0, 16.0, 4096.0]))
    correlation = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    assert correlation[0, 1] > correlation[0, 2]
    assert np.all(np.linalg.eigvalsh(covariance) > 0)
