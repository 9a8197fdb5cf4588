"""Steps of varying length: their mean and spread, and no answer where rises come by chance or may be a beat."""

import numpy as np
import pytest

from wattune.signals.period import CycleKind, Verdict, find_period
from wattune.signals.samples import PowerSamples
from wattune_bench.period.loads import Load, LoadPlan, Sensing, chance, polled, training, wandering

TENTH = Sensing(refresh_s=0.1, window_s=0.025, noise_w=1.5, poll_s=0.1)


def uneven(mean_s, spread, *, seconds=120.0, seed=0):
    """Passes of lognormal length, each with a lull at its end."""
    random = np.random.default_rng(seed)
    lengths_s = mean_s * random.lognormal(-(spread**2) / 2, spread, int(3 * seconds / mean_s))
    piece = np.array([[0.5, 0.3, 0.2], [390.0, 330.0, 150.0], [1.0, 1.0, 0.3], [0.5, 0.6, 0.05]])
    pieces = [np.array([piece[0] * length_s, *piece[1:]]) for length_s in lengths_s]
    played_s = np.cumsum(lengths_s)
    mean_s = float(lengths_s[played_s < seconds].mean())
    return mean_s, polled(Load.of(pieces, {}), TENTH, seconds, random=random)


@pytest.mark.parametrize("mean_s", [0.9, 1.7, 3.5])
@pytest.mark.parametrize("spread", [0.15, 0.25])
def test_steps_of_varying_length_have_a_mean_and_a_spread(mean_s, spread):
    mean_s, samples = uneven(mean_s, spread)
    answer = find_period(samples)
    assert answer.verdict is Verdict.PERIODIC
    assert answer.period_s == pytest.approx(mean_s, rel=0.1)
    assert answer.spread == pytest.approx(spread, rel=0.5)
    assert answer.cycles[0].kind is CycleKind.STEP


@pytest.mark.parametrize("seed", range(4))
def test_steps_that_vary_by_half_have_a_mean_where_their_shape_is_clear(seed):
    mean_s, samples = uneven(1.7, 0.5, seed=seed)
    answer = find_period(samples)
    assert answer.period_s == pytest.approx(mean_s, rel=0.1)
    assert answer.spread == pytest.approx(0.5, rel=0.3)


def test_steps_too_short_to_show_are_not_called_aperiodic():
    for seed in range(3):
        answer = find_period(uneven(0.3, 0.5, seed=seed)[1])
        assert answer.verdict is Verdict.NOT_OBSERVABLE


def test_pauses_are_no_part_of_the_mean():
    mean_s, samples = uneven(2.5, 0.2)
    random = np.random.default_rng(5)
    later_s = np.zeros(len(samples))
    parts = []
    for begin_s in (30.0, 65.0, 90.0):
        place = int(np.searchsorted(samples.time_s, begin_s))
        later_s[place:] += 6.0
        parts.append(begin_s + later_s[place - 1] + np.arange(1, 60) * 0.1)
    pause_s = np.concatenate(parts)
    paused = PowerSamples(pause_s, 100 + random.standard_normal(len(pause_s)), 0 * pause_s, 0 * pause_s)
    moved = PowerSamples(samples.time_s + later_s, samples.power_w, samples.sm_util, samples.mem_util)
    joined = moved.joined(paused)
    order = np.argsort(joined.time_s)
    answer = find_period(joined.where(order))
    assert answer.period_s == pytest.approx(mean_s, rel=0.05)
    assert answer.spread == pytest.approx(0.2, rel=0.4)


def test_halves_that_look_alike_are_one_step_where_steps_vary():
    random = np.random.default_rng(4)
    lengths_s = 2.2 * random.lognormal(0.0, 0.12, 120)
    shape = np.array([[0.3, 0.17, 0.3, 0.16, 0.07], [390, 270, 390, 270, 160], [1, 1, 1, 1, 0.2], [0.5] * 5])
    load = Load.of([np.array([shape[0] * length_s, *shape[1:]]) for length_s in lengths_s], {})
    answer = find_period(polled(load, TENTH, 150.0, random=random))
    assert answer.period_s == pytest.approx(float(lengths_s.mean()), rel=0.05)


@pytest.mark.parametrize("seed", range(6))
def test_chance_shows_no_steps(seed):
    random = np.random.default_rng(seed)
    loads = chance(90.0, typical_s=1.0, random=random), wandering(90.0, memory_s=1.0, random=random)
    for load in loads:
        answer = find_period(polled(load, TENTH, 90.0, random=random))
        assert answer.verdict is Verdict.APERIODIC
        assert answer.spread is None


@pytest.mark.parametrize("step_s", [0.0937, 0.10437, 0.1061])
def test_a_beat_just_beside_the_rate_of_the_sensor_is_no_step(step_s):
    random = np.random.default_rng(2)
    wave = np.resize([1.0, 0.0], 2 * round(70 / step_s))
    lengths_s = np.full(len(wave), step_s / 2) * (1 + 0.002 * random.standard_normal(len(wave)))
    load = Load(duration_s=lengths_s, power_w=80 + 170 * wave, busy=wave, mem_busy=wave / 2)
    for known in (True, False):
        samples = polled(load, TENTH, 60.0, random=random)
        samples = samples if known else PowerSamples(samples.time_s, samples.power_w)
        assert find_period(samples).verdict is Verdict.NOT_OBSERVABLE


@pytest.mark.parametrize("step_s", [0.75, 1.3])
def test_even_steps_have_no_spread(step_s):
    random = np.random.default_rng(1)
    samples = polled(training(LoadPlan(step_s=step_s), 60.0, random=random), TENTH, 60.0, random=random)
    assert find_period(samples).spread is None


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_cycle_whose_steps_do_not_show_is_called_a_cycle(seed):
    random = np.random.default_rng(seed)
    plan = LoadPlan(step_s=0.07, steps=150, checkpoint_s=5.0)
    load = training(plan, 90.0, random=random)
    answer = find_period(polled(load, TENTH, 90.0, random=random))
    assert answer.period_s == pytest.approx(load.periods_s["cycle"], rel=0.05)
    assert [own.kind for own in answer.cycles] == [CycleKind.CYCLE]


def test_the_mean_of_four_gpus_shows_steps_that_one_does_not():
    random = np.random.default_rng(6)
    lengths_s = 1.6 * random.lognormal(0.0, 0.25, 90)
    gpus = []
    for _ in range(4):
        # Each GPU has work of its own before it waits for the others.
        own_w = random.uniform(200, 400, (len(lengths_s), 4))
        shape = np.array([0.2, 0.2, 0.2, 0.2, 0.2])
        pieces = [
            np.array([shape * length_s, [*powers_w, 130.0], np.ones(5), np.full(5, 0.5)])
            for length_s, powers_w in zip(lengths_s, own_w, strict=True)
        ]
        polled_gpu = polled(Load.of(pieces, {}), TENTH, 130.0, random=random)
        gpus.append(PowerSamples(polled_gpu.time_s, polled_gpu.power_w))
    assert find_period(gpus[0]).period_s is None
    answer = find_period(gpus[0], others=tuple(gpus[1:]))
    assert answer.period_s == pytest.approx(float(lengths_s.mean()), rel=0.1)
