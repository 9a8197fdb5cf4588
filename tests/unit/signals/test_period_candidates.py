"""Which of many lags is the period: not a part of it, not some of them, and not what merely resembles it."""

import numpy as np
import pytest

from wattune.signals.grid import even_grid
from wattune.signals.period import find_period
from wattune.signals.period_candidates import candidates, find_periods, folded_shares
from wattune.signals.samples import SensorUpdates, find_updates
from wattune_bench.period.loads import Load, LoadPlan, Sensing, polled, training

QUICK = Sensing(refresh_s=0.02, window_s=0.01, noise_w=0.3, poll_s=0.01)
PART_TIME = Sensing(refresh_s=0.1, window_s=0.025, noise_w=0.3, poll_s=0.01)


def grid_of(load, sensing, seconds, *, seed=0):
    samples = polled(load, sensing, seconds, random=np.random.default_rng(seed))
    return even_grid(find_updates(samples.time_s, samples.power_w))


def noise(*, seconds=60.0, seed=0):
    time_s = np.arange(0, seconds, 0.02)
    return even_grid(
        SensorUpdates(time_s, 200 + 5 * np.random.default_rng(seed).standard_normal(len(time_s)), 0.02, held=False)
    )


@pytest.mark.parametrize("seed", range(4))
def test_noise_has_no_periods(seed):
    assert find_periods(noise(seed=seed), shortest_s=0.04, longest_s=20.0) == ()


def test_a_period_and_its_multiples_are_candidates_and_the_period_is_chosen():
    load = training(LoadPlan(step_s=0.7), 60.0, random=np.random.default_rng(3))
    grid = grid_of(load, QUICK, 60.0)
    found = [period.period_s for period in candidates(grid, shortest_s=0.04, longest_s=20.0)]
    assert any(own == pytest.approx(1.4, rel=0.01) for own in found)
    (period,) = find_periods(grid, shortest_s=0.04, longest_s=20.0)
    assert period.period_s == pytest.approx(load.periods_s["step"], rel=0.005)
    assert period.explained > 0.8
    assert period.chance < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_the_step_around_eight_micro_steps_is_not_mistaken_for_seven_of_them(seed):
    load = training(LoadPlan(step_s=8.5, parts=8), 170.0, random=np.random.default_rng(seed))
    samples = polled(load, PART_TIME, 170.0, random=np.random.default_rng(seed))
    found_s = find_period(samples).period_s
    assert any(found_s == pytest.approx(own_s, rel=0.05) for own_s in load.periods_s.values())


@pytest.mark.parametrize("step_s", [0.32, 0.4852, 0.3937, 0.525])
def test_a_step_whose_multiple_fits_the_refresh_time_is_found_itself(step_s):
    # 0.32 s on a sensor of 0.1 s: five steps are sixteen refreshes, and power repeats exactly after them.
    wave = np.resize([1.0, 0.0], round(130 / step_s))
    load = Load(duration_s=np.full(len(wave), step_s / 2), power_w=80 + 170 * wave, busy=wave, mem_busy=0.5 * wave)
    samples = polled(load, PART_TIME, 60.0, random=np.random.default_rng(0))
    assert find_period(samples).period_s == pytest.approx(step_s, rel=0.01)


def test_folding_at_the_period_explains_and_at_another_does_not():
    grid = grid_of(training(LoadPlan(step_s=0.7), 60.0, random=np.random.default_rng(3)), QUICK, 60.0)
    half, whole = folded_shares(grid, 0.35, 0.7, length_s=4.2)
    assert whole > 0.9
    assert half < whole
    assert folded_shares(grid, 0.61, 0.87, length_s=4.2)[0] < 0.3


def test_without_values_a_fold_explains_nothing():
    grid = noise(seconds=1.0)
    assert max(folded_shares(grid, 0.2, 0.4, length_s=2.4)) < 0.5
