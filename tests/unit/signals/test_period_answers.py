"""The three answers about a trace: a period with its levels, none that this sensor can follow, none at all."""

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.gpu_spec import Sensors
from wattune.signals.period import CycleKind, Verdict, find_period
from wattune.signals.samples import PowerSamples
from wattune_bench.period.loads import LoadPlan, Sensing, chance, polled, steady, training, wandering

QUICK = Sensing(refresh_s=0.02, window_s=0.01, noise_w=0.3, poll_s=0.01)
SLOW = Sensing(refresh_s=0.1, window_s=0.1, noise_w=0.4, poll_s=0.02)
PART_TIME = Sensing(refresh_s=0.101, window_s=0.025, noise_w=0.3, poll_s=0.013)


def seen(plan, sensing, seconds, *, seed=0, after_s=0.0):
    random = np.random.default_rng(seed)
    load = training(plan, seconds, random=random)
    if after_s:
        load = load.after(after_s)
    return load, polled(load, sensing, seconds + after_s, random=random)


@pytest.mark.parametrize("sensing", [QUICK, SLOW, PART_TIME])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_found_within_its_error_by_every_kind_of_sensor(sensing, seed):
    load, samples = seen(LoadPlan(step_s=1.037), sensing, 40.0, seed=seed)
    answer = find_period(samples)
    assert answer.verdict is Verdict.PERIODIC
    # The interval is for 95 of 100; twice as wide must hold every time.
    assert abs(answer.period_s - load.periods_s["step"]) < 2 * answer.error_s < 0.03


def test_the_longer_the_trace_the_smaller_the_error():
    errors_s = [find_period(seen(LoadPlan(step_s=0.7), QUICK, seconds)[1]).error_s for seconds in (20.0, 160.0)]
    assert errors_s[1] < errors_s[0] / 3


@pytest.mark.parametrize(
    "sensing", [replace(QUICK, drift=0.2), replace(QUICK, missing=0.4), replace(SLOW, noise_w=30.0)]
)
def test_drift_missing_samples_and_noise_do_not_hide_it(sensing):
    load, samples = seen(LoadPlan(step_s=0.83), sensing, 60.0, seed=4)
    assert find_period(samples).period_s == pytest.approx(load.periods_s["step"], rel=0.01)


def test_idle_time_before_the_program_is_left_out():
    load, samples = seen(LoadPlan(step_s=0.6), QUICK, 40.0, seed=2, after_s=15.0)
    assert find_period(samples).period_s == pytest.approx(load.periods_s["step"], rel=0.01)


def test_a_clock_that_is_set_back_is_handled():
    load, samples = seen(LoadPlan(step_s=0.6), QUICK, 60.0, seed=2)
    jump = np.where(samples.time_s > 30, -20.0, 0.0)
    answer = find_period(replace(samples, time_s=samples.time_s + jump))
    assert answer.period_s == pytest.approx(load.periods_s["step"], rel=0.01)


@pytest.mark.parametrize("parts", [2, 4])
def test_a_step_of_micro_steps_is_both(parts):
    load, samples = seen(LoadPlan(step_s=1.9, parts=parts), QUICK, 90.0, seed=5)
    answer = find_period(samples)
    assert answer.period_s == pytest.approx(load.periods_s["step"], rel=0.02)
    assert [own.kind for own in answer.cycles if own.kind is not CycleKind.CYCLE][-1] is CycleKind.STEP


def test_checkpoints_are_a_cycle_around_steps_and_masked_as_stalls():
    plan = LoadPlan(step_s=0.4, steps=25, checkpoint_s=1.5)
    load, samples = seen(plan, QUICK, 80.0, seed=1)
    answer = find_period(samples)
    assert answer.period_s == pytest.approx(load.periods_s["step"], rel=0.01)
    assert answer.cycles[-1].kind is CycleKind.CYCLE
    assert answer.cycles[-1].period_s == pytest.approx(load.periods_s["cycle"], rel=0.03)
    assert 0.05 < answer.stalled < 0.35


def test_halves_that_differ_are_no_period_and_halves_that_do_not_are():
    time_s = np.arange(0, 60, 0.02)
    noise_w = np.random.default_rng(0).standard_normal(len(time_s))
    wave_w = 200 + 60 * (time_s % 0.5 < 0.2) + noise_w
    other_w = wave_w + 30 * (time_s % 1.0 < 0.5)
    assert find_period(PowerSamples(time_s, wave_w)).period_s == pytest.approx(0.5, rel=0.01)
    assert find_period(PowerSamples(time_s, other_w)).period_s == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("seed", range(4))
def test_an_alias_of_the_sensor_is_no_period(seed):
    # 104.37 ms on a sensor of 101 ms looks like a period of 3 s.
    random = np.random.default_rng(seed)
    edges = np.full(1200, 0.104370 / 2)
    load = training(LoadPlan(step_s=1.0), 1.0, random=random)
    wave = np.resize([180.0, 60.0], len(edges))
    load = replace(load, duration_s=edges, power_w=wave, busy=(wave > 100) * 1.0, mem_busy=(wave > 100) * 0.4)
    answer = find_period(polled(load, PART_TIME, 60.0, random=random))
    assert answer.verdict is Verdict.NOT_OBSERVABLE
    assert answer.period_s is None


@pytest.mark.parametrize("sensing", [QUICK, SLOW])
def test_what_does_not_repeat_is_aperiodic(sensing):
    random = np.random.default_rng(3)
    for load in (chance(90.0, typical_s=1.0, random=random), wandering(90.0, memory_s=1.5, random=random)):
        assert find_period(polled(load, sensing, 90.0, random=random)).verdict is Verdict.APERIODIC


@pytest.mark.parametrize("sensing", [QUICK, SLOW, PART_TIME])
def test_constant_power_is_not_observable(sensing):
    answer = find_period(polled(steady(60.0), sensing, 60.0, random=np.random.default_rng(1)))
    assert answer.verdict is Verdict.NOT_OBSERVABLE
    assert answer.reason


def test_the_refresh_time_is_found_in_repeated_values():
    _, samples = seen(LoadPlan(step_s=1.0), PART_TIME, 40.0)
    assert find_period(samples).refresh_s == pytest.approx(0.101, rel=0.01)


def test_a_given_refresh_time_is_used():
    _, samples = seen(LoadPlan(step_s=1.0), SLOW, 40.0)
    assert find_period(samples, sensor=Sensors(power_period_s=0.25)).refresh_s == 0.25


def test_a_sensor_that_never_refreshes_is_not_observable():
    answer = find_period(PowerSamples(np.arange(0, 30, 0.05), np.full(600, 200.0)))
    assert answer.verdict is Verdict.NOT_OBSERVABLE
