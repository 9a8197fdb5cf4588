"""The parts that a period is found with, each against what is known by construction."""

import numpy as np
import pytest

from wattune.signals.comb import comb, refined_period
from wattune.signals.grid import even_grid, stalls
from wattune.signals.period_candidates import adds, autocorrelation, peaks_s
from wattune.signals.samples import SensorUpdates, find_updates


def signal(value_of, *, seconds=60.0, step_s=0.02):
    time_s = np.arange(0, seconds, step_s)
    return SensorUpdates(time_s, value_of(time_s), step_s, held=False)


def wave(period_s, *, noise_w=0.0, seed=0):
    random = np.random.default_rng(seed)
    return lambda time_s: (
        200 + 50 * np.sin(2 * np.pi * time_s / period_s) + noise_w * random.standard_normal(len(time_s))
    )


def test_held_values_are_counted_once_per_refresh():
    time_s = np.arange(0, 20, 0.013)
    value = np.random.default_rng(0).uniform(100, 200, 400)[(time_s / 0.1).astype(int)]
    found = find_updates(time_s, value)
    assert found.held
    assert found.refresh_s == pytest.approx(0.1, rel=0.005)
    assert abs(len(found.time_s) - 200) <= 2


def test_a_value_that_comes_again_counts_for_each_of_its_refreshes():
    time_s = np.arange(0, 20, 0.01)
    value = np.random.default_rng(0).integers(0, 4, 400)[(time_s / 0.1).astype(int)].astype(float)
    assert abs(len(find_updates(time_s, value).time_s) - 200) <= 10


def test_polls_of_two_lengths_do_not_hide_the_refresh():
    random = np.random.default_rng(3)
    time_s = np.cumsum(np.resize([0.0105, 0.0146], 4000) + 0.0003 * random.standard_normal(4000))
    value = random.standard_normal(4000)[(time_s / 0.0201).astype(int)]
    assert find_updates(time_s, value).refresh_s == pytest.approx(0.0201, rel=0.12)


def test_values_that_are_always_new_are_all_kept():
    time_s = np.arange(0, 5, 0.05)
    found = find_updates(time_s, np.random.default_rng(0).standard_normal(len(time_s)))
    assert not found.held
    assert len(found.time_s) == len(time_s)


def test_masked_points_do_not_count_in_the_autocorrelation():
    grid = even_grid(signal(wave(0.8)))
    spoilt = even_grid(signal(lambda time_s: np.where((time_s > 20) & (time_s < 30), 5000.0, wave(0.8)(time_s))))
    place = spoilt.start_s + np.arange(len(spoilt.value)) * spoilt.step_s
    kept = autocorrelation(spoilt.masked((place > 19.9) & (place < 30.1)), longest_s=5.0)
    assert kept.at(0.8) == pytest.approx(autocorrelation(grid, longest_s=5.0).at(0.8), abs=0.05)


def test_the_first_peak_of_a_wave_is_its_period():
    found = peaks_s(autocorrelation(even_grid(signal(wave(0.8))), longest_s=10.0), shortest_s=0.1, most=20)
    assert min(lag_s for lag_s, _ in found) == pytest.approx(0.8, rel=0.01)


def test_lines_of_a_period_explain_a_wave_and_no_other():
    grid = even_grid(signal(wave(0.8, noise_w=5.0)))
    right, wrong = comb(grid, 0.8), comb(grid, 0.61)
    assert right.explained > 0.9
    assert right.chance < 1e-12
    assert wrong.explained < 0.1


def test_the_false_alarm_rate_of_noise_is_as_stated():
    """The false-alarm rate of one tried period is near the stated one, or below."""
    random = np.random.default_rng(7)
    chances = []
    for _ in range(150):
        grid = even_grid(SensorUpdates(np.arange(0, 40, 0.1), random.standard_normal(400), 0.1, held=False))
        chances += [comb(grid, period_s).chance for period_s in (0.73, 1.31, 2.9)]
    assert np.mean(np.array(chances) < 0.01) < 0.03


def test_a_multiple_adds_nothing_and_the_whole_adds_to_its_half():
    grid = even_grid(
        signal(lambda time_s: 200 + 60 * (time_s % 0.5 < 0.2) + 30 * (time_s % 1.0 < 0.5) + wave(9, noise_w=2)(time_s))
    )
    assert adds(grid, 1.0, to_s=0.5)
    assert not adds(grid, 2.0, to_s=1.0)


@pytest.mark.parametrize("off", [-0.004, 0.003])
def test_a_period_is_refined_over_the_whole_trace(off):
    grid = even_grid(signal(wave(0.8123, noise_w=10.0)))
    exact = refined_period(grid, 0.8123 * (1 + off))
    assert exact.period_s == pytest.approx(0.8123, abs=max(2 * exact.error_s, 1e-5))
    assert exact.error_s < 0.002


def test_a_stall_is_hidden_and_steps_are_not():
    def stalled(time_s):
        return np.where((time_s % 15 > 13), 60.0, wave(0.4)(time_s))

    hidden = stalls(even_grid(signal(stalled)), smooth_s=1.0)
    assert 0.1 < hidden.mean() < 0.3
    assert not stalls(even_grid(signal(wave(3.0))), smooth_s=1.0).any()
