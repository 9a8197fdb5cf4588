"""The work between the first and the last step that was counted."""

import pytest

from wattune.control.counted_work import CountedSpan, CountedWork, idle_before_s, joined
from wattune.control.step_time import StepMarks
from wattune.core.measurement import Measurement
from wattune.core.reading import Reading
from wattune.core.refresh import Refresh


def marks(*, start_s, step_s, count):
    found = StepMarks()
    for number in range(count):
        found.add(start_s + number * step_s)
    return found


def test_start_up_and_end_are_left_out():
    span = CountedSpan.of(marks(start_s=12.0, step_s=0.1, count=101), "optimizer")
    assert (span.start_s, span.end_s, span.steps) == (12.0, pytest.approx(22.0), 100)
    work = span.work([Measurement(10.0, 3000.0, None, 6.0)], began_s=0.0)
    assert work.before_s == 12.0
    assert (work.per_step.time_s, work.per_step.energy_j) == (pytest.approx(0.1), pytest.approx(30.0))
    assert work.per_step.energy_error_j > 0.06  # that of the counter, and the scatter of steps
    assert work.per_step.time_error_s == pytest.approx(5e-5)


def test_pauses_between_steps_are_left_out():
    paused = StepMarks()
    for number in range(120):
        paused.add(12.0 + 0.05 * number + 1.5 * (number // 40))
    span = CountedSpan.of(paused, "optimizer")
    assert span.steps == 117
    assert [end_s - start_s for start_s, end_s in span.parts] == pytest.approx([39 * 0.05] * 3)
    spent = Measurement(117 * 0.05, 117 * 20.0, None, 6.0)
    step = span.work([spent], began_s=0.0).per_step
    assert (step.time_s, step.energy_j) == (pytest.approx(0.05), pytest.approx(20.0))
    assert step.time_error_s < 0.01 * step.time_s


def test_the_ends_are_steps_at_which_the_counter_moves():
    refresh = Refresh(0.1, 0.03, 0.0, 0.0)
    span = CountedSpan.of(marks(start_s=12.0, step_s=0.068, count=101), "optimizer", [refresh])
    for end_s in (span.start_s, span.end_s):
        assert min(refresh.age_s(end_s), 0.1 - refresh.age_s(end_s)) < 0.007
    assert (span.end_s - span.start_s) / span.steps == pytest.approx(0.068)
    assert 60 < span.steps < 100


def test_all_gpus_count_and_none_is_guessed():
    span = CountedSpan.of(marks(start_s=1.0, step_s=0.1, count=50), "pattern")
    part = Measurement(4.9, 1000.0, None, 5.0)
    assert span.work([part, part], began_s=0.0).cost.energy_j == 2000.0
    assert span.work([part, None], began_s=0.0) is None
    assert span.work([], began_s=0.0) is None


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_steps_show_nothing(count):
    assert CountedSpan.of(marks(start_s=1.0, step_s=0.1, count=count), "optimizer") is None


def test_counting_begins_again_where_steps_are_others():
    counted = marks(start_s=0.0, step_s=0.01, count=100)
    counted.restart()
    for number in range(1, 21):
        counted.add(2.0 + number)
    assert CountedSpan.of(counted, "optimizer").start_s == pytest.approx(0.99)
    assert CountedSpan.of(counted, "optimizer").steps == 20


def test_runs_are_joined_where_steps_were_counted_alike():
    one = CountedWork("optimizer", 10, Measurement(1.0, 100.0), 3.0)
    assert joined([one, one]).per_step == one.per_step
    assert joined([one, one]).steps == 20
    assert joined([one, None]) is None
    assert joined([one, CountedWork("pattern", 10, Measurement(1.0, 100.0), 3.0)]) is None
    assert joined([]) is None


def test_the_time_until_a_gpu_first_works_is_seen_where_it_reports_that():
    idle = [Reading(time_s=float(second), sm_util=0.0) for second in range(5)]
    working = Reading(time_s=5.0, sm_util=0.9)
    assert idle_before_s([*idle, working], 1.0) == 4.0
    assert idle_before_s([working, *idle, Reading(time_s=9.0, sm_util=1.0)], 6.0) == 3.0  # of the second run
    assert idle_before_s(idle, 0.0) is None
    assert idle_before_s([Reading(time_s=1.0), working], 0.0) is None
