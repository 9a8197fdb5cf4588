"""Predict the epochs of a run from its learning curve."""

from dataclasses import replace
from math import exp, inf, nan

import pytest

from synthetic_job import JOB, ended, finished
from wattune.core.job import Outcome
from wattune.levels.job.learning_curve import best_so_far, speed, speed_on_the_way


def going(size, epochs, whole):
    return ended(1, size, epochs, outcome=Outcome.RUNNING, whole=whole)


def test_the_best_so_far_never_falls_and_skips_what_is_no_number():
    assert best_so_far(JOB, (None, 0.2, 0.1, nan, 0.3)) == [-inf, 0.2, 0.2, 0.2, 0.3]
    assert best_so_far(replace(JOB, higher_is_better=False), (5.0, 6.0, 4.0)) == [-5.0, -5.0, -4.0]


@pytest.mark.parametrize("whole", [12.0, 25.0, 80.0])
def test_a_curve_that_is_stretched_by_a_factor_is_seen_through(whole):
    reference = finished(0, 512, 40)
    found = speed(JOB, going(256, int(whole / 2), whole), reference, octaves=1.0)
    assert found is not None
    assert exp(found.log_epochs) == pytest.approx(whole, rel=0.1)


def test_its_progress_is_more_certain_the_longer_a_run_and_the_nearer_its_size():
    reference = finished(0, 512, 40)
    early, late = (speed(JOB, going(256, epochs, 30.0), reference, octaves=1.0) for epochs in (6, 24))
    far = speed(JOB, going(64, 24, 30.0), reference, octaves=3.0)
    assert late.sd < early.sd
    assert late.sd < far.sd


def test_recorded_steps_serve_as_well_as_every_epoch():
    """Metrics that are reported in steps, as the best threshold passed."""
    reference = replace(finished(0, 512, 8), metrics=(0.3, 0.3, 0.5, 0.5, 0.7, 0.7, 0.7, 0.9))
    twice = replace(going(1024, 6, 16.0), metrics=(None, 0.3, 0.3, 0.3, 0.3, 0.5))
    assert exp(speed(JOB, twice, reference, octaves=1.0).log_epochs) == pytest.approx(16.0)


def test_a_run_that_lags_behind_is_known_to_be_slower():
    reference = replace(finished(0, 512, 8), metrics=(0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9))
    lagging = replace(going(1024, 6, 50.0), metrics=(0.1,) * 6)
    assert exp(speed(JOB, lagging, reference, octaves=1.0).log_epochs) >= 40


def test_a_run_whose_metric_stalls_where_others_went_on_seldom_works():
    reference = replace(finished(0, 512, 5), metrics=(0.3, 0.4, 0.5, 0.6, 0.9))
    waiting = [replace(going(1024, epochs, 50.0), metrics=(0.3,) * epochs) for epochs in (2, 4, 6)]
    found = [speed(JOB, run, reference, octaves=1.0).patience for run in waiting]
    assert found[0] == 1.0
    assert found[0] > found[1] > found[2]
    assert found[2] < 0.05


def test_a_wait_as_long_as_one_of_the_reference_is_no_stall():
    reference = replace(finished(0, 512, 8), metrics=(0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5, 0.9))
    waiting = replace(going(1024, 6, 50.0), metrics=(0.3,) * 6)
    assert speed(JOB, waiting, reference, octaves=1.0).patience == 1.0


def test_a_metric_within_the_last_jump_of_the_reference_shows_no_near_end():
    steady, jumping = (
        replace(finished(0, 512, 10), metrics=metrics)
        for metrics in (
            (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9),
            (0.2, 0.3, 0.4, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9),
        )
    )
    ahead = replace(going(1024, 6, 12.0), metrics=(0.3, 0.4, 0.5, 0.6, 0.8, 0.87))
    sure, unsure = (speed(JOB, ahead, reference, octaves=1.0) for reference in (steady, jumping))
    assert sure.sd < 0.1
    assert unsure.sd > 0.2


def test_a_wait_for_the_target_itself_is_left_to_the_number_of_epochs():
    reference = replace(finished(0, 512, 4), metrics=(0.3, 0.4, 0.5, 0.9))
    waiting = replace(going(1024, 20, 50.0), metrics=(0.3, 0.4, *(0.5,) * 18))
    assert speed(JOB, waiting, reference, octaves=1.0).patience == 1.0


@pytest.mark.parametrize("metrics", [(), (None,) * 5, (nan,) * 5])
def test_nothing_is_said_where_nothing_was_reported(metrics):
    silent = replace(finished(0, 512, 5), metrics=metrics)
    assert speed(JOB, going(256, 4, 20.0), silent, octaves=1.0) is None
    assert speed_on_the_way(JOB, silent, finished(1, 256, 20), octaves=1.0) is None


def test_the_way_of_a_run_leaves_the_luck_of_its_last_steps_aside():
    usual = replace(finished(0, 512, 4), metrics=(0.5, 0.6, 0.8, 0.9))
    unlucky = replace(finished(1, 1024, 7), metrics=(0.5, 0.6, 0.8, 0.8, 0.8, 0.8, 0.9))
    assert exp(speed_on_the_way(JOB, unlucky, usual, octaves=1.0).log_epochs) == pytest.approx(4.0)
