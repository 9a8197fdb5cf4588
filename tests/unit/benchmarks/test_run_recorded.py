"""Recorded sweeps that are hard on a policy, and how near to the oracle noise lets anyone come."""

import pytest

from wattune.benchmarks.run.bound import provable_saving
from wattune.benchmarks.run.sweep import play_sweep, sweeps_of
from wattune.core.setting import Setting
from wattune.devices.table import parse_sweep

HEAD = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


def limits(*rows):
    """A sweep of power limits: (limit, percent slower, energy)."""
    lines = (f"net,,,{watts},{1 + percent / 100},{energy_j}\n" for watts, percent, energy_j in rows)
    (sweep,) = sweeps_of(parse_sweep(HEAD + "".join(lines), file="limits.csv"))
    return sweep


def played(sweep, *, seed=0):
    return play_sweep(sweep, slowdown=0.05, noise=0.01, seed=seed)


@pytest.mark.parametrize("percent", [5.2, 5.6, 6.5])
def test_a_row_just_beyond_the_promise_is_left_alone(percent):
    sweep = limits((300, 0, 250), (260, 1.5, 232), (220, percent, 210), (180, 18, 200), (140, 45, 212))
    found = [played(sweep, seed=seed).chosen for seed in range(3)]
    assert all(setting != Setting(power_limit_w=220.0) for setting in found)


def test_a_row_within_the_promise_by_little_is_proved():
    sweep = limits((300, 0, 250), (260, 1.5, 232), (220, 4.4, 210), (180, 18, 200), (140, 45, 212))
    found = [played(sweep, seed=seed).chosen for seed in range(3)]
    assert found.count(Setting(power_limit_w=220.0)) >= 2


def test_a_row_that_no_curve_expects_is_found_where_there_are_few():
    sweep = limits((250, 0, 138), (200, 2.6, 122), (150, 1.9, 103), (125, 6.7, 98), (100, 0.1, 88))
    outcome = played(sweep)
    assert outcome.chosen == Setting(power_limit_w=100.0)


def test_a_limit_that_doubles_the_time_is_not_taken_for_another_unit():
    sweep = limits((300, 0, 250), (200, 30, 240), (150, 70, 230), (100, 106, 200))
    for seed in range(3):
        assert sweep.slowdown(played(sweep, seed=seed).chosen) <= 0.05


def test_a_setting_counts_once_and_every_look_is_told():
    sweep = limits((300, 0, 250), (260, 1.5, 232), (220, 4.9, 210), (180, 18, 200), (140, 45, 212))
    outcome = played(sweep)
    assert outcome.evaluations <= 4
    assert outcome.looks >= outcome.evaluations - 1
    assert outcome.baselines >= 1
    assert outcome.run_slowdown <= 0.05
    assert outcome.run_saving <= sweep.saving(sweep.oracle(0.05)) + 0.05


def test_the_bound_is_the_oracle_without_noise_and_less_with_it():
    sweep = limits((300, 0, 250), (260, 1.5, 232), (220, 4.9, 210), (180, 18, 200))
    oracle = sweep.saving(sweep.oracle(0.05))
    assert provable_saving(sweep, slowdown=0.05, noise=0.0) == pytest.approx(oracle)
    few, many = (provable_saving(sweep, slowdown=0.05, noise=0.01, looks=looks) for looks in (2, 400))
    assert 0.0 <= few < many < oracle


def test_the_bound_of_a_table_with_nothing_to_gain_is_nothing():
    assert provable_saving(limits((300, 0, 250), (200, 2, 260)), slowdown=0.05, noise=0.01) == 0.0
