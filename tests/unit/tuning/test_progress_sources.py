"""Where a program's progress is seen, which place is believed, and what each is worth."""

import re

import numpy as np
import pytest

from wattune.core.reading import Reading
from wattune.tuning.metric_pattern import StepPattern
from wattune.tuning.progress_lines import LineSteps
from wattune.tuning.progress_rates import (
    COUNTER_ERROR,
    UTIL_ERROR,
    UTIL_KNOBS,
    WorkDone,
    busiest_pipe,
    busy_rate,
    counter_rate,
)
from wattune.tuning.progress_source import COUNTERS, LINES, PERIOD, STEPS, UTILISATION, Source, ordered, pace_of
from wattune.tuning.progress_stalls import without_stalls
from wattune.tuning.run_pace import steps_pace
from wattune.tuning.run_sight import Pace

# sources


def telling(name, pace_s, **more):
    return Source(name, lambda *_: None if pace_s is None else Pace(pace_s, 0.01, name), **more)


def test_steps_win_then_period_then_counters_then_utilisation():
    sources = [telling(name, 1.0) for name in (UTILISATION, COUNTERS, PERIOD, LINES, STEPS, "something else")]
    assert [source.name for source in ordered(sources)] == [
        STEPS,
        LINES,
        PERIOD,
        COUNTERS,
        UTILISATION,
        "something else",
    ]
    assert pace_of(sources, 0.0, 1.0).source == STEPS


def test_a_source_that_tells_nothing_leaves_it_to_the_next():
    sources = (telling(STEPS, None), telling(PERIOD, 0.4))
    assert pace_of(sources, 0.0, 1.0) == Pace(0.4, 0.01, PERIOD)
    assert pace_of(sources[:1], 0.0, 1.0) is None
    assert pace_of((), 0.0, 1.0) is None


def test_a_run_stays_with_its_source():
    sources = (telling(STEPS, 0.1), telling(PERIOD, 0.4))
    assert pace_of(sources, 0.0, 1.0, only=PERIOD).source == PERIOD
    assert pace_of(sources, 0.0, 1.0, only=COUNTERS) is None


def test_utilisation_does_not_judge_memory_clocks():
    sources = (telling(UTILISATION, 1.0, judges=UTIL_KNOBS),)
    assert pace_of(sources, 0.0, 1.0) is None
    assert pace_of(sources, 0.0, 1.0, knobs=frozenset(("sm_clock",))).source == UTILISATION


# lines


def told(pattern, lines):
    steps, counts = LineSteps(StepPattern(re.compile(pattern))), []
    for line in lines:
        steps, more = steps.read(line)
        counts.append(more)
    return counts


def test_a_line_counts_one_step_or_those_up_to_its_number():
    assert told("loss", ["loss 0.3", "hello", "loss 0.2"]) == [1, 0, 1]
    assert told(r"step (\d+)", ["step 100", "step 150", "noise", "step 200", "step 200"]) == [1, 50, 0, 50, 0]


def test_a_count_that_starts_anew_goes_on():
    assert told(r"step (\d+)", ["step 900", "step 1000", "step 0", "step 100"]) == [1, 100, 1, 100]


# stalls


def test_a_checkpoint_is_taken_out_of_the_steps():
    rng = np.random.default_rng(0)
    durations_s = 0.2 * (1 + 0.01 * rng.standard_normal(100))
    durations_s[[30, 60, 90]] += 5.0
    times_s = np.concatenate(([0.0], np.cumsum(durations_s))).tolist()
    counts = list(range(101))
    clean_s, lost_s = without_stalls(times_s, counts)
    assert lost_s == pytest.approx(15.0, abs=0.1)
    assert steps_pace(clean_s, counts).pace_s == pytest.approx(0.2, rel=0.005)
    assert steps_pace(times_s, counts).pace_s > 0.34


def test_a_program_whose_steps_are_often_long_has_no_stalls():
    times_s = np.cumsum([0.1, 0.1, 0.1, 0.1, 0.1, 1.0, 1.0] * 10).tolist()
    assert without_stalls(times_s, list(range(70))) == (tuple(times_s), 0.0)


@pytest.mark.parametrize("times_s", [[], [1.0], [1.0, 2.0, 9.0], [1.0] * 20])
def test_too_few_steps_or_no_time_between_them_are_left_alone(times_s):
    assert without_stalls(times_s, list(range(len(times_s)))) == (tuple(times_s), 0.0)


# rates


def readings(util, sm_mhz, *, seconds=60.0, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Reading(time_s=0.1 * n, sm_util=min(max(util + 0.01 * rng.standard_normal(), 0.0), 1.0), sm_mhz=sm_mhz)
        for n in range(round(10 * seconds))
    ]


def work(seen):
    done = WorkDone(UTILISATION, UTIL_ERROR)
    for reading in seen:
        done = done.add(reading.time_s, busy_rate(reading, top_mhz=2000))
    return done


def test_a_compute_bound_program_slows_down_by_its_clock():
    fast, slow = (work(readings(0.9, mhz)).between(5.0, 55.0) for mhz in (2000, 1600))
    assert slow.pace_s / fast.pace_s == pytest.approx(1.25, rel=0.01)
    assert fast.source == UTILISATION
    assert fast.error_s >= UTIL_ERROR * fast.pace_s


def test_a_host_bound_program_shows_no_slowdown():
    fast, slow = (work(readings(util, mhz)).between(5.0, 55.0) for util, mhz in ((0.4, 2000), (0.5, 1600)))
    assert slow.pace_s / fast.pace_s == pytest.approx(1.0, abs=0.01)


def test_readings_that_tell_nothing_tell_no_pace():
    assert busy_rate(Reading(time_s=0.0, sm_util=0.5), top_mhz=2000) is None
    assert busy_rate(Reading(time_s=0.0, sm_mhz=1500), top_mhz=2000) is None
    assert work([Reading(time_s=float(n)) for n in range(60)]).between(0.0, 60.0) is None
    assert work(readings(0.0, 2000)[:5]).between(0.0, 60.0) is None


def test_a_gap_starts_the_count_anew():
    done = work(readings(0.9, 2000, seconds=10.0))
    later = done.add(100.0, 0.5)
    assert later.times_s == (100.0,)
    assert later.add(99.0, 0.5) == later


def test_few_instants_are_kept_however_long_it_runs():
    done = WorkDone(UTILISATION, UTIL_ERROR)
    for n in range(3_000):
        done = done.add(0.02 * n, 0.5)
    assert len(done.times_s) < 400
    assert done.done[-1] == pytest.approx(0.5 * 0.02 * 2_999)


def test_counters_tell_operations_whatever_the_clock():
    assert busiest_pipe({"tensor": 0.4, "fp32": 0.1, "sm": 0.9}) == "tensor"
    assert busiest_pipe({"sm": 0.9, "dram": 0.9, "tensor": 0.001}) is None
    paces = []
    for share, mhz in ((0.40, 2000), (0.48, 1600)):
        done = WorkDone(COUNTERS, COUNTER_ERROR)
        for n in range(100):
            reading = Reading(time_s=0.2 * n, sm_mhz=mhz)
            done = done.add(reading.time_s, counter_rate({"tensor": share}, reading, pipe="tensor", top_mhz=2000))
        paces.append(done.between(0.0, 20.0).pace_s)
    assert paces[1] / paces[0] == pytest.approx(0.40 / 0.384)
    assert counter_rate({}, Reading(time_s=0.0, sm_mhz=1500), pipe="tensor", top_mhz=2000) is None
