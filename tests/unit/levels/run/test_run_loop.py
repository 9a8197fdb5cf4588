"""The live loop in virtual time: what it sets, what it measures, and what it does when things go wrong."""

import sys
from dataclasses import replace
from random import Random

import pytest
from run_fakes import Moody, OddGpu, Script, ticked

from wattune.control.controller import WindowController
from wattune.control.loop import ControlLoop
from wattune.control.progress_estimator import PATTERN, ProgressEstimator
from wattune.control.state import Condition, Disabled, Waiting
from wattune.control.window_state import Measuring
from wattune.core.errors import DeviceError, DeviceLost, NoPermission, NotSupported, SettingRefused
from wattune.core.objective import LeastEnergy
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Purpose, phases_of
from wattune.devices.passing_time import VirtualTime
from wattune.levels.run.report import report_of
from wattune.levels.run.session import RunSession
from wattune.levels.run.view.words import closing_lines
from wattune.process.step_file import NewSteps

LOW, LOWER = Setting(1200), Setting(1005)


def make_loop(*gpus, policy=None, program=None):
    spec = gpus[0].spec
    watch = ProgressEstimator(spec.sensors)
    controller = WindowController(policy or Script((LOW, LOWER)), spec)
    return ControlLoop(controller, gpus, program=program or Moody(), step_times=watch), watch.marks


def texts(loop):
    return " | ".join(event.text for event in loop.progress.events)


def test_a_program_is_measured_and_then_held():
    gpu = OddGpu()
    loop, marks = make_loop(gpu)
    ticked(loop, gpu, 20, step_s=0.1, marks=marks)
    windows = loop.progress.windows
    assert [one.purpose for one in windows[:3]] == [Purpose.BASELINE, Purpose.TRIAL, Purpose.HOLD]
    assert [one.setting for one in windows[:3]] == [DRIVER_DEFAULT, LOW, LOWER]
    assert all(one.held for one in windows)
    assert windows[0].power_w > windows[1].power_w > windows[2].power_w
    for one in windows:
        assert one.step_time_s == pytest.approx(0.1, rel=0.05)
        assert one.cost.time_s >= 2.0
    assert windows[1].settling.time_s >= 1.0
    assert windows[1].sm_mhz == 1200
    assert gpu.real.setting == LOWER
    loop.close()
    assert gpu.real.setting == DRIVER_DEFAULT


def test_windows_and_gaps_add_up_to_the_whole_run():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 20)
    loop.close()
    spent, windows = loop.progress.spent, loop.progress.windows
    seconds = sum(one.cost.time_s + one.settling.time_s for one in windows)
    joules = sum(one.cost.energy_j + one.settling.energy_j for one in windows)
    assert seconds == pytest.approx(spent.time_s, abs=1.0)
    assert joules == pytest.approx(spent.energy_j, rel=0.06)


def test_a_refused_clock_is_dropped_and_reported():
    gpu = OddGpu()
    gpu.on_apply = lambda setting: SettingRefused("not that one") if setting == LOW else None
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 15)
    assert "1200 MHz was refused" in texts(loop)
    assert LOW not in [one.setting for one in loop.progress.windows]
    assert 1200 not in loop.progress.spec.sm_clocks_mhz
    assert gpu.real.setting == LOWER


def test_a_clock_that_is_silently_not_applied_is_dropped_and_reported():
    gpu = OddGpu()
    gpu.ignores = True
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 25)
    assert "1200 MHz was asked for and 1305 MHz holds" in texts(loop)
    assert all(one.setting == DRIVER_DEFAULT for one in loop.progress.windows)
    assert loop.progress.refused[:2] == (LOW, LOWER)


@pytest.mark.parametrize("error", [NoPermission("you may not"), DeviceLost("it is gone")])
def test_a_lost_permission_ends_the_tuning_and_restores(error):
    gpu = OddGpu()
    gpu.on_apply = lambda setting: error if setting == LOWER else None
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 15)
    assert isinstance(loop.progress.state, Disabled)
    assert error.message in texts(loop)
    assert gpu.real.setting == DRIVER_DEFAULT
    assert gpu.applied[-1] == "restored"


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_driver_that_breaks_while_setting_ends_the_tuning_and_restores(gpus):
    time = VirtualTime()
    own = [OddGpu(index=index, time=time) for index in range(gpus)]
    own[-1].on_apply = lambda setting: OSError("broken driver") if setting == LOWER else None
    loop, _ = make_loop(*own)
    ticked(loop, own[0], 15)
    assert isinstance(loop.progress.state, Disabled)
    assert "OSError: broken driver" in texts(loop)
    assert all(gpu.real.setting == DRIVER_DEFAULT for gpu in own)
    applied = [list(gpu.applied) for gpu in own]
    ticked(loop, own[0], 5)
    assert [gpu.applied for gpu in own] == applied


def test_settings_that_are_not_supported_leave_the_others():
    gpu = OddGpu()
    gpu.on_apply = lambda setting: NotSupported("no core clocks") if setting.sm_mhz else None
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 15)
    assert loop.progress.spec.sm_clocks_mhz in ((), (1410,))
    assert "no core clocks" in texts(loop)
    assert gpu.real.setting == DRIVER_DEFAULT


def test_nothing_is_set_while_the_program_does_not_use_the_gpu():
    gpu = OddGpu()
    program = Moody(Condition.UNUSED)
    loop, _ = make_loop(gpu, program=program)
    ticked(loop, gpu, 10)
    assert gpu.applied == []
    assert loop.progress.windows == ()
    program.now = Condition.WORKING
    ticked(loop, gpu, 10)
    assert loop.progress.windows


def test_an_idle_gpu_is_not_tuned():
    gpu = OddGpu(workload=None)
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 10)
    assert gpu.applied == []
    assert isinstance(loop.progress.state, Waiting)


@pytest.mark.parametrize("why", [Condition.STOPPED, Condition.SHARED])
def test_an_interruption_restores_the_clocks_and_repeats_the_order(why):
    gpu = OddGpu()
    program = Moody()
    loop, _ = make_loop(gpu, program=program)
    ticked(loop, gpu, 5.6)
    assert isinstance(loop.progress.state, Measuring)
    assert gpu.real.setting == LOW
    program.now = why
    ticked(loop, gpu, 5)
    assert gpu.real.setting == DRIVER_DEFAULT
    assert f"the program is {why}" in texts(loop)
    program.now = Condition.WORKING
    ticked(loop, gpu, 5)
    trial = next(one for one in loop.progress.windows if one.setting == LOW)
    assert 1.5 < trial.settling.time_s < 5.0  # the lost window is charged to the next, the pause is not


def test_an_idle_program_gets_the_drivers_clocks_back():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 12)
    assert gpu.real.setting == LOWER
    gpu.real.pause()
    ticked(loop, gpu, 15)
    assert gpu.real.setting == DRIVER_DEFAULT
    assert "the program is idle" in texts(loop)


def test_readings_that_fail_for_a_moment_are_reported_and_survived():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 3)
    gpu.on_read = DeviceError("no answer")
    ticked(loop, gpu, 1)
    gpu.on_read = None
    ticked(loop, gpu, 12)
    assert "could not be read: no answer" in texts(loop)
    assert loop.progress.windows[-1].purpose is Purpose.HOLD


def test_a_gpu_that_is_lost_ends_the_tuning():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 6)
    gpu.on_read = DeviceLost("fell off the bus")
    ticked(loop, gpu, 1)
    loop.close()
    assert isinstance(loop.progress.state, Disabled)
    assert "fell off the bus" in texts(loop)
    assert "restored" in gpu.applied


def test_a_counter_that_freezes_is_replaced_by_power():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 3)
    frozen_j = gpu.real.read().energy_j
    gpu.twist = lambda reading: replace(reading, energy_j=frozen_j)
    ticked(loop, gpu, 20)
    assert "counter is frozen" in texts(loop)
    assert loop.progress.windows[-1].power_w == pytest.approx(gpu.real.read().power_w, rel=0.2)


def test_sensors_that_jump_do_not_reach_the_windows():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 3)
    gpu.twist = lambda reading: replace(reading, power_w=9e4, energy_j=reading.energy_j + 1e9)
    ticked(loop, gpu, 0.5)
    gpu.twist = lambda reading: reading
    ticked(loop, gpu, 16)
    said = texts(loop)
    assert "more than twice the limit" in said
    assert "counter jumped" in said
    assert all(one.power_w < 500.0 for one in loop.progress.windows)
    assert gpu.real.setting == LOWER


def test_a_frozen_power_sensor_is_reported_and_the_counter_goes_on():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 3)
    gpu.twist = lambda reading: replace(reading, power_w=60.0)
    ticked(loop, gpu, 17)
    assert "power sensor is frozen" in texts(loop)
    gpu.twist = lambda reading: reading
    assert loop.progress.windows[-1].power_w == pytest.approx(gpu.real.read().power_w, rel=0.2)


def test_a_gpu_that_could_not_be_restored_is_tried_again():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 6)
    gpu.on_apply, restored, before = DeviceError("busy"), gpu.restore, gpu.real.setting

    def fail():
        raise DeviceError("busy")

    gpu.restore = fail
    loop.restore()
    assert gpu.real.setting == before != DRIVER_DEFAULT
    gpu.on_apply, gpu.restore = None, restored
    loop.close()
    assert gpu.real.setting == DRIVER_DEFAULT
    assert "could not be restored" in texts(loop)


def test_several_gpus_are_set_alike_and_read_as_one():
    time = VirtualTime()
    first, second = OddGpu(time=time), OddGpu(index=1, time=time)
    loop, _ = make_loop(first, second)
    ticked(loop, first, 12)
    assert first.real.setting == second.real.setting == LOWER
    alone = OddGpu()
    single, _ = make_loop(alone)
    ticked(single, alone, 12)
    assert loop.progress.windows[0].power_w == pytest.approx(single.progress.windows[0].power_w, rel=0.02)


def test_where_one_of_several_gpus_refuses_none_keeps_the_setting():
    time = VirtualTime()
    first, second = OddGpu(time=time), OddGpu(index=1, time=time)
    second.on_apply = lambda setting: SettingRefused("not here") if setting == LOW else None
    loop, _ = make_loop(first, second, policy=Script((LOW,)))
    ticked(loop, first, 8)
    assert LOW in first.applied
    assert first.real.setting == second.real.setting == DRIVER_DEFAULT


def test_gpus_that_the_program_does_not_use_are_not_tuned():
    time = VirtualTime()
    first, second = OddGpu(time=time), OddGpu(index=1, time=time, workload=None)
    loop, _ = make_loop(first, second, program=Moody(used=frozenset({0})))
    ticked(loop, first, 12)
    assert loop.gpus == (first,)
    assert second.applied == []
    assert first.real.setting == LOWER


def test_a_program_that_ends_during_the_search_keeps_its_windows():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 6.3)
    loop.close()
    assert len(loop.progress.windows) == 2
    assert gpu.real.setting == DRIVER_DEFAULT


def test_a_gpu_that_cannot_be_restored_is_reported():
    gpu = OddGpu()
    loop, _ = make_loop(gpu)
    ticked(loop, gpu, 6)

    def fail():
        raise NoPermission("not any more")

    gpu.restore = fail
    loop.close()
    assert "could not be restored" in texts(loop)


class CountedInside:
    """Steps of 0.1 s that a hook counts, from a time on."""

    source = "optimizer"

    def __init__(self, gpu, *, from_s):
        self.gpu, self.from_s, self.taken, self.unit_changed = gpu, from_s, 0, False

    def take(self):
        now_s = self.gpu.count().time_s - self.from_s
        new = int(now_s / 0.1) - self.taken if now_s > 0 else 0
        self.taken += new
        return NewSteps(new, now_s % 0.1) if new else None

    def failure(self):
        return "OSError: it is full" if self.taken == 1 else None


def hooked_loop(gpu, *, from_s, policy="wattune"):
    session = RunSession((gpu,), objective=LeastEnergy(0.05), policy=policy)
    session.watch.hook = CountedInside(gpu, from_s=from_s)
    return session


def test_steps_that_begin_late_lead_to_a_new_baseline():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s + 40)
    ticked(session.loop, gpu, 120)
    before, after = phases_of(session.progress.windows)
    assert before[0].purpose is after[0].purpose is Purpose.BASELINE
    assert after[0].start_s >= 40
    assert all(one.step_time_s == pytest.approx(0.1, rel=0.01) for one in after)
    assert all(one.counted for one in after)
    assert "steps are counted from now on: by the program's optimizer" in texts(session.loop)
    assert session.watch.step_source == "hook"


def test_steps_from_the_start_need_no_second_baseline():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    ticked(session.loop, gpu, 30)
    (only,) = phases_of(session.progress.windows)
    assert only[0].step_time_s == pytest.approx(0.1, rel=0.01)


def test_another_unit_of_work_leads_to_a_new_baseline():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    ticked(session.loop, gpu, 30)
    session.watch.hook.unit_changed = True
    ticked(session.loop, gpu, 30)
    _, after = phases_of(session.progress.windows)
    assert after[0].purpose is Purpose.BASELINE


def test_beside_a_followed_gpu_only_optimizer_steps_are_used():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    session.watch.only_optimizers, session.watch.hook.source = True, "progress bar"
    ticked(session.loop, gpu, 40)
    assert texts(session.loop).count("only optimizer steps of PyTorch follow its clock") == 1
    assert not any(window.step_time_s for window in session.progress.windows)
    assert session.progress.held in (None, DRIVER_DEFAULT)
    session.watch.hook.source = "optimizer"
    ticked(session.loop, gpu, 40)
    assert session.watch.step_source == "hook"
    assert session.progress.windows[-1].step_time_s == pytest.approx(0.1, rel=0.01)


def test_a_pattern_is_used_beside_a_followed_gpu_where_an_optimizer_steps():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    session.watch.only_optimizers, session.watch.reported_by = True, PATTERN
    session.watch.hook.source = None
    session.watch.report(gpu.count().time_s, 1)  # a line that is read before the first count of the hook
    session.watch.hook.source = "optimizer"
    for _ in range(30):
        ticked(session.loop, gpu, 0.1)
        session.watch.report(gpu.count().time_s, 1)
    assert "only optimizer steps" not in texts(session.loop)
    assert (session.watch.step_source, session.watch.marks.total) == (PATTERN, 30)


def test_a_hook_that_fails_is_an_event():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    ticked(session.loop, gpu, 5)
    assert "does not count its steps: OSError: it is full" in texts(session.loop)


def test_a_pattern_that_never_matches_gives_way_to_the_hook():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    session.watch.reported_by = PATTERN
    ticked(session.loop, gpu, 1.5)
    assert session.watch.marks.total == 0
    ticked(session.loop, gpu, 10)
    assert session.watch.step_source == "hook"


def test_a_pattern_that_matches_comes_before_the_hook():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s)
    session.watch.reported_by = PATTERN
    ticked(session.loop, gpu, 10, step_s=0.5, marks=session.watch.marks)
    assert session.watch.step_source == "pattern"
    assert session.progress.windows[0].step_time_s == pytest.approx(0.5, rel=0.05)


def test_steps_that_are_reported_late_lead_to_a_new_baseline():
    gpu = OddGpu()
    session = RunSession((gpu,), objective=LeastEnergy(0.05))
    ticked(session.loop, gpu, 40)
    ticked(session.loop, gpu, 60, step_s=0.1, marks=session.watch.marks)
    before, after = phases_of(session.progress.windows)
    assert {one.source for one in before} <= {None, "period"}
    assert after[0].purpose is Purpose.BASELINE
    assert {one.source for one in after} == {"steps"}
    assert "steps are reported from now on" in texts(session.loop)


@pytest.mark.parametrize(("gpu", "workload"), [("rtx-3080-ti", "bert-large:256"), ("a100", "bert-large:64")])
def test_a_constant_program_with_long_steps_does_not_change(gpu, workload):
    """Its steps take 3 s and 0.4 s, and do not always show: samples of a second had parts of them by turns."""
    odd = OddGpu(gpu, workload=workload)
    session = RunSession((odd,), objective=LeastEnergy(0.05))
    ticked(session.loop, odd, 300, each_s=0.1)
    assert not session.progress.changes


def test_a_starved_sampler_is_no_evidence_of_a_change():
    """Readings that come late err by the refresh of the counter; those samples are left out."""
    random = Random(4)
    gpu = OddGpu(workload="resnet50:256")
    session = RunSession((gpu,), objective=LeastEnergy(0.05))
    ticked(session.loop, gpu, 60)
    for _ in range(300):
        gpu.wait(random.uniform(0.3, 0.9))
        session.loop.tick()
    assert session.loop.readings.late_ticks > 200
    assert not session.progress.changes


class PrintedSteps:
    """Steps of 0.2 s that the output shows."""

    source, unit_changed = "tqdm", False

    def __init__(self, gpu):
        self.gpu, self.taken = gpu, 0

    def take(self):
        new = int(self.gpu.count().time_s / 0.2) - self.taken
        self.taken += new
        return NewSteps(new, 0.0) if new else None


def test_steps_in_the_output_count_until_the_hook_does():
    gpu = OddGpu()
    session = hooked_loop(gpu, from_s=gpu.count().time_s + 40)
    session.watch.output = PrintedSteps(gpu)
    ticked(session.loop, gpu, 30)
    assert session.watch.step_source == "output"
    assert session.progress.windows[0].step_time_s == pytest.approx(0.2, rel=0.02)
    ticked(session.loop, gpu, 60)
    assert session.watch.step_source == "hook"
    after = phases_of(session.progress.windows)[-1]
    assert all(one.step_time_s == pytest.approx(0.1, rel=0.01) for one in after)


# several GPUs


@pytest.mark.parametrize("lost", [0, 1])
def test_of_two_gpus_the_one_that_is_left_is_tuned_on(lost):
    pair = [OddGpu()]
    pair.append(OddGpu(index=1, time=pair[0].time))
    kept = pair[1 - lost]
    program = Moody()
    session = RunSession(
        pair, objective=LeastEnergy(0.05), policy=Script((Setting(1200), Setting(1305))), program=program
    )
    loop = session.loop
    begun_j = [gpu.real.count().energy_j for gpu in pair]
    ticked(loop, pair[0], 6)
    assert kept.real.setting != DRIVER_DEFAULT
    pair[lost].on_read = DeviceLost("fell off the bus")
    ticked(loop, pair[0], 0.5)
    assert loop.gpus == program.kept == (kept,)
    assert not isinstance(loop.progress.state, Disabled)
    ticked(loop, pair[0], 12)
    assert kept.real.setting == Setting(1305)
    loop.close()
    assert pair[lost].applied[-1] == "restored"
    assert kept.real.setting == DRIVER_DEFAULT
    assert f"GPU {lost} is lost; from now on only GPU {1 - lost} is measured and set: fell off the bus" in texts(loop)
    (gone,) = loop.lost
    assert (gone.spec, gone.index) == (pair[lost].spec, lost)
    assert gone.spent.time_s == pytest.approx(6, abs=0.5)
    spent_j = kept.real.count().energy_j - begun_j[1 - lost]
    assert loop.progress.spent.energy_j == pytest.approx(spent_j, rel=0.03)
    report = report_of(session, program="train", objective="energy:5%", ended=True)
    assert report.spent.energy_j == pytest.approx(loop.progress.spent.energy_j + gone.spent.energy_j)
    assert any("was lost: " in line for line in closing_lines(report))


def test_when_all_gpus_are_lost_the_tuning_ends():
    pair = [OddGpu()]
    pair.append(OddGpu(index=1, time=pair[0].time))
    loop = RunSession(pair, objective=LeastEnergy(0.05), policy=Script((Setting(1200),)), program=Moody()).loop
    ticked(loop, pair[0], 3)
    for gpu in pair:
        gpu.on_read = DeviceLost("fell off the bus")
    ticked(loop, pair[0], 1)
    assert isinstance(loop.progress.state, Disabled)


def test_a_remark_at_any_instruction_of_a_decision_becomes_an_event():
    gpu = OddGpu()
    loop, _ = make_loop(gpu, policy=Script((Setting(1200),)))
    wanted = []

    def interrupt(frame, event, _):
        """Remark something between any two instructions, as another thread may."""
        if not frame.f_code.co_filename.endswith("control/loop.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            wanted.append(f"remark {len(wanted)}")
            loop.remark(wanted[-1])
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        for _ in range(3):
            gpu.wait(0.5)
            loop.tick()
    finally:
        sys.settrace(before)
    loop.close()
    assert len(wanted) > 100
    assert {event.text for event in loop.progress.events} >= set(wanted)


def test_a_remark_after_the_last_decision_becomes_an_event():
    gpu = OddGpu()
    loop, *_ = make_loop(gpu, policy=Script((Setting(1200),)))
    ticked(loop, gpu, 3)
    loop.remark("the last one")
    loop.close()
    assert "the last one" in texts(loop)
