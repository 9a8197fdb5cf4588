"""The power of a run in bounded memory."""

import pytest

from wattune.control.power_trace import MOST_RECENT, MOST_STEPS, RECENT_S, PowerTrace
from wattune.core.reading import Reading


def readings(start_s, count, every_s, power_w=200.0):
    return [Reading(time_s=start_s + place * every_s, power_w=power_w) for place in range(count)]


def test_a_day_of_readings_stays_small_and_keeps_its_mean():
    trace = PowerTrace()
    for hour in range(24):
        trace = trace.add(readings(5.0 + 3600 * hour, 3600, 1.0, power_w=100.0 + hour))
    assert len(trace.steps) <= MOST_STEPS
    assert len(trace.recent) <= RECENT_S + 1
    assert sum(step.sum_w for step in trace.steps) / (24 * 3600) == pytest.approx(111.5)
    assert sum(step.count for step in trace.steps) == 24 * 3600
    assert trace.duration_s == pytest.approx(24 * 3600 - 1)


def test_fast_readings_stay_bounded_too():
    trace = PowerTrace().add(readings(0.0, 2 * MOST_RECENT, 0.001))
    assert len(trace.recent) == MOST_RECENT


def test_old_repeated_and_silent_readings_are_no_steps():
    trace = PowerTrace().add([Reading(time_s=1.0, power_w=100.0), Reading(time_s=1.0, power_w=900.0)])
    trace = trace.add(
        [Reading(time_s=0.5, power_w=900.0), Reading(time_s=2.0), Reading(time_s=2.1, power_w=float("nan"))]
    )
    assert [step.mean_w for step in trace.steps] == [100.0]
    assert trace.latest.time_s == 2.1
    assert PowerTrace().add(()) == PowerTrace()
    assert PowerTrace().latest is None
    assert PowerTrace().duration_s == 0.0
