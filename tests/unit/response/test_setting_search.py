"""Search for the best setting: few windows, none where they are certainly expensive, and the optimum at the end."""

import numpy as np
import pytest

from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.core.objective import (
    Deadline,
    EnergyDelay,
    LeastCarbon,
    LeastCost,
    LeastEnergy,
    LeastMoney,
    PowerBudget,
)
from wattune.core.setting import Setting
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.job.gpus import job_settings
from wattune.levels.job.options import JobKnob
from wattune.physics.catalog import load_model
from wattune.response.cost_values import values
from wattune.response.ensemble import jobs_at
from wattune.response.evidence import USUAL_ERROR, trial_evidence
from wattune.response.points import PointScale
from wattune.response.setting_search import SettingSearch, SimilarProfile
from wattune.workloads.catalog import make_workload

LIMITS = tuple(Setting(power_limit_w=float(watts)) for watts in range(100, 301, 25))
A40_RESNET50 = {  # an epoch of ResNet-50 on an A40 over that at 300 W, and watts (Zeus traces, batch size 256)
    100: (2.757, 120.7),
    125: (2.505, 125.5),
    150: (1.644, 144.6),
    175: (1.223, 160.2),
    200: (1.072, 177.6),
    225: (1.016, 196.4),
    250: (1.005, 214.6),
    275: (1.003, 230.8),
    300: (1.000, 235.2),
}


def a40(setting):
    time_s, power_w = A40_RESNET50[int(setting.power_limit_w)]
    return Measurement(100 * time_s, 100 * time_s * power_w)


def searched(search, candidates, cost, *, noise=0.01, seed=0):
    """The history of a search whose windows scatter."""
    rng, history = np.random.default_rng(seed), ()
    while (wanted := search.propose(candidates, history)) is not None:
        assert len(history) < 40
        true, (slower, costlier) = cost(wanted), np.exp(noise * rng.standard_normal(2))
        time_s, energy_j = true.time_s * slower, true.energy_j * slower * costlier
        errors = 1.96 * noise * np.array([time_s, 2**0.5 * energy_j])
        history = (*history, Trial(wanted, Measurement(time_s, energy_j, *errors.tolist())))
    return history


def excess(search, candidates, history, cost):
    chosen = search.best(candidates, history)
    return search.objective.value(cost(chosen)) / min(search.objective.value(cost(one)) for one in candidates) - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_a_few_windows_find_the_best_limit_and_none_is_at_a_hopeless_one(eta, seed):
    search = SettingSearch(objective=LeastCost(eta, 300.0))
    history = searched(search, LIMITS, a40, seed=seed)
    assert history[0].choice == LIMITS[-1]
    assert len(history) <= 7
    assert min(trial.choice.power_limit_w for trial in history) >= 150  # 100 W takes 2.8 times as long
    assert excess(search, LIMITS, history, a40) < 0.03


def test_a_profile_of_a_neighbour_sends_the_first_window_to_the_optimum():
    fresh = SettingSearch(objective=LeastCost(0.5, 300.0))
    known = fresh.settled(LIMITS, searched(fresh, LIMITS, a40))
    search = SettingSearch(objective=LeastCost(0.5, 300.0), similar=(SimilarProfile(trials=known, octaves=1.0),))
    assert search.propose(LIMITS, ()).power_limit_w in (200.0, 225.0)


def test_where_the_reference_is_not_known_a_slowdown_is_measured_from_the_highest_setting():
    known = tuple(Trial(setting, a40(setting)) for setting in LIMITS)
    search = SettingSearch(objective=LeastEnergy(0.05), similar=(SimilarProfile(trials=known, octaves=1.0),))
    assert search.propose(LIMITS, ()) == LIMITS[-1]
    history = searched(search, LIMITS, a40)
    assert a40(search.best(LIMITS, history)).time_s <= 1.06 * a40(LIMITS[-1]).time_s
    assert a40(search.best(LIMITS, history)).energy_j < 0.9 * a40(LIMITS[-1]).energy_j


def test_a_power_budget_is_kept():
    search = SettingSearch(objective=PowerBudget(180.0))
    assert search.best(LIMITS, searched(search, LIMITS, a40)).power_limit_w in (175.0, 200.0)


def test_a_deadline_is_kept():
    search = SettingSearch(objective=Deadline(110.0))
    assert search.best(LIMITS, searched(search, LIMITS, a40)).power_limit_w == 200.0


@pytest.mark.parametrize("device", ["a100", "h100-sxm", "v100"])
def test_core_clocks_are_searched_the_same_way(device):
    gpu, workload = SimulatedGpu(load_model(device)), make_workload("resnet50:64")
    spec = gpu.spec
    clocks = job_settings(spec, JobKnob.SM_CLOCK, limit_w=spec.power_limits.max_w)

    def cost(setting):
        gpu.apply(setting)
        before_s, before_j = gpu.count().time_s, gpu.truth_j
        gpu.run(workload, iterations=20)
        return Measurement((gpu.count().time_s - before_s) / 20, (gpu.truth_j - before_j) / 20)

    objective = LeastCost(0.5, spec.power_limits.max_w)
    search = SettingSearch(objective=objective, max_power_w=spec.power_limits.max_w, max_mhz=spec.sm_clocks_mhz[-1])
    history = searched(search, clocks, cost)
    assert len(history) <= 10
    assert excess(search, clocks, history, cost) < 0.02


@pytest.mark.parametrize("device", ["a100", "a40", "v100"])
def test_a_clock_within_a_slowdown_limit_is_found_in_few_windows(device):
    gpu, workload = SimulatedGpu(load_model(device)), make_workload("resnet50:64")
    spec = gpu.spec
    clocks = job_settings(spec, JobKnob.SM_CLOCK, limit_w=spec.power_limits.max_w)

    def cost(setting):
        gpu.apply(setting)
        before_s, before_j = gpu.count().time_s, gpu.truth_j
        gpu.run(workload, iterations=20)
        return Measurement((gpu.count().time_s - before_s) / 20, (gpu.truth_j - before_j) / 20)

    search = SettingSearch(
        objective=LeastEnergy(0.05), max_power_w=spec.power_limits.max_w, max_mhz=spec.sm_clocks_mhz[-1]
    )
    history = searched(search, clocks, cost)
    default, held = cost(max(clocks)), cost(search.best(clocks, history))
    allowed = [own.energy_j for own in map(cost, clocks) if own.time_s <= 1.05 * default.time_s]
    assert len(history) <= 12
    assert held.time_s <= 1.055 * default.time_s
    assert 1 - held.energy_j / default.energy_j > 0.7 * (1 - min(allowed) / default.energy_j)


def test_several_gpus_are_searched_as_one():
    def four(setting):
        one = a40(setting)
        return Measurement(one.time_s, 4 * one.energy_j)

    one = SettingSearch(objective=LeastCost(0.5, 300.0))
    all_four = SettingSearch(objective=LeastCost(0.5, 1200.0), gpus=4)
    choices = [trial.choice for trial in searched(one, LIMITS, a40)]
    assert [trial.choice for trial in searched(all_four, LIMITS, four)] == choices


def test_nothing_to_choose_from_is_nothing_to_propose():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    assert search.propose((), ()) is None
    assert search.best(LIMITS, ()) is None
    assert search.settled(LIMITS, ()) == ()


def test_one_candidate_is_measured_once():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    assert len(searched(search, LIMITS[-1:], a40)) == 1


def test_a_window_that_spent_nothing_is_as_if_it_had_not_been():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    assert search.propose(LIMITS, (Trial(LIMITS[-1], Measurement(0.0, 0.0)),)) == LIMITS[-1]


def test_noisy_windows_are_repeated_and_quiet_ones_are_not():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    quiet = searched(search, LIMITS, a40, noise=0.003)
    noisy = [searched(search, LIMITS, a40, noise=0.05, seed=seed) for seed in range(4)]
    assert len({trial.choice for trial in quiet}) == len(quiet)
    assert any(len({trial.choice for trial in history}) < len(history) for history in noisy)


def test_what_is_settled_scatters_less_than_the_windows():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    raw, settled = [], []
    for seed in range(8):
        history = searched(search, LIMITS, a40, noise=0.03, seed=seed)
        raw += [trial.cost.time_s / a40(trial.choice).time_s - 1 for trial in history]
        settled += [trial.cost.time_s / a40(trial.choice).time_s - 1 for trial in search.settled(LIMITS, history)]
    assert np.std(settled) < np.std(raw)


def test_the_curve_has_every_candidate_with_its_error():
    search = SettingSearch(objective=LeastCost(0.5, 300.0))
    history = searched(search, LIMITS, a40)
    curve = search.curve(LIMITS, history)
    assert tuple(trial.choice for trial in curve) == LIMITS
    assert all(trial.cost.time_error_s > 0 and trial.cost.energy_error_j > 0 for trial in curve)
    # Below all that was measured the curve is a guess, and its error too.
    lowest = min(trial.choice for trial in history)
    within = [trial for trial in curve if trial.choice >= lowest]
    assert all(abs(trial.cost.time_s - a40(trial.choice).time_s) < 2 * trial.cost.time_error_s for trial in within)


@pytest.mark.parametrize(
    "objective",
    [
        LeastCost(0.3, 250.0),
        LeastEnergy(0.1),
        Deadline(10.0),
        LeastMoney(0.3, 2.0),
        LeastCarbon(400.0, 30.0),
        EnergyDelay(2.0),
        PowerBudget(100.0),
    ],
)
def test_many_values_at_once_are_those_of_the_objective(objective):
    time_s, energy_j = np.array([[1.0, 2.0], [3.0, 0.5]]), np.array([[10.0, 15.0], [20.0, 30.0]])
    expected = [
        objective.value(Measurement(float(t), float(e))) for t, e in zip(time_s.flat, energy_j.flat, strict=True)
    ]
    assert values(objective, time_s, energy_j).flatten() == pytest.approx(expected)


def test_an_objective_of_somebody_else_is_asked_one_by_one():
    class Cubed:
        def value(self, cost):
            return cost.time_s**3

    assert values(Cubed(), np.array([[1.0, 2.0]]), np.array([[1.0, 1.0]])).tolist() == [[1.0, 8.0]]


def test_every_curve_of_the_ensemble_is_monotone():
    scale = PointScale(sm_mhz=1400, mem_mhz=None, limit_w=300.0)
    for settings in (LIMITS, tuple(Setting(sm_mhz=mhz) for mhz in range(300, 1500, 100))):
        ensemble = jobs_at(tuple(scale.point(setting) for setting in settings))
        assert (np.diff(ensemble.log_time, axis=1) <= 1e-9).all()
        assert (np.diff(ensemble.log_power, axis=1) >= -1e-9).all()


def test_windows_at_one_setting_are_taken_together_by_their_errors():
    sure, unsure = Measurement(1.0, 100.0, 0.01, 1.0), Measurement(2.0, 200.0, 1.0, 100.0)
    point = trial_evidence((Trial(LIMITS[0], sure), Trial(LIMITS[0], unsure)))[LIMITS[0]]
    assert point.windows == 2
    assert np.exp(point.log_time.value) == pytest.approx(1.0, rel=0.02)
    unknown = trial_evidence((Trial(LIMITS[0], Measurement(1.0, 100.0)),))[LIMITS[0]]
    assert unknown.log_time.error == USUAL_ERROR
