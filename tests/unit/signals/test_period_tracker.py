import numpy as np
import pytest

from wattune.benchmarks.period.loads import LoadPlan, Sensing, polled, training
from wattune.signals.period import LEAST_SAMPLES, Verdict, find_period
from wattune.signals.period_tracker import MOST_SAMPLES, PeriodTracker
from wattune.signals.samples import PowerSamples

SENSING = Sensing(refresh_s=0.02, window_s=0.01, noise_w=0.3, poll_s=0.02)


def trace(step_s, seconds, *, seed=0):
    random = np.random.default_rng(seed)
    return polled(training(LoadPlan(step_s=step_s), seconds, random=random), SENSING, seconds, random=random)


def fed(tracker, samples, *, many=25):
    index = np.arange(len(samples))
    for first in range(0, len(samples), many):
        tracker = tracker.add(samples.where((index >= first) & (index < first + many)))
    return tracker


def test_a_stream_gives_the_answer_of_the_whole_trace():
    samples = trace(0.5, 60.0)
    assert fed(PeriodTracker(), samples).answer.period_s == pytest.approx(find_period(samples).period_s, rel=0.005)


def test_an_answer_is_there_at_any_time():
    assert PeriodTracker().answer.verdict is Verdict.NOT_OBSERVABLE
    assert PeriodTracker().add(PowerSamples(np.zeros(0), np.zeros(0))).answer.period_s is None
    assert fed(PeriodTracker(), trace(0.5, 8.0)).answer.period_s == pytest.approx(0.5, rel=0.03)


def test_memory_is_bounded():
    tracker = fed(PeriodTracker(window_s=1000.0), trace(0.5, 120.0), many=500)
    assert len(tracker.samples) <= MOST_SAMPLES
    assert fed(PeriodTracker(window_s=10.0), trace(0.5, 60.0)).samples.duration_s <= 10.0


def test_old_samples_are_forgotten():
    early, late = trace(0.5, 60.0), trace(0.9, 60.0, seed=1)
    both = early.joined(PowerSamples(late.time_s + 60, late.power_w, late.sm_util, late.mem_util))
    assert fed(PeriodTracker(window_s=40.0), both).answer.period_s == pytest.approx(0.9, rel=0.02)


def test_adding_does_not_change_the_tracker():
    tracker = fed(PeriodTracker(), trace(0.5, 10.0))
    before = len(tracker.samples)
    tracker.add(trace(0.5, 5.0))
    assert len(tracker.samples) == before


def test_an_analysis_is_spread_over_updates_and_the_last_answer_holds_meanwhile():
    samples = trace(0.5, 20.0)
    begun = PeriodTracker().add(samples.where(np.arange(len(samples)) < LEAST_SAMPLES))
    assert begun.task is not None
    assert begun.answer == PeriodTracker().answer
    settled = begun.settled()
    assert settled.task is None
    assert settled.settled() is settled


def test_two_trackers_from_one_come_to_the_same_answer():
    samples = trace(0.5, 12.0)
    early = fed(PeriodTracker(), samples, many=7)
    late = trace(0.5, 3.0, seed=1)
    late = PowerSamples(late.time_s + 12, late.power_w, late.sm_util, late.mem_util)
    first, second = fed(early, late, many=5), fed(early, late, many=5)
    assert first.steps == second.steps
    assert first.answer == second.answer
