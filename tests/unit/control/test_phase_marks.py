"""Marks of phases, and the time and energy of each phase between them."""

import pytest

from wattune.control.phase_marks import PhaseMarks, StampClock, phase_costs
from wattune.core.reading import Reading


def marked(steps, *, names=("forward", "optimizer"), times_s=(2.0, 1.0), start_s=0.0):
    marks, now_s = PhaseMarks(), start_s
    for _ in range(steps):
        for name, time_s in zip(names, times_s, strict=True):
            marks.add(name, now_s)
            now_s += time_s
        marks.end_step()
    return marks, now_s


def counted(seconds, *, power_w, each_s=0.1):
    """Readings of a counter under a power that is a function of time."""
    found, energy_j = [], 0.0
    for place in range(round(seconds / each_s) + 1):
        at_s = place * each_s
        found.append(Reading(time_s=at_s, energy_j=energy_j, sm_mhz=1500 if at_s % 3.0 < 2.0 else 1200))
        energy_j += power_w(at_s + each_s / 2) * each_s
    return found


def test_phases_that_occur_several_times_in_a_step_are_numbered():
    marks = PhaseMarks()
    names = [marks.add(name, float(place)) for place, name in enumerate(("forward", "backward", "forward", "backward"))]
    assert names == ["forward", "backward", "forward#2", "backward#2"]
    marks.end_step()
    assert marks.add("forward", 4.0) == "forward"
    assert [mark.begins_step for mark in marks.between(0.0, 9.0)] == [True, False, False, False, True]


def test_time_and_energy_of_each_phase_are_means_over_steps():
    marks, end_s = marked(6)
    readings = counted(end_s, power_w=lambda at_s: 150.0 if at_s % 3.0 < 2.0 else 60.0)
    forward, optimizer = phase_costs(marks.between(0.0, end_s), readings)
    assert (forward.name, optimizer.name) == ("forward", "optimizer")
    assert forward.cost.time_s == pytest.approx(2.0)
    assert forward.cost.energy_j == pytest.approx(300.0, rel=0.01)
    assert optimizer.cost.energy_j == pytest.approx(60.0, rel=0.02)
    assert forward.cost.energy_error_j < 5.0
    assert forward.sm_mhz == pytest.approx(1500)
    assert optimizer.sm_mhz == pytest.approx(1200, rel=0.05)


def test_phases_add_up_to_the_counter():
    marks, end_s = marked(8, names=("a", "b", "c"), times_s=(0.33, 0.58, 0.71))
    readings = counted(end_s, power_w=lambda at_s: 100.0 + 40.0 * (at_s % 1.0))
    phases = phase_costs(marks.between(0.0, end_s), readings)
    total_j = 7 * sum(one.cost.energy_j for one in phases)  # the last step has no end
    last_s = marks.between(0.0, end_s)[-3].time_s
    until = min(readings, key=lambda one: abs(one.time_s - last_s))
    assert total_j == pytest.approx(until.energy_j, rel=0.02)


def test_unusual_steps_are_left_out():
    marks, now_s = marked(8)
    marks.add("forward", now_s)
    marks.end_step()
    for place in range(3):
        marks.add("forward", now_s + 1.0 + 3.0 * place)
        marks.add("optimizer", now_s + 3.0 + 3.0 * place)
        marks.end_step()
    readings = counted(now_s + 12.0, power_w=lambda _: 100.0)
    phases = phase_costs(marks.between(0.0, now_s + 12.0), readings)
    assert [one.cost.time_s for one in phases] == pytest.approx([2.0, 1.0])


def test_programs_whose_steps_differ_have_no_phases():
    marks = PhaseMarks()
    for place in range(10):
        marks.add(f"phase {place % 3}", float(place))
        marks.end_step()
    assert phase_costs(marks.between(0.0, 10.0), counted(10.0, power_w=lambda _: 100.0)) == ()


def test_too_few_steps_or_readings_show_nothing():
    marks, end_s = marked(1)
    assert phase_costs(marks.between(0.0, end_s), counted(end_s, power_w=lambda _: 100.0)) == ()
    marks, end_s = marked(5)
    assert phase_costs(marks.between(0.0, end_s), []) == ()
    assert phase_costs((), counted(end_s, power_w=lambda _: 100.0)) == ()


class GpuStamp:
    """A place in the work of a GPU that it passes at a time."""

    def __init__(self, at_s, clock):
        self.at_s, self.clock = at_s, clock

    def passed(self):
        return self.clock.now_s >= self.at_s

    def wait(self):
        raise AssertionError("nothing waits for a mark")

    def seconds_to(self, later):
        return later.at_s - self.at_s


class Clock:
    now_s = 0.0


def test_marks_with_stamps_are_placed_when_the_gpu_has_passed_them():
    clock, marks = Clock(), PhaseMarks()
    for at_s in (1.0, 3.0, 5.0):
        marks.add("forward", 0.0, stamp=GpuStamp(at_s, clock))
    assert not marks.has_any
    for now_s in (1.09, 3.01, 5.06):
        clock.now_s = now_s
        marks.resolve(now_s)
    first, second, third = (mark.time_s for mark in marks.between(0.0, 9.0))
    assert first == pytest.approx(1.09)
    assert second == pytest.approx(3.01)
    assert third == pytest.approx(5.01)  # by the stamp that was seen soonest


def test_a_stamp_is_never_placed_later_than_it_was_seen():
    clock, placed = Clock(), StampClock()
    assert placed.time_s(GpuStamp(2.0, clock), 2.5) == pytest.approx(2.5)
    assert placed.time_s(GpuStamp(3.0, clock), 3.0) == pytest.approx(3.0)


def test_stamps_follow_a_clock_that_drifts():
    clock, placed = Clock(), StampClock()
    for at_s in range(0, 3600, 10):
        found_s = placed.time_s(GpuStamp(float(at_s), clock), at_s * (1 + 50e-6) + 0.001)
    assert found_s == pytest.approx(at_s * (1 + 50e-6), abs=0.02)


def test_the_beginning_of_a_step_is_found_between_two_instants():
    marks, _ = marked(3)
    assert marks.begins_step(2.5, 3.0)
    assert not marks.begins_step(3.0, 5.9)
    assert not marks.begins_step(20.0, 30.0)
