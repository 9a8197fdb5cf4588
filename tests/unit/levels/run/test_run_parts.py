"""The pure functions of run tuning: readings against settings, allowed settings, step times, figures, fingerprints."""

import os
import random
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_fakes import window

from wattune.control import process_monitor as run_program
from wattune.control.process_monitor import ProcessWatch, numbering_of, use_of
from wattune.control.recall import fingerprint, trials_of
from wattune.control.state import Condition, as_one
from wattune.control.step_time import StepMarks, WorkUnit, counted_step_time, same_unit
from wattune.control.window_totals import Tally, disagreement
from wattune.core.errors import InputError
from wattune.core.gpu_spec import MEM_CLOCK, POWER_LIMIT, SM_CLOCK, can_set, limited_to, without
from wattune.core.measurement import Measurement
from wattune.core.objective import Deadline, EnergyDelay, LeastEnergy
from wattune.core.reading import Reading, Throttle
from wattune.core.setting import Setting
from wattune.core.window import Purpose
from wattune.levels.run.figures import figures_of
from wattune.levels.run.policies import POLICIES, policy_named, slowdown_limit_of
from wattune.levels.run.summaries import COUNTER_ERROR, phase_summaries
from wattune.physics.catalog import load_model
from wattune.process import held as held_process
from wattune.process.held import HeldProcess

A100 = load_model("a100").spec()
GEFORCE = load_model("rtx-3080-ti").spec()

# reading back


@pytest.mark.parametrize(
    ("setting", "reading", "held"),
    [
        (Setting(1200), Reading(time_s=0, sm_mhz=1200), True),
        (Setting(1200), Reading(time_s=0, sm_mhz=1215), True),
        (Setting(1200), Reading(time_s=0, sm_mhz=1410), False),
        (Setting(1200), Reading(time_s=0, sm_mhz=900, throttle=Throttle.NONE), False),
        (Setting(1200), Reading(time_s=0, sm_mhz=900, throttle=Throttle.POWER_CAP), True),
        (Setting(1200), Reading(time_s=0, sm_mhz=210, throttle=Throttle.IDLE), True),
        (Setting(1200), Reading(time_s=0), True),
        (Setting(None, 5001), Reading(time_s=0, mem_mhz=9501), False),
        (Setting(None, None, 250.0), Reading(time_s=0, power_limit_w=250.4), True),
        (Setting(None, None, 250.0), Reading(time_s=0, power_limit_w=350.0), False),
        (Setting(), Reading(time_s=0, sm_mhz=300, power_limit_w=100.0), True),
    ],
)
def test_readings_agree_or_disagree_with_a_setting(setting, reading, held):
    assert (disagreement(setting, reading) is None) is held


# what is left to set


def test_a_refused_clock_is_no_longer_a_candidate():
    left = without(A100, Setting(1200))
    assert 1200 not in left.sm_clocks_mhz
    assert len(left.sm_clocks_mhz) == len(A100.sm_clocks_mhz) - 1


def test_a_refused_memory_clock_removes_its_table():
    low = GEFORCE.mem_clocks_mhz[1]
    left = without(GEFORCE, Setting(GEFORCE.clocks[1].sm_mhz[-1], low))
    assert low not in left.mem_clocks_mhz
    assert left.sm_clocks_mhz == GEFORCE.sm_clocks_mhz


def test_a_refused_power_limit_removes_all_limits():
    assert without(A100, Setting(power_limit_w=200.0)).power_limits is None


def test_knobs_limit_the_settings():
    clocks = limited_to(GEFORCE, frozenset({SM_CLOCK}))
    assert clocks.power_limits is None
    assert not clocks.can_lock_mem
    assert len(clocks.clocks) == 1
    limits = limited_to(GEFORCE, frozenset({POWER_LIMIT}))
    assert limits.clocks == ()
    assert limits.power_limits is not None
    assert can_set(limits)
    memory = limited_to(GEFORCE, frozenset({MEM_CLOCK}))
    assert len(memory.clocks) > 1
    assert all(len(table.sm_mhz) == 1 for table in memory.clocks)
    assert not can_set(limited_to(GEFORCE, frozenset()))


# step times


def test_the_step_time_and_its_error():
    generator = random.Random(3)
    misses = 0
    for _ in range(200):
        marks, now_s = StepMarks(), 0.0
        for _ in range(80):
            now_s += 0.1 * generator.gauss(1.0, 0.02)
            marks.add(now_s)
        step_time = marks.between(0.0, now_s)
        misses += abs(step_time.step_time_s - 0.1) > step_time.error_s
    assert misses < 24


@given(st.lists(st.floats(0.001, 10.0), min_size=8, max_size=60), st.floats(0.1, 10.0))
def test_the_step_time_scales_with_time(spans, factor):
    times = [sum(spans[:place]) for place in range(len(spans) + 1)]
    counts = list(range(len(times)))
    step_time = counted_step_time(times, counts)
    scaled = counted_step_time([factor * time for time in times], counts)
    assert scaled.step_time_s == pytest.approx(factor * step_time.step_time_s)
    assert step_time.step_time_s == pytest.approx(sum(spans) / len(spans))


def test_too_few_steps_give_no_step_time():
    assert counted_step_time([0.0, 1.0], [0, 1]) is None
    assert counted_step_time([0.0] * 8, list(range(8))) is None
    assert StepMarks().between(0.0, 10.0) is None


def test_the_same_unit_is_found_again_at_another_clock():
    unit = WorkUnit(0.300, 1410.0)
    found = ((0.158, 0.001), (0.331, 0.001), (13.2, 0.1))
    assert same_unit(unit, found, sm_mhz=1200.0).step_time_s == 0.331
    assert same_unit(unit, ((0.150, 0.001),), sm_mhz=1200.0) is None
    assert same_unit(unit, ((0.600, 0.001),), sm_mhz=1200.0) is None
    assert same_unit(unit, ((0.560, 0.001),), sm_mhz=1200.0, mem_mhz=None) is None
    assert same_unit(WorkUnit(0.3, 1410.0, 9501.0), ((0.5, 0.001),), sm_mhz=1410.0, mem_mhz=5001.0).step_time_s == 0.5
    assert same_unit(WorkUnit(0.3), ((0.33, None),), sm_mhz=None).step_time_s == 0.33


# several GPUs as one


def test_several_readings_as_one():
    one = Reading(time_s=1.0, energy_j=10.0, power_w=100.0, sm_mhz=1200, sm_util=1.0, throttle=Throttle.NONE)
    other = Reading(time_s=1.1, energy_j=30.0, power_w=None, sm_mhz=1100, sm_util=0.5, throttle=Throttle.POWER_CAP)
    both = as_one([one, other])
    assert (both.time_s, both.energy_j, both.power_w, both.sm_mhz) == (1.1, 20.0, None, 1100)
    assert both.sm_util == 0.75
    assert both.throttle == Throttle.POWER_CAP
    assert as_one([one]) is one


# figures


def test_figures_of_a_plain_run():
    windows = (
        window(None, Purpose.BASELINE, step_time_s=1.0, power_w=100.0, start_s=0.0),
        window(1000, Purpose.TRIAL, step_time_s=1.1, power_w=90.0, start_s=10.0),
        window(1200, Purpose.HOLD, step_time_s=1.04, power_w=80.0, start_s=20.0, time_s=104.0),
    )
    figures = figures_of(windows, gpus=2, slowdown_limit=0.05)
    took_s, would_s = 124.0, 10.0 + 10.0 / 1.1 + 100.0
    assert figures.slowdown.value == pytest.approx(took_s / would_s - 1)
    assert figures.saving.value == pytest.approx(1 - (1000 + 900 + 8320) / (100 * would_s))
    assert figures.held_slowdown.value == pytest.approx(0.04)
    assert figures.held_saving.value == pytest.approx(1 - 80 * 1.04 / 100)
    assert figures.evaluations == 1
    assert figures.search_s == 20.0
    assert figures.search_extra_j == pytest.approx(2 * (900 - 100 * 10 / 1.1))
    assert 0.5 < figures.confidence <= 1.0


def test_a_search_that_cost_more_breaks_even_later():
    windows = (
        window(None, Purpose.BASELINE, power_w=100.0),
        window(500, Purpose.TRIAL, step_time_s=2.0, power_w=80.0, start_s=10.0),
        window(1200, Purpose.HOLD, step_time_s=1.0, power_w=80.0, start_s=20.0),
    )
    figures = figures_of(windows, gpus=1, slowdown_limit=0.05)
    assert figures.search_extra_j == pytest.approx(300.0)
    assert figures.break_even_s == pytest.approx(30.0 + (300.0 - 200.0) / 20.0)


def test_a_change_of_the_program_begins_a_new_baseline():
    windows = (
        window(None, Purpose.BASELINE, step_time_s=1.0),
        window(1200, Purpose.HOLD, step_time_s=1.0, power_w=80.0, start_s=10.0, changed=True),
        window(None, Purpose.BASELINE, step_time_s=3.0, start_s=20.0),
        window(1200, Purpose.HOLD, step_time_s=3.0, power_w=80.0, start_s=30.0),
    )
    figures = figures_of(windows, gpus=1, slowdown_limit=0.05)
    assert figures.slowdown.value == pytest.approx(0.0)
    assert figures.saving.value == pytest.approx(0.1)


def test_without_a_step_time_there_are_no_figures():
    figures = figures_of((window(None, Purpose.BASELINE, step_time_s=None, error_s=None),), gpus=1, slowdown_limit=0.05)
    assert figures.held_saving is None
    assert figures.confidence is None
    assert figures.break_even_s is None
    assert figures_of((), gpus=1, slowdown_limit=None).saving is None


TIMED = window(None, Purpose.BASELINE)
UNKNOWN = {"step_time_s": None, "error_s": None}


@pytest.mark.parametrize(
    "windows",
    [
        (TIMED,),
        (TIMED, window(None, Purpose.HOLD, **UNKNOWN)),
        (TIMED, window(1200, Purpose.HOLD, **UNKNOWN)),
        (window(None, Purpose.BASELINE, **UNKNOWN), window(1200, Purpose.HOLD, step_time_s=1.03)),
        # A period is not compared with steps.
        (replace(TIMED, source="period"), window(1200, Purpose.HOLD, step_time_s=1.03, source="steps")),
    ],
)
def test_nothing_is_claimed_without_a_comparison(windows):
    figures = figures_of(windows, gpus=1, slowdown_limit=0.05)
    assert figures.saving is figures.slowdown is figures.confidence is None
    assert figures.held_saving is figures.held_slowdown is None
    assert figures.search_extra_j is figures.break_even_s is None
    assert figures.compared_saving is figures.compared_slowdown is None


@pytest.mark.parametrize("last_s", [3.6, 30.0])
def test_the_part_that_was_compared_has_figures_of_its_own(last_s):
    last = replace(window(900, Purpose.HOLD, time_s=last_s, **UNKNOWN), sm_mhz=900.0)
    known = (
        replace(window(None, Purpose.BASELINE, time_s=44.0), sm_mhz=1500.0),
        window(1200, Purpose.HOLD, step_time_s=1.03, power_w=90.0, time_s=31.0),
    )
    figures, alone = (figures_of(some, gpus=1, slowdown_limit=0.05) for some in ((*known, last), known))
    assert (figures.compared_saving, figures.compared_slowdown) == (alone.saving, alone.slowdown)
    assert figures.compared_s == 75.0
    assert figures.compared_share == pytest.approx(75.0 / (75.0 + last_s))
    assert figures.held_saving is figures.held_slowdown is None, "what was held last was never measured"
    assert (figures.slowdown is None) is (last_s > 5.0), "more than 5 % of the run was not compared"


def test_a_rest_that_was_not_compared_counts_with_its_bound():
    last = replace(window(900, Purpose.HOLD, time_s=10.0, **UNKNOWN), sm_mhz=900.0)
    known = (
        replace(window(None, Purpose.BASELINE), sm_mhz=1500.0),
        window(1200, Purpose.HOLD, step_time_s=1.0, time_s=280.0),
    )
    figures = figures_of((*known, last), gpus=1, slowdown_limit=0.05).slowdown
    least, most = (300.0 / (290.0 + 10.0 * rate) - 1.0 for rate in (1.0, 900 / 1500))
    assert figures.value - figures.error <= least
    assert figures.value + figures.error >= most - 1e-4
    assert figures.error < 0.02


def test_a_setting_has_the_same_error_in_the_table_as_while_it_was_held():
    """Windows of an hour leave the error of the counter itself, by which two powers compare."""
    exact = {"cost": Measurement(3600.0, 3.6e5, None, 1.0), "error_s": 1e-5}
    windows = (window(None, Purpose.BASELINE, **exact), window(1200, Purpose.HOLD, start_s=3600.0, **exact))
    (phase,) = phase_summaries(windows)
    held = figures_of(windows, gpus=1, slowdown_limit=None).held_saving
    assert phase.saving(phase.points[1]).error == pytest.approx(held.error, rel=0.05)
    assert held.error > COUNTER_ERROR


def test_settings_held_by_turns_are_judged_together():
    windows = [
        window(None, Purpose.BASELINE),
        *(
            window(mhz, Purpose.HOLD, step_time_s=step_time_s, time_s=time_s, start_s=10.0 + 200.0 * place)
            for place, (mhz, step_time_s, time_s) in enumerate([(1200, 1.08, 108.0), (1350, 1.02, 102.0)] * 2)
        ),
    ]
    figures = figures_of(tuple(windows), gpus=1, slowdown_limit=0.05)
    assert figures.held_slowdown.value == pytest.approx(0.05)


def test_trials_for_the_history_are_of_the_last_phase():
    windows = (
        window(900, Purpose.TRIAL, changed=True),
        window(1200, Purpose.TRIAL, step_time_s=1.0, time_s=10.0),
        window(1200, Purpose.HOLD, step_time_s=1.2, time_s=30.0),
        window(1000, Purpose.TRIAL, held=False),
    )
    (trial,) = trials_of(windows)
    assert trial.choice == Setting(1200)
    assert trial.cost.time_s == pytest.approx(1.15)


# fingerprints


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("python3 train.py --batch 32 --seed 1", "/usr/bin/python3.11 train.py --batch 32 --seed 2", True),
        ("python train.py --batch 32", "python train.py --batch 64", False),
        ("python train.py --out-dir=/a/b", "python train.py --out-dir=/c", True),
        ("python /home/a/train.py", "python /home/b/train.py", True),
        ("python train.py 2026-11-16T01:02", "python train.py 2026-11-17T09:00", True),
        ("python train.py --model gpt2", "python train.py --model bert", False),
        ("sh -c 'a b' --name x", "sh -c 'a b' --name y", True),
        ("it's odd", "it's odd", True),
        *(
            (f"train {option} 1", f"train {option} 2", False)
            for option in (
                "--hidden",
                "--dropout",
                "--stage",
                "--truncate",
                "--video-size",
                "--lora-rank",
                "--model-name",
            )
        ),
        *(
            (f"train {option} a", f"train {option} b", True)
            for option in ("--run_id", "--logdir", "--outputDir", "--exp-name", "--master_addr", "--WANDB", "--jobid")
        ),
    ],
)
def test_fingerprints(one, other, same):
    assert (fingerprint(one) == fingerprint(other)) is same


@given(st.text(max_size=60))
def test_any_command_line_has_a_fingerprint(text):
    assert isinstance(fingerprint(text), str)


# policies


def test_every_policy_gives_an_order():
    for name in POLICIES:
        policy = policy_named(name, LeastEnergy(0.05))
        order = policy.step((), GEFORCE)
        assert policy.name == name
        assert order.most_s >= order.least_s > 0


def test_published_policies_need_a_slowdown_limit():
    with pytest.raises(InputError, match="slowdown"):
        policy_named("gpoeo", EnergyDelay(1.0))
    with pytest.raises(InputError, match="no policy"):
        policy_named("best", LeastEnergy(0.05))
    assert slowdown_limit_of(EnergyDelay(1.0)) is None


@pytest.mark.parametrize("name", POLICIES)
def test_a_deadline_is_refused_since_the_length_of_the_work_is_unknown(name):
    with pytest.raises(InputError, match="deadline") as raised:
        policy_named(name, Deadline(3600.0))
    assert "--max-slowdown" in raised.value.hint


# what a program does


def test_use_of_the_gpu_by_processes():
    mine, other = os.getpid(), 1
    assert use_of(frozenset({mine}), None) is Condition.WORKING
    assert use_of(frozenset({mine}), (frozenset(),)) is Condition.UNUSED
    assert use_of(frozenset({mine}), (frozenset({mine}),)) is Condition.WORKING
    assert use_of(frozenset({mine}), (frozenset({mine, other}),)) is Condition.SHARED
    assert use_of(frozenset({mine}), (frozenset({other}),)) is Condition.UNUSED
    assert use_of(frozenset({mine}), (frozenset({mine}), frozenset({other}))) is Condition.WORKING
    assert use_of(frozenset({mine}), (frozenset({4_190_000}),)) is Condition.WORKING  # no number of this machine
    # In a container a number of the host may be that of another process here.
    assert use_of(frozenset({mine}), (frozenset({other}),), numbered="unknown") is Condition.WORKING
    assert use_of(frozenset({mine}), (frozenset(),), numbered="unknown") is Condition.UNUSED
    assert use_of(frozenset({mine}), (frozenset({mine, other}),), numbered="unknown") is Condition.SHARED


def test_a_container_is_a_namespace_of_its_own(tmp_path):
    real, emulated = (
        SimpleNamespace(spec=SimpleNamespace(simulated=False)),
        SimpleNamespace(spec=SimpleNamespace(simulated=True)),
    )
    (tmp_path / "host").symlink_to("pid:[4026531836]")
    (tmp_path / "container").symlink_to("pid:[4026532573]")
    assert numbering_of([real], namespace=tmp_path / "host") == "here"
    assert numbering_of([real], namespace=tmp_path / "container") == "unknown"
    assert numbering_of([emulated], namespace=tmp_path / "container") == "here"
    assert numbering_of([real], namespace=tmp_path / "nothing") == "here"


def test_a_process_that_does_not_exist():
    watch = ProcessWatch(lambda: None)
    assert watch.condition() is Condition.UNUSED
    assert ProcessWatch(lambda: None, pid=os.getpid()).condition() is Condition.WORKING
    with pytest.raises(InputError, match="there is no process 4190000"), HeldProcess.open(4_190_000):
        pass


@pytest.mark.parametrize("descriptors", [True, False])
def test_a_held_process_is_not_mistaken_for_the_next_with_its_id(monkeypatch, descriptors):
    if not descriptors:
        monkeypatch.delattr(os, "pidfd_open")
    with subprocess.Popen(["sleep", "1000"]) as program, HeldProcess.open(program.pid) as held:
        watch = ProcessWatch(lambda: None, process=held)
        assert held.runs
        assert watch.condition() is Condition.WORKING
        program.kill()
        while not held.wait(0.01):
            pass
        monkeypatch.setattr(held_process, "status_of", lambda _pid: "running")  # another process has its id
        assert not held.runs or not descriptors
        program.wait()
        assert not held.runs
        assert watch.condition() is Condition.UNUSED


def test_processes_are_searched_when_a_new_one_uses_the_gpu(monkeypatch):
    searched, users = [], [frozenset({os.getpid()})]
    monkeypatch.setattr(run_program, "descendants", lambda pid: searched.append(pid) or frozenset({pid}))
    watch = ProcessWatch(lambda: tuple(users), pid=os.getpid())
    for _ in range(10):
        assert watch.condition() is Condition.WORKING
    assert len(searched) == 1
    users[0] = frozenset({os.getpid(), 1})
    for _ in range(5):
        assert watch.condition() is Condition.SHARED
    assert len(searched) == 2
    for _ in range(2 * run_program.SEARCH_EVERY):
        watch.condition()
    assert len(searched) == 4


def test_a_program_is_stopped_when_all_its_processes_on_the_gpu_are(monkeypatch):
    mine, worker = os.getpid(), os.getppid()
    monkeypatch.setattr(run_program, "descendants", lambda pid: frozenset({pid, worker}))
    stopped = {worker}
    monkeypatch.setattr(held_process, "status_of", lambda pid: "stopped" if pid in stopped else "running")
    watch = ProcessWatch(lambda: (frozenset({worker}),), pid=mine)
    assert watch.condition() is Condition.STOPPED
    stopped.clear()
    assert watch.condition() is Condition.WORKING
    assert ProcessWatch(lambda: (frozenset(),), pid=mine).condition() is Condition.UNUSED


# pauses


def test_a_pause_does_not_count_in_a_window():
    tally = Tally(Reading(time_s=0.0, energy_j=0.0, power_w=300.0, sm_util=1.0))
    joules = 0.0
    for place in range(1, 301):
        busy = not 100 < place <= 200
        joules += 30.0 if busy else 5.0
        power_w, util = (300.0, 0.8) if busy else (50.0, 0.0)
        reading = Reading(time_s=0.1 * place, energy_j=joules, power_w=power_w, sm_util=util, sm_mhz=1200)
        tally = tally.add(reading, Setting(1200))
    assert tally.cost.time_s == pytest.approx(20.0, abs=0.3)
    assert tally.cost.power_w == pytest.approx(300.0, rel=0.02)
    assert tally.sm_utils.mean == pytest.approx(0.8, abs=0.01)


def test_the_energy_of_a_window_is_as_uncertain_as_its_power_varies():
    def error(swing_w):
        tally, joules = Tally(Reading(time_s=0.0, energy_j=0.0, power_w=300.0)), 0.0
        for place in range(1, 201):
            power_w = 300.0 + swing_w * (-1) ** (place // 35)
            joules += 0.1 * power_w
            tally = tally.add(Reading(time_s=0.1 * place, energy_j=joules, power_w=power_w), Setting())
        return tally.cost.energy_error_j / tally.cost.energy_j

    assert error(0.0) < 0.003
    assert error(0.0) < error(3.0) < error(30.0)


def test_a_clock_that_is_read_while_nothing_runs_does_not_count():
    tally = Tally(Reading(time_s=0.0))
    for place, throttle in enumerate((Throttle.IDLE, Throttle.POWER_CAP, Throttle.IDLE | Throttle.LOCKED), 1):
        mhz = 1305 if throttle is Throttle.POWER_CAP else 1410
        tally = tally.add(Reading(time_s=float(place), sm_mhz=mhz, throttle=throttle), Setting())
    assert tally.sm_mhz.mean == 1305
