"""Worth, risk and budget of trials, and early stopping."""

from dataclasses import replace

import numpy as np
import pytest

from synthetic_job import GPU, JOB, ended, finished
from wattune.core.job import Outcome
from wattune.levels.job.policy import gains, stakes
from wattune.levels.job.safety import SHARE, budget
from wattune.levels.job.smooth_curve import SizePosterior
from wattune.levels.job.stopping import RunPrediction, combined, patience

ALL = np.array([True, True])
NO_OVERHEAD = np.ones(2)


def normal_posterior(means, deviations):
    return SizePosterior(np.log(np.array(means)), np.diag(np.array(deviations) ** 2))


def test_there_is_nothing_to_learn_where_all_is_known():
    assert gains(normal_posterior([1.0, 1.2], [1e-6, 1e-6]), 0.1, overhead=NO_OVERHEAD, among=ALL) == pytest.approx(
        [0, 0], abs=1e-9
    )


def test_the_less_is_known_of_a_rival_the_more_is_to_be_gained_and_noise_hides_it():
    known, unsure = (
        gains(normal_posterior([1.0, 1.1], [0.01, sd]), 0.1, overhead=NO_OVERHEAD, among=ALL)[1] for sd in (0.05, 0.3)
    )
    hidden = gains(normal_posterior([1.0, 1.1], [0.01, 0.3]), 2.0, overhead=NO_OVERHEAD, among=ALL)[1]
    assert 0 <= known < unsure
    assert hidden < unsure


def test_a_size_that_may_not_be_chosen_is_not_worth_trying():
    posterior = normal_posterior([1.0, 0.7], [0.01, 0.3])
    assert gains(posterior, 0.1, overhead=NO_OVERHEAD, among=np.array([True, False]))[1] == pytest.approx(0, abs=1e-9)


def test_stakes_grow_with_the_distance_from_what_works():
    posterior = normal_posterior([1.0, 1.0], [0.1, 0.1])
    near, far = (
        stakes(posterior, best_cost=1.0, beyond=np.array([0.0, octaves]), first_epoch=np.full(2, 0.05))
        for octaves in (0.4, 1.0)
    )
    assert near.bad[1] < far.bad[1]
    assert near.excess[1] <= near.harm[1]


def counted(runs, usual=100.0):
    objective = JOB.objective_on(GPU.max_power_w)
    costs = dict.fromkeys(JOB.batch_sizes, usual)
    return budget(runs, objective=objective, interval={}, default_cost=100.0, best_cost=100.0, usual_cost=costs)


def test_the_budget_grows_by_a_few_percent_of_every_default_run():
    assert counted([]) == pytest.approx(100 * SHARE)
    runs = [finished(order, 512, 40) for order in range(9)]
    assert counted(runs) == pytest.approx(10 * 100 * SHARE)


def test_savings_may_be_spent_and_failures_are_paid_from_the_budget():
    runs = [finished(order, 512, 40) for order in range(9)]
    assert counted(runs, usual=90.0) == pytest.approx(10 * 100 * SHARE + 9 * 10.0)
    failure = ended(9, 256, 3, outcome=Outcome.STOPPED, recurrence=8, exploring=True)
    spent = JOB.objective_on(GPU.max_power_w).value(failure.cost)
    assert counted([*runs, failure]) == pytest.approx(10 * 100 * SHARE - spent)


def test_a_trial_that_is_out_keeps_others_from_spending_what_it_may_cost():
    out = replace(ended(1, 256, 0, outcome=Outcome.RUNNING, exploring=True), recurrence=1)
    assert counted([finished(0, 512, 40), out]) < counted([finished(0, 512, 40)])


def prediction(**changes):
    standing = RunPrediction(
        epochs=10, max_epochs=100, log_epochs=np.log(20.0), sd=0.2, miss=0.02, epoch_cost=0.05, horizon=0.0
    )
    return replace(standing, **changes)


def test_a_run_that_is_on_its_way_to_win_pays():
    assert prediction().pays


def test_a_run_that_is_sure_to_lose_does_not():
    assert not prediction(log_epochs=np.log(80.0), sd=0.1).pays


def test_what_was_spent_is_gone_a_run_near_its_end_goes_on():
    assert prediction(epochs=26, log_epochs=np.log(30.0), sd=0.1).pays


def test_a_chance_for_many_later_runs_is_worth_a_trial():
    unsure = prediction(epochs=2, log_epochs=np.log(45.0), sd=0.5)
    assert not replace(unsure, horizon=0.0, log_epochs=np.log(60.0)).pays
    assert replace(unsure, horizon=100.0).pays


def test_the_longer_a_run_is_overdue_the_likelier_it_never_arrives():
    late = [prediction(epochs=epochs).never for epochs in (5, 20, 30, 40)]
    assert late == sorted(late)
    assert late[-1] > 0.5
    assert not prediction(epochs=41).pays


def test_no_epoch_is_begun_that_exceeds_the_most_a_trial_may_cost():
    near = {"log_epochs": np.log(5.6), "sd": 0.05, "miss": 0.0, "epoch_cost": 0.3}
    assert prediction(epochs=4, **near).pays
    assert not prediction(epochs=5, **near).pays


def test_a_trial_as_expensive_as_the_best_goes_on_only_where_its_end_is_near():
    late = {"epochs": 20, "log_epochs": np.log(22.0), "sd": 0.1, "horizon": 100.0}
    assert prediction(**late).pays
    assert not prediction(**late, miss=0.9).pays
    assert not prediction(**(late | {"log_epochs": np.log(45.0)})).pays


def test_a_run_without_progress_probably_never_arrives():
    moving, stalled = (prediction(epochs=19, patience=patience) for patience in (1.0, 0.01))
    assert moving.never < 0.1
    assert stalled.never > 0.5
    assert moving.pays
    assert not stalled.pays


def test_a_trial_is_stopped_where_the_next_epoch_crosses_what_the_job_can_lose():
    unsure = prediction(sd=0.5)
    assert unsure.is_affordable(0.6, sure=0.9)
    assert not unsure.is_affordable(0.52, sure=0.9)


def test_a_trial_whose_end_is_nearly_sure_may_cross_it():
    assert prediction(sd=0.1).is_affordable(0.52, sure=0.9)
    assert not prediction(sd=0.1, miss=0.4).is_affordable(0.52, sure=0.9)


def test_beyond_what_the_job_can_lose_only_the_gain_counts_unless_it_must_be_safe():
    assert prediction(sd=0.5).is_affordable(0.3, sure=0.9)
    assert not prediction(sd=0.01).is_affordable(0.3, sure=1.0)


def test_a_run_that_replaces_another_does_not_pay_for_a_recurrence_of_its_own():
    objective = JOB.objective_on(GPU.max_power_w)
    runs, costs = [finished(order, 512, 40) for order in range(3)], dict.fromkeys(JOB.batch_sizes, 100.0)
    new, same = (
        budget(
            runs,
            objective=objective,
            interval={},
            default_cost=100.0,
            best_cost=100.0,
            usual_cost=costs,
            recurrence=recurrence,
        )
        for recurrence in (3, 2)
    )
    assert new - same == pytest.approx(100 * (1 + SHARE))


def test_prior_and_curve_are_weighted_and_the_prior_gives_way():
    mean, sd = combined((0.0, 0.2), (0.1, 0.2))
    assert mean == pytest.approx(0.05)
    assert sd < 0.2
    torn, _ = combined((0.0, 0.2), (2.0, 0.3))
    assert torn > 1.2


def test_patience_doubles_with_every_run_that_was_given_up():
    assert [patience(10, stopped) for stopped in range(3)] == [30, 60, 120]
