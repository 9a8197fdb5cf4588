"""Step times from steps without their stalls, and from counted work."""

import random

import numpy as np
import pytest

from wattune.control.step_time import (
    COUNTER_ERROR,
    COUNTERS,
    StepMarks,
    WorkDone,
    busiest_pipe,
    counted_step_time,
    counter_rate,
    without_stalls,
)

# stalls


def test_a_checkpoint_is_taken_out_of_the_steps():
    rng = np.random.default_rng(0)
    durations_s = 0.2 * (1 + 0.01 * rng.standard_normal(100))
    durations_s[[30, 60, 90]] += 5.0
    times_s = np.concatenate(([0.0], np.cumsum(durations_s))).tolist()
    counts = list(range(101))
    clean_s, lost_s = without_stalls(times_s, counts)
    assert lost_s == pytest.approx(15.0, abs=0.1)
    assert counted_step_time(clean_s, counts).step_time_s == pytest.approx(0.2, rel=0.005)
    assert counted_step_time(times_s, counts).error_s > 0.14  # as a delay of the host, which could be work


def test_a_program_whose_steps_are_often_long_has_no_stalls():
    times_s = np.cumsum([0.1, 0.1, 0.1, 0.1, 0.1, 1.0, 1.0] * 10).tolist()
    assert without_stalls(times_s, list(range(70))) == (tuple(times_s), 0.0)


@pytest.mark.parametrize("times_s", [[], [1.0], [1.0, 2.0, 9.0], [1.0] * 20])
def test_too_few_steps_or_no_time_between_them_are_unchanged(times_s):
    assert without_stalls(times_s, list(range(len(times_s)))) == (tuple(times_s), 0.0)


def test_the_marks_of_a_program_are_also_without_stalls():
    marks, now_s = StepMarks(), 0.0
    for step in range(60):
        now_s += 0.2 if step != 40 else 6.2
        marks.add(now_s)
    step_time = marks.between(0.0, now_s)
    assert step_time.step_time_s == pytest.approx(0.2)
    assert step_time.error_s < 0.01 * step_time.step_time_s


# counted work


def counted(rates, *, start_s=0.0):
    done = WorkDone()
    for place, rate in enumerate(rates):
        done = done.add(start_s + place, start_s + place + 1.0, rate)
    return done


def test_counted_work_gives_a_step_time_with_an_error():
    rng = np.random.default_rng(0)
    steady = counted([0.5] * 20).between(0.0, 20.0)
    assert steady.step_time_s == pytest.approx(2.0)
    assert steady.source == COUNTERS
    assert steady.error_s >= COUNTER_ERROR * steady.step_time_s
    wild = counted(0.5 + 0.1 * rng.standard_normal(20)).between(0.0, 20.0)
    assert wild.error_s > steady.error_s


def test_without_counted_work_there_is_no_step_time():
    assert counted([]).between(0.0, 20.0) is None
    assert counted([0.0] * 20).between(0.0, 20.0) is None
    assert counted([None] * 20).between(0.0, 20.0) is None
    assert counted([0.5] * 3).between(0.0, 20.0) is None


def test_a_gap_restarts_the_count():
    later = counted([0.5] * 10).add(100.0, 101.0, 0.5)
    assert later.times_s == (100.0, 101.0)
    assert later.add(99.0, 100.5, 0.5) == later


def test_a_bounded_number_of_intervals_is_kept():
    done = counted([0.5] * 3_000)
    assert len(done.times_s) == 600
    assert done.done[-1] == pytest.approx(1_500.0)


def test_counters_give_operations_at_any_clock():
    assert busiest_pipe({"tensor": 0.4, "fp32": 0.1, "sm": 0.9}) == "tensor"
    assert busiest_pipe({"sm": 0.9, "dram": 0.9, "tensor": 0.001}) is None
    fast, slow = (
        counted([counter_rate({"tensor": share}, mhz, pipe="tensor", top_mhz=2000)] * 20).between(0.0, 20.0)
        for share, mhz in ((0.40, 2000), (0.48, 1600))
    )
    assert slow.step_time_s / fast.step_time_s == pytest.approx(0.40 / 0.384)
    assert counter_rate({}, 1500.0, pipe="tensor", top_mhz=2000) is None
    assert counter_rate({"tensor": 0.4}, None, pipe="tensor", top_mhz=2000) is None


def test_delays_of_a_busy_host_are_no_part_of_the_step_time():
    """Each iteration that the host misses adds a whole one to a step, as a node that follows shows it."""
    generator = random.Random(7)
    time_s, times_s, missed = 0.0, [0.0], 0
    for _ in range(1200):
        late = generator.random() < 0.008
        missed += late
        time_s += 0.0367 * (1 + late)
        times_s.append(time_s + abs(generator.gauss(0.0, 0.0008)))
    found = counted_step_time(times_s, range(1201))
    assert found.step_time_s == pytest.approx(0.0367, rel=0.001)
    assert found.delayed == pytest.approx(missed / (1200 + missed), abs=0.001)
    assert found.error_s >= times_s[-1] / 1200 - found.step_time_s  # the delays could be work


def test_a_step_that_is_longer_now_and_then_by_design_counts():
    lengths_s = [0.05 if number % 10 else 0.12 for number in range(600)]
    times_s = [sum(lengths_s[:number]) for number in range(601)]
    found = counted_step_time(times_s, range(601))
    assert abs(found.step_time_s - times_s[-1] / 600) <= max(found.error_s, 0.02 * found.step_time_s)
