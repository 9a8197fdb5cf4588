"""The closed forms against a GPU stepped through time, which must settle in them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from stepped_gpu import STALLED, Command, Machine, play, steps_down
from wattune.core.gpu_spec import Switching
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.operating_point import loaded_point
from wattune.workloads.catalog import make_workload

A100 = load_model("a100")
GEMM = Workload(name="gemm", phases=(Phase(name="multiply", flops=1e13, pipe=Pipe.FP16),))
LIGHT = Workload(name="light", phases=(Phase(name="multiply", flops=1e12, pipe=Pipe.FP16, host_stall_s=0.05),))


def quick(machine: Machine, setting: Setting):
    return loaded_point(machine.model, setting, tuple(table.limited_power_w for table in machine.tables))


@pytest.mark.parametrize("gpu", ["a100", "v100", "a40", "h100", "rtx2000ada-laptop"])
def test_a_steady_load_settles_at_the_operating_point(gpu: str) -> None:
    model = load_model(gpu)
    machine = Machine.of(model, GEMM)
    point = quick(machine, Setting())
    settled = play(machine, 300.0)
    late = settled.start_s[:-1] > 200
    assert abs(settled.sm_mhz[late].mean() - point.sm_mhz) <= 15
    assert settled.after(200.0) <= model.default_limit_w * 1.01
    assert settled.after(200.0) == pytest.approx(machine.tables[0].mean_power_w[point.column], rel=0.03)
    assert Throttle.POWER_CAP in settled.throttle[-1]


@pytest.mark.parametrize("gpu", ["a100", "v100", "a40", "3080ti"])
@pytest.mark.parametrize("share", [0.6, 1.0])
def test_training_settles_close_to_the_quick_rule(gpu: str, share: float) -> None:
    """Phases make the clock follow them a little, so it loses some watts and hardly any speed."""
    model = load_model(gpu)
    machine = Machine.of(model, make_workload("resnet50"))
    setting = Setting(power_limit_w=share * model.default_limit_w)
    point = quick(machine, setting)
    settled = play(machine, 240.0, commands=(Command(0.0, setting),))
    expected = 240.0 / machine.tables[0].iteration_s[point.column]
    print(f"{gpu} {setting}: quick {expected:.0f} iterations, stepped {settled.iterations:.0f}")
    assert settled.iterations == pytest.approx(expected, rel=0.05)
    assert settled.after(120.0) == pytest.approx(machine.tables[0].mean_power_w[point.column], rel=0.05)


def test_a_start_at_full_clock_overshoots_until_the_average_follows() -> None:
    started = play(Machine.of(A100, GEMM), 5.0)
    above = started.start_s[:-1][started.power_w > 420]
    assert started.sm_mhz[0] == 1410
    assert started.power_w.max() > 450
    assert above.max() < 1.0
    settled_w = started.power_w[started.start_s[:-1] > 2]
    assert settled_w.max() < 420  # an A100 under its limit of 400 W was seen at up to 417 W


def test_without_a_limit_that_bites_it_is_the_table() -> None:
    machine = Machine.of(A100, LIGHT)
    warm_c = A100.thermal.steady_c(float(machine.tables[0].mean_power_w[-1]))
    played = play(replace(machine, start_c=warm_c), 60.0)
    assert played.iterations == pytest.approx(60.0 / machine.tables[0].iteration_s[-1])
    # Heat comes and goes a little within an iteration of the table.
    assert played.after(0.0) == pytest.approx(machine.tables[0].mean_power_w[-1], rel=5e-4)
    assert set(played.throttle) == {Throttle.NONE}


def test_a_cold_gpu_draws_less_and_warms_up() -> None:
    """Measured on an A100: 0.2 % more energy for each kelvin, and seconds to minutes until it settles."""
    load = Workload(name="light", phases=(Phase(name="multiply", flops=1e13, pipe=Pipe.FP32),))
    machine = Machine.of(A100, load)
    played = play(machine, 300.0, commands=(Command(0.0, Setting(sm_mhz=1200)),))
    early_w, late_w = played.power_w[2], played.power_w[-2]
    warmer_k = played.temperature_c[-1] - played.temperature_c[0]
    assert 0.001 < (late_w / early_w - 1) / warmer_k < 0.0035
    column = A100.clocks[0].sm_mhz.index(1200)
    assert late_w == pytest.approx(machine.tables[0].mean_power_w[column], rel=1e-3)
    assert played.temperature_c[-1] == pytest.approx(A100.thermal.steady_c(late_w), abs=0.1)


def test_a_gpu_that_gets_too_hot_slows_down_and_reports_it() -> None:
    model = replace(A100, thermal=replace(A100.thermal, ambient_c=55.0))
    machine = Machine.of(model, GEMM)
    played = play(machine, 600.0)
    point = quick(machine, Setting())
    assert point.throttle == Throttle.THERMAL
    assert played.throttle[-1] == Throttle.THERMAL
    assert played.temperature_c.max() < 85 + 2
    assert abs(played.sm_mhz[played.start_s[:-1] > 300].mean() - point.sm_mhz) < 60


def test_a_lock_takes_its_time_and_stalls() -> None:
    machine = replace(Machine.of(load_model("a4000"), LIGHT), switching=Switching(0.08, 0.1), seed=3)
    commands = (Command(1.0, Setting(sm_mhz=900)), Command(2.0, Setting(sm_mhz=900, mem_mhz=5001)))
    played = play(machine, 4.0, commands=commands)
    core_s = played.start_s[np.flatnonzero(played.sm_mhz == 900)[0]]
    memory_s = played.start_s[np.flatnonzero(played.mem_mhz == 5001)[0]]
    assert 1.01 < core_s < 1.6
    assert 2.01 < memory_s < 2.9
    stalls = np.diff(played.start_s)[played.lane == STALLED]
    assert stalls == pytest.approx([0.0001, 0.010])
    assert Throttle.LOCKED in played.throttle[-1]


def test_the_ideal_gpu_changes_at_once() -> None:
    played = play(Machine.of(A100, LIGHT), 2.0, commands=(Command(1.0, Setting(sm_mhz=900)),))
    assert played.start_s[np.flatnonzero(played.sm_mhz == 900)[0]] == pytest.approx(1.0)
    assert STALLED not in played.lane


def test_the_same_seed_makes_the_same_run() -> None:
    machine = replace(Machine.of(A100, LIGHT), switching=A100.switching)
    commands = tuple(Command(float(at), Setting(sm_mhz=mhz)) for at, mhz in ((1, 900), (2, 1200), (3, 600)))

    def times(seed: int) -> list[float]:
        played = play(replace(machine, seed=seed), 5.0, commands=commands)
        return played.start_s[np.flatnonzero(np.diff(played.sm_mhz)) + 1].tolist()

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_energy_between_ticks_adds_up() -> None:
    played = play(Machine.of(A100, make_workload("resnet50")), 3.0)
    assert played.energy_at(played.start_s) == pytest.approx(played.energy_j, rel=1e-9)
    fine = played.energy_at(np.linspace(0.0, 3.0, 30_001))
    assert np.all(np.diff(fine) > 0)
    assert fine[-1] == pytest.approx(played.energy_j[-1])
    assert played.energy_at(np.array([-1.0]))[0] == 0.0
    assert all(later > earlier for earlier, later in pairwise(played.start_s))


def test_the_controller_answers_in_steps() -> None:
    assert steps_down(400.0, 400.0) == 0
    assert steps_down(401.0, 400.0) == 1
    assert steps_down(430.0, 400.0) == 3
