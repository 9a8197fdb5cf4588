"""Cycles of pauses: found by their times, called cycles, and not invented."""

from __future__ import annotations

import numpy as np
import pytest

from wattune.signals.pauses import even_chance, find_pauses, is_real_pause, restarts_after
from wattune.signals.period import CycleKind, Verdict, find_period
from wattune.signals.samples import PowerSamples, find_updates


def _saving(pauses_s: list[float], *, work_s: float = 6.0, util: bool = True) -> PowerSamples:
    """Make work of 300 W with pauses of 100 W, sampled every 100 ms."""
    random = np.random.default_rng(1)
    parts = [np.full(round(work_s * 10), 300.0)]
    for pause_s in pauses_s:
        parts += [np.full(round(pause_s * 10), 100.0), np.full(round(work_s * 10), 300.0)]
    power_w = np.concatenate(parts)
    busy = (power_w > 200).astype(np.float64) if util else np.ones(len(power_w))
    noise_w = random.standard_normal(len(power_w))
    return PowerSamples(np.arange(len(power_w)) * 0.1, np.round(power_w + noise_w, 2), busy)


def test_checkpoints_of_varying_length_are_a_cycle() -> None:
    answer = find_period(_saving([2.0, 2.6, 1.5, 2.3, 1.8, 2.9, 2.2]))
    assert answer.verdict is Verdict.PERIODIC
    assert [own.kind for own in answer.cycles] == [CycleKind.CYCLE]
    assert answer.period_s == pytest.approx(8.2, rel=0.05)


def test_pauses_that_utilisation_does_not_show_may_be_a_beat() -> None:
    samples = _saving([2.0, 2.6, 1.5, 2.3, 1.8, 2.9, 2.2], util=False)
    power = find_updates(samples.time_s, samples.power_w)
    pauses = find_pauses(power)
    assert pauses is not None
    assert not is_real_pause(pauses, power, samples)


def test_uneven_pauses_are_no_cycle() -> None:
    samples = _saving([1.5, 20.0, 2.0, 45.0, 3.0])
    assert find_pauses(find_updates(samples.time_s, samples.power_w)) is None


def test_bound_of_chance_matches_trials() -> None:
    random = np.random.default_rng(2)
    times = random.exponential(size=(20000, 4))
    spread = times.std(axis=1) / times.mean(axis=1)
    assert float((spread < 0.2).mean()) == pytest.approx(even_chance(4, 0.2), rel=0.2)


def _work_between_pauses(step_s: float) -> PowerSamples:
    """Make square steps that begin with the work after each pause, seen every 100 ms for a moment."""
    time_s = np.arange(1200) * 0.1
    random = np.random.default_rng(3)
    resumes_s = np.cumsum(random.uniform(19.0, 21.0, 8))
    worked_s = time_s - resumes_s[np.searchsorted(resumes_s, time_s, side="right") - 1]
    working = (worked_s >= 0) & (worked_s < 16.0)
    power_w = np.where(working, 280.0 + 80.0 * (worked_s / step_s % 1.0 < 0.4), 110.0)
    return PowerSamples(time_s, power_w + random.standard_normal(len(time_s)), working.astype(np.float64))


@pytest.mark.parametrize(("step_s", "apparent_s", "real"), [(1.47, 1.47, True), (0.1073, 1.47, False)])
def test_steps_begin_again_after_a_pause_and_a_beat_does_not(step_s: float, apparent_s: float, real: bool) -> None:
    samples = _work_between_pauses(step_s)
    power = find_updates(samples.time_s, samples.power_w)
    pauses = find_pauses(power)
    assert pauses is not None
    assert restarts_after(pauses, power, apparent_s) is real


def test_a_beat_between_pauses_is_no_step() -> None:
    answer = find_period(_work_between_pauses(0.1073))
    assert [own.kind for own in answer.cycles] == [CycleKind.CYCLE]


def test_steps_between_long_pauses_are_found() -> None:
    random = np.random.default_rng(5)
    parts = []
    for pause_s in (11.0, 10.2, 11.6, 10.7, 11.3, 10.5):
        step = 250 + 40 * np.sin(2 * np.pi * (np.arange(170) * 0.1 + random.uniform(0, 1)) / 0.83)
        parts += [step, np.full(round(pause_s * 10), 100.0)]
    power_w = np.concatenate(parts)
    busy, noise_w = np.where(power_w > 150, power_w / 300, 0.0), random.standard_normal(len(power_w))
    samples = PowerSamples(np.arange(len(power_w)) * 0.1, np.round(power_w + noise_w, 2), busy)
    found = {own.kind: own.period_s for own in find_period(samples).cycles}
    assert found[CycleKind.STEP] == pytest.approx(0.83, rel=0.01)
    assert found[CycleKind.CYCLE] == pytest.approx(27.9, rel=0.03)
