"""A program that changes: earlier measurements are reused where they fit, and searched again where they do not."""

from dataclasses import replace

import pytest
from run_fakes import OddGpu, window

from wattune.control.recall import known_phase, unexplained_change
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, phases_of, since_change
from wattune.levels.run.session import RunSession
from wattune.physics.catalog import load_model
from wattune.signals.change import PERIOD, POWER, Change, Shift
from wattune.workloads.catalog import make_workload

BASE = window(None, Purpose.BASELINE, step_time_s=1.0, power_w=300.0)
TRIAL = window(1200, Purpose.TRIAL, step_time_s=1.06, power_w=240.0)
HELD = window(1275, Purpose.HOLD, step_time_s=1.03, power_w=260.0)
ENDED = replace(HELD, changed=True, step_time_s=1.4)


def change(*what):
    shifts = {name: Shift(0.2, 0.01, name in what) for name in (PERIOD, POWER)}
    return Change(time_s=40.0, since_s=38.0, samples=5, shifts=shifts)


def base(step_time_s, power_w):
    return replace(BASE, step_time_s=step_time_s, cost=replace(BASE.cost, energy_j=10.0 * power_w))


def test_a_change_ends_a_phase():
    windows = (BASE, TRIAL, ENDED, BASE, HELD)
    assert phases_of(windows) == ((BASE, TRIAL, ENDED), (BASE, HELD))
    assert since_change(windows) == (BASE, HELD)
    assert since_change((BASE, ENDED)) == ()
    assert phases_of(()) == ((),)


def test_an_earlier_phase_is_recognised_by_its_baseline():
    other = (base(0.5, 200.0), replace(window(990, Purpose.HOLD, step_time_s=0.51, power_w=150.0), changed=True))
    windows = (BASE, TRIAL, HELD, ENDED, *other, base(1.01, 306.0))
    found = known_phase(windows, change(PERIOD, POWER))
    assert {trial.choice for trial in found.trials} == {Setting(1200), Setting(1275)}
    seen = found.recalled(since_change(windows))
    assert [one.setting for one in seen] == [DRIVER_DEFAULT, Setting(1200), Setting(1275)]
    assert seen[1].step_time_s == pytest.approx(1.06 * 1.01)
    assert seen[1].power_w == pytest.approx(240.0 * 306.0 / 300.0)


@pytest.mark.parametrize(("step_time_s", "power_w"), [(1.3, 300.0), (1.0, 360.0), (None, 300.0)])
def test_a_new_phase_starts_without_earlier_measurements(step_time_s, power_w):
    windows = (BASE, TRIAL, HELD, ENDED, base(step_time_s, power_w))
    assert known_phase(windows, change(PERIOD, POWER)) is None
    assert known_phase((BASE, HELD, ENDED), change(PERIOD)) is None


def test_where_only_the_power_changed_the_step_times_are_reused():
    windows = (BASE, TRIAL, HELD, ENDED, base(1.0, 360.0))
    found = known_phase(windows, change(POWER))
    seen = found.recalled(since_change(windows))
    assert seen[1].step_time_s == pytest.approx(1.06)
    assert seen[1].power_w == pytest.approx(240.0 * 360.0 / 300.0)
    assert known_phase((*windows[:-1], base(1.2, 360.0)), change(POWER)) is None


def test_of_a_program_that_did_not_follow_the_clock_nothing_is_used_again():
    """Else the clock at which that was found out would be held: it seems to save most."""
    first = replace(BASE, sm_mhz=1755.0, sm_util=1.0, source="steps")
    unslowed = replace(window(435, Purpose.TRIAL, power_w=120.0), sm_mhz=435.0, sm_util=1.0, source="steps")
    windows = (first, unslowed, replace(first, purpose=Purpose.HOLD, changed=True), base(1.0, 360.0))
    for what in ((POWER,), (PERIOD, POWER)):
        assert known_phase((*windows[:-1], base(1.0, 302.0)), change(*what)) is None
    assert known_phase(windows, change(POWER)) is None
    slowed = replace(unslowed, step_time_s=3.0)
    assert known_phase((first, slowed, *windows[2:]), change(POWER)) is not None


@pytest.mark.parametrize(
    ("step_time_s", "sm_mhz", "changed"),
    [(1.04, 1275, False), (1.2, 1200, False), (2.0, 1200, True), (0.5, 1200, True), (1.5, 705, False)],
)
def test_a_step_time_unexplained_by_clock_changes_is_a_change(step_time_s, sm_mhz, changed):
    spec = load_model("a100").spec()
    found = unexplained_change((BASE, window(sm_mhz, Purpose.HOLD, step_time_s=step_time_s)), spec)
    assert (found is not None) is changed
    if found is not None:
        assert found.what == (PERIOD,)
    assert unexplained_change((window(sm_mhz, Purpose.HOLD, step_time_s=step_time_s),), spec) is None
    assert unexplained_change((), spec) is None


def steps_of(gpu, session, workload, steps):
    for _ in range(steps):
        gpu.real.run(workload)
        session.step()


def test_a_program_that_returns_to_an_earlier_phase_is_not_searched_again():
    """Training, something else, training again: in virtual time, by our own policy."""
    gpu = OddGpu(workload=None)
    first, other = make_workload("resnet50"), make_workload("bert-base", batch_size=8)
    session = RunSession((gpu,), objective=LeastEnergy(0.05))
    with session:
        steps_of(gpu, session, first, 1_000)
        searched = [one.purpose for one in session.progress.windows].count(Purpose.TRIAL)
        held = session.progress.setting
        for workload, steps in ((other, 1_500), (first, 900)):
            changes = len(session.progress.changes)
            steps_of(gpu, session, workload, steps)
            assert len(session.progress.changes) == changes + 1
        last = since_change(session.progress.windows)
        assert last[0].purpose is Purpose.BASELINE
        assert sum(one.purpose is Purpose.TRIAL for one in last) <= min(searched, 1)
        assert session.progress.setting.sm_mhz == pytest.approx(held.sm_mhz, abs=60)
    assert "is used again" in " ".join(event.text for event in session.progress.events)
