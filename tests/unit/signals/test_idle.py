"""Whether a program works, works in bursts, or rests."""

import pytest

from wattune.core.reading import Reading
from wattune.signals.readings import Activity, IdleWatch


def play(spans, watch=None, *, every_s=0.1, start_s=0.0, with_util=True):
    """The watch after (seconds, busy) spans, and what it said of the program all along."""
    watch, said, time_s = watch or IdleWatch(), [], start_s
    for seconds, busy in spans:
        for _ in range(round(seconds / every_s)):
            time_s += every_s
            util = (0.9 if busy else 0.0) if with_util else None
            watch = watch.add(Reading(time_s=time_s, sm_util=util, power_w=300.0 if busy else 60.0))
            said.append((time_s, watch.activity))
    return watch, said


def first(said, activity):
    return next((time_s for time_s, one in said if one is activity), None)


def test_a_program_that_works_is_working():
    watch, said = play([(60, True)])
    assert {activity for _, activity in said} == {Activity.WORKING}
    assert watch.pause_s == 0.0


def test_a_program_that_ended_is_idle_after_ten_seconds():
    watch, said = play([(60, True), (30, False)])
    assert first(said, Activity.IDLE) == pytest.approx(70.0, abs=0.3)
    assert watch.pause_s > 29


def test_bursts_are_not_idle_however_many():
    _, said = play([(3, True), (4, False)] * 50)
    assert first(said, Activity.IDLE) is None
    assert said[-1][1] is Activity.BURSTY


def test_a_pause_taken_for_idle_once_is_not_again():
    watch, said = play([(20, True), (15, False), (20, True), (15, False), (20, True), (15, False), (5, True)])
    rests = [time_s for time_s, activity in said if activity is Activity.IDLE]
    assert 30 < min(rests) <= max(rests) <= 35.1
    assert watch.idle_after_s > 50


def test_work_counts_from_its_first_reading():
    watch, said = play([(20, True), (40, False)])
    assert said[-1][1] is Activity.IDLE
    _, said = play([(0.1, True)], watch, start_s=60.0)
    assert said[0][1] is Activity.WORKING


def test_waiting_for_the_first_work_is_idle_and_no_pause():
    watch, said = play([(60, False), (5, True)])
    assert said[0][1] is Activity.UNKNOWN
    assert first(said, Activity.IDLE) == pytest.approx(10.1, abs=0.3)
    assert watch.idle_after_s == 10.0


def test_long_pauses_are_forgotten_in_hours():
    watch, _ = play([(10, True), (100, False), (10, True)], every_s=1.0)
    assert watch.idle_after_s == pytest.approx(400, rel=0.05)
    watch, _ = play([(10_000, True)], watch, every_s=10.0, start_s=120.0)
    assert watch.idle_after_s == 10.0


def test_power_decides_where_utilisation_is_unknown():
    _, said = play([(20, True), (20, False), (5, True)], with_util=False)
    assert first(said, Activity.IDLE) is not None
    assert said[-1][1] is Activity.WORKING


def test_steady_power_alone_is_unknown():
    watch = IdleWatch()
    for n in range(100):
        watch = watch.add(Reading(time_s=float(n), power_w=200.0))
    assert watch.activity is Activity.UNKNOWN


def test_empty_and_older_readings_change_nothing():
    watch, _ = play([(20, True)])
    for reading in (Reading(time_s=30.0), Reading(time_s=1.0, sm_util=0.0), Reading(time_s=float("nan"), sm_util=0.0)):
        assert watch.add(reading) == watch
