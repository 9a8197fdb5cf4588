"""Posteriors of the epochs to the target and of the cost of an epoch."""

from dataclasses import replace

import numpy as np
import pytest

from synthetic_job import JOB, ended, finished
from wattune.core.job import Outcome
from wattune.levels.job.epoch_cost import cost_posterior
from wattune.levels.job.epochs import epoch_evidence, epochs_posterior
from wattune.levels.job.smooth_curve import Site

GRID = np.log2(np.array([16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0]))


def sites_of(curve, sizes, variance=1e-4, group=0):
    """Return sites on a curve at some sizes."""
    return [Site(float(np.log2(size)), float(np.log(curve(size))), variance, group) for size in sizes]


def epochs(size, minimum=10.0, critical=200.0):
    return minimum * (1 + size / critical)


def test_what_was_seen_is_believed_and_uncertainty_grows_with_distance():
    posterior = epochs_posterior(GRID, sites_of(epochs, [512]), default_x=9.0)
    assert np.exp(posterior.mean[5]) == pytest.approx(epochs(512), rel=0.02)
    deviations = np.sqrt(posterior.variance)
    assert all(np.diff(deviations[:6]) < 0)
    assert deviations[6] > deviations[5]


def test_three_sizes_tell_of_a_fourth():
    posterior = epochs_posterior(GRID, sites_of(epochs, [1024, 512, 256]), default_x=9.0)
    assert abs(posterior.mean[3] - np.log(epochs(128))) < 2 * np.sqrt(posterior.variance[3])
    assert np.exp(posterior.mean[3]) < epochs(256)


def test_before_anything_was_seen_the_level_is_unknown_and_the_shape_is_not():
    posterior = epochs_posterior(GRID, [], default_x=9.0)
    assert np.sqrt(posterior.variance[5]) > 3
    gap = posterior.covariance[5, 5] + posterior.covariance[4, 4] - 2 * posterior.covariance[5, 4]
    assert np.sqrt(gap) < 0.6


def test_a_change_keeps_the_ratios_of_sizes():
    before = sites_of(epochs, [1024, 512, 256, 128, 64], group=1)
    after = sites_of(lambda size: 2.5 * epochs(size), [128])
    posterior = epochs_posterior(GRID, before + after, default_x=9.0)
    for place, size in ((4, 256), (2, 64)):
        assert np.exp(posterior.mean[place]) == pytest.approx(2.5 * epochs(size), rel=0.1)


def test_a_stopped_trial_counts_as_a_miss_the_more_the_longer_it_stalled():
    default = finished(0, 512, 20)
    counts = []
    for epochs, whole in ((8, 16.0), (40, 16.0), (80, 16.0)):
        trial = ended(1, 256, epochs, outcome=Outcome.STOPPED, whole=whole, exploring=True)
        stalled = replace(trial, metrics=tuple(min(metric, 0.8) for metric in trial.metrics))
        counts.append(epoch_evidence(JOB, [default, stalled]).missed_count[256])
    assert counts == sorted(counts)
    assert counts[0] < 0.2 < 0.8 < counts[2] < 1.0


def test_a_trial_that_outlived_the_end_its_curve_predicts_needs_more_than_it_took():
    default = finished(0, 512, 20)
    trial = ended(1, 256, 40, outcome=Outcome.STOPPED, whole=10.0, exploring=True)
    stalled = replace(trial, metrics=tuple(min(metric, 0.88) for metric in trial.metrics))
    found = epoch_evidence(JOB, [default, stalled])
    grid = np.log2(np.array(JOB.batch_sizes, dtype=float))
    posterior = epochs_posterior(grid, found.sites, default_x=9.0)
    assert np.exp(posterior.mean[4]) > 25


def test_a_part_that_waits_gains_from_larger_batches_and_a_busy_one_does_not():
    only = [Site(9.0, 0.0, 1e-4)]
    waiting = cost_posterior(GRID, only, default_x=9.0, draw=0.2)
    busy = cost_posterior(GRID, only, default_x=9.0, draw=0.85)
    unknown = cost_posterior(GRID, only, default_x=9.0, draw=None)
    assert waiting.mean[6] < -0.4 < -0.1 < busy.mean[6]
    assert waiting.mean[6] < unknown.mean[6]


def test_two_sizes_fix_the_overhead():
    def cost(size):
        return 100.0 + 20000.0 / size

    posterior = cost_posterior(GRID, sites_of(cost, [512, 256]), default_x=9.0, draw=0.6)
    assert np.exp(posterior.mean[3]) == pytest.approx(cost(128), rel=0.15)
    assert abs(posterior.mean[2] - np.log(cost(64))) < 2 * np.sqrt(posterior.variance[2])


def test_another_part_teaches_the_shape_and_not_the_level():
    def cost(size):
        return 100.0 + 20000.0 / size

    elsewhere = sites_of(cost, [1024, 512, 256, 128, 64, 32], group=1)
    here = sites_of(lambda size: 7 * cost(size), [512])
    posterior = cost_posterior(GRID, here + elsewhere, default_x=9.0, draw=None)
    assert np.exp(posterior.mean[2]) == pytest.approx(7 * cost(64), rel=0.2)
