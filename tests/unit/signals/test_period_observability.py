"""Aliases: detected by utilisation, by time stamps and by shape."""

import numpy as np
import pytest

from wattune.signals.comb import comb
from wattune.signals.grid import even_grid
from wattune.signals.observability import SensorEvidence, is_followed, is_real_period
from wattune.signals.period import Verdict, find_period
from wattune.signals.samples import PowerSamples, find_updates
from wattune.signals.utilisation import utilisation_evidence, utilisation_updates
from wattune_bench.period.cases import KINDS
from wattune_bench.period.loads import Load, LoadPlan, Sensing, chance, polled, training, wandering

SLOW = Sensing(refresh_s=0.1, window_s=0.025, noise_w=0.3, poll_s=0.01)


def square(step_s, *, seconds=60.0, sensing=SLOW, seed=0, high_w=250.0):
    """A load that is busy for half of each step, as a sensor shows it."""
    edges = np.full(round(2 * (seconds + 5) / step_s), step_s / 2)
    wave = np.resize([1.0, 0.0], len(edges))
    load = Load(duration_s=edges, power_w=80 + (high_w - 80) * wave, busy=wave, mem_busy=0.5 * wave)
    return polled(load, sensing, seconds, random=np.random.default_rng(seed))


def evidence_of(samples):
    power = find_updates(samples.time_s, samples.power_w)
    return SensorEvidence(samples, power, even_grid(power), utilisation_updates(samples))


def seen_at(samples, period_s):
    evidence = evidence_of(samples)
    return utilisation_evidence(evidence.utilisations, evidence.grid, comb(evidence.grid, period_s))


def test_utilisation_supports_a_real_period():
    for one in seen_at(square(1.3), 1.3):
        assert one.real > 0.8
        assert one.real > one.alias
        assert one.refresh_s == pytest.approx(1 / 6, rel=0.01)


def test_utilisation_supports_the_faster_load_where_power_shows_its_alias():
    # 107 ms on a sensor of 100 ms looks like 1/(10 Hz - 9.35 Hz) = 1.53 s.
    for one in seen_at(square(0.107), 1 / (10 - 1 / 0.107)):
        assert one.real < 0.05
        assert one.alias > 0.3


@pytest.mark.parametrize(("step_s", "shown_s", "real"), [(1.3, 1.3, True), (0.107, 1 / (10 - 1 / 0.107), False)])
def test_a_real_period_is_accepted_and_an_alias_is_not(step_s, shown_s, real):
    evidence = evidence_of(square(step_s))
    assert is_real_period(evidence, evidence.grid, period_s=shown_s) is real


@pytest.mark.parametrize("step_s", [0.107, 0.093, 0.1853, 0.0521])
def test_too_fast_loads_are_not_observable(step_s):
    assert find_period(square(step_s)).verdict is Verdict.NOT_OBSERVABLE


def test_a_beat_that_swings_in_power_and_hardly_in_utilisation_is_not_observable():
    # Power of an A100 averages over a quarter of a refresh, utilisation over all of its own.
    load = KINDS["too fast"]("a100", np.random.default_rng((704, 3, 8, sum(map(ord, "too fast")))))
    assert find_period(load.samples).verdict is Verdict.NOT_OBSERVABLE


def test_refreshes_that_polls_see_late_are_put_on_an_even_clock():
    time_s = np.cumsum(0.04 * (1 + 0.2 * np.random.default_rng(3).standard_normal(2000)))
    number = np.floor(time_s / 0.1)
    updates = find_updates(time_s, np.random.default_rng(4).uniform(100, 200, 2000)[number.astype(int)])
    assert updates.refresh_s == pytest.approx(0.1, rel=1e-3)
    steps = np.diff(updates.time_s) / updates.refresh_s
    assert steps == pytest.approx(np.round(steps))


def test_a_weak_load_with_equal_aliases_in_both_sensors_is_not_observable():
    # 27.7 Hz: 30 Hz is a multiple of both refresh rates, so power and utilisation both show 2.27 Hz, much averaged.
    averaging = Sensing(refresh_s=0.1, window_s=0.1, noise_w=0.1, poll_s=0.01)
    samples = square(1 / 27.73, sensing=averaging, high_w=130.0)
    assert find_period(samples).verdict is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_can_be_followed_and_fast_steps_cannot(seed):
    random = np.random.default_rng(seed)
    slow = (chance(60.0, typical_s=1.0, random=random), wandering(60.0, memory_s=1.5, random=random))
    fast = training(LoadPlan(step_s=0.11, jitter=0.03), 60.0, random=random)
    assert all(is_followed(evidence_of(polled(load, SLOW, 60.0, random=random))) for load in slow)
    assert not is_followed(evidence_of(polled(fast, SLOW, 60.0, random=random)))


def test_a_value_that_alternates_with_each_refresh_cannot_be_followed():
    time_s = np.arange(0, 60, 0.1)
    value = 200 + 50 * np.resize([1.0, -1.0], len(time_s)) + np.random.default_rng(0).standard_normal(len(time_s))
    assert not is_followed(evidence_of(PowerSamples(time_s, value)))


def test_a_smooth_wave_in_power_alone_is_accepted_from_a_fast_sensor():
    random = np.random.default_rng(1)
    for step_s, verdict in ((0.02, Verdict.PERIODIC), (0.1, Verdict.NOT_OBSERVABLE)):
        time_s = np.arange(0, 60, step_s)
        power_w = 200 + 40 * np.sin(2 * np.pi * time_s / 0.83) + random.standard_normal(len(time_s))
        assert find_period(PowerSamples(time_s, power_w)).verdict is verdict


def test_missing_or_constant_utilisation_is_no_evidence():
    samples = square(1.3)
    flat = PowerSamples(samples.time_s, samples.power_w, np.ones(len(samples)), np.full(len(samples), np.nan))
    assert utilisation_updates(flat) == ()
    assert find_period(flat).period_s == pytest.approx(1.3, rel=0.01)


def test_uneven_time_stamps_distinguish_a_period_from_its_alias():
    random = np.random.default_rng(2)
    time_s = np.cumsum(0.1 * random.uniform(0.6, 1.4, 900))
    fast = 200 + 60 * np.sin(2 * np.pi * time_s / 0.107)
    assert find_period(PowerSamples(time_s, fast)).verdict is not Verdict.PERIODIC


def test_gpus_that_rise_and_fall_together_without_a_length_of_their_steps_are_not_aperiodic():
    random = np.random.default_rng(4)
    load = chance(90.0, typical_s=1.0, random=random)
    first, other = (polled(load, SLOW, 90.0, random=random) for _ in range(2))
    alone = polled(chance(90.0, typical_s=1.0, random=random), SLOW, 90.0, random=random)
    assert find_period(first, others=(alone,)).verdict is Verdict.APERIODIC
    assert find_period(first, others=(other,)).verdict is Verdict.NOT_OBSERVABLE
