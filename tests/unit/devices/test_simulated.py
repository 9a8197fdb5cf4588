from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby, pairwise
from threading import Thread

import numpy as np
import pytest

from wattune.core.errors import InputError, NotSupported, SettingRefused
from wattune.core.gpu_spec import Sensors, Switching
from wattune.core.measurement import Measurement
from wattune.core.reading import Throttle
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.devices.passing_time import VirtualTime, WallTime
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import ClockChange, SwitchingPhysics
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

A100 = load_model("a100")
RESNET = make_workload("resnet50")
GEMM = Workload(name="gemm", phases=(Phase(name="multiply", flops=1e13, pipe=Pipe.FP16),))


# A job that is far below every limit, as most of the light ones are.
LIGHT = Workload(name="light", phases=(Phase(name="copy", dram_bytes=2e10, host_stall_s=0.01),))


def held(workload: Workload) -> int:
    """The place of the clock that the default limit of an A100 lets a workload have."""
    return int(np.flatnonzero(tabulate(A100, workload)[0].mean_power_w <= 400)[-1])


class TickingTime:
    """A clock that advances a little whenever it is read, like wall time."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        self._now_s += 1e-4
        return self._now_s

    def wait(self, seconds: float) -> None:
        self._now_s += seconds


def test_a_run_costs_what_the_model_predicts() -> None:
    gpu = SimulatedGpu(A100)
    table, place = tabulate(A100, RESNET)[0], held(RESNET)
    before_j = gpu.truth_j
    gpu.run(RESNET, iterations=1000)
    assert gpu.read().time_s == pytest.approx(1000 * table.iteration_s[place])
    assert gpu.truth_j - before_j == pytest.approx(1000 * table.iteration_j[place])


def test_the_counter_misses_at_most_one_refresh() -> None:
    gpu = SimulatedGpu(A100)
    before = gpu.count()
    gpu.run(RESNET, iterations=100)
    cost = Measurement.between(before, gpu.count())
    assert 0 <= gpu.truth_j - cost.energy_j <= 0.1 * 400


def test_the_counter_stands_still_between_refreshes() -> None:
    gpu = SimulatedGpu(A100)
    gpu.run(RESNET, iterations=1)
    counts = []
    for _ in range(100):
        gpu.idle(0.01)
        counts.append(gpu.count().energy_j)
    moves = sum(after > before for before, after in pairwise(counts))
    assert moves in (9, 10)


def test_the_counter_never_falls_where_clocks_change_at_a_refresh() -> None:
    for seed in range(20, 29):  # some of these fell by a rounding error
        rng = random.Random(seed)
        gpu = SimulatedGpu(load_model("v100"), seed=seed)
        gpu.play(make_workload("resnet50:256"))
        before_j = 0.0
        for _ in range(800):
            gpu.wait(rng.choice([0.0, 0.001, 0.02, 0.1]))
            if rng.random() < 0.1:
                gpu.apply(Setting(sm_mhz=rng.choice(gpu.spec.sm_clocks_mhz)))
            energy_j = gpu.read().energy_j
            assert energy_j is not None
            assert energy_j >= before_j
            before_j = energy_j


def test_power_is_the_same_until_the_next_refresh_and_averaged_over_its_window() -> None:
    time = VirtualTime()
    gpu = SimulatedGpu(replace(A100, noise_w=0.0), time=time)
    gpu.idle(10.0)
    assert gpu.read().power_w == pytest.approx(50.0)
    gpu.play(GEMM)
    gpu.apply(Setting(sm_mhz=1005))
    expected_w = tabulate(A100, GEMM)[0].mean_power_w[A100.clocks[0].sm_mhz.index(1005)]
    time.wait(0.1)  # the window of 25 ms lies in the load
    assert gpu.read().power_w == pytest.approx(expected_w, abs=0.1)
    time.wait(0.09)
    assert gpu.read().power_w == pytest.approx(expected_w, abs=0.1)


def test_noise_belongs_to_the_refresh_and_to_the_seed() -> None:
    def powers(seed: int) -> list[float | None]:
        gpu = SimulatedGpu(A100, seed=seed)
        readings = []
        for _ in range(20):
            gpu.run(GEMM, iterations=4)
            readings += [gpu.read().power_w, gpu.read().power_w]
        return readings

    first = powers(1)
    assert first == powers(1)
    assert first != powers(2)
    assert first[0::2] == first[1::2]


def test_a_lock_lowers_the_clock_and_is_reported() -> None:
    gpu = SimulatedGpu(A100)
    gpu.play(LIGHT)
    assert gpu.read().throttle == Throttle.NONE
    gpu.apply(Setting(sm_mhz=1005))
    reading = gpu.read()
    assert (reading.sm_mhz, reading.throttle) == (1005, Throttle.LOCKED)


def test_a_power_limit_holds_the_highest_clock_that_it_allows() -> None:
    gpu = SimulatedGpu(A100)
    mean_w = tabulate(A100, RESNET)[0].mean_power_w
    gpu.apply(Setting(power_limit_w=250.0))
    gpu.play(RESNET)
    reading = gpu.read()
    expected = int(np.flatnonzero(mean_w <= 250.0)[-1])
    assert reading.sm_mhz == A100.clocks[0].sm_mhz[expected]
    assert reading.throttle == Throttle.POWER_CAP
    assert reading.power_limit_w == 250.0


def test_a_gemm_runs_into_the_default_limit() -> None:
    gpu = SimulatedGpu(A100)
    gpu.play(GEMM)
    reading = gpu.read()
    assert reading.throttle == Throttle.POWER_CAP
    assert reading.sm_mhz is not None
    assert 1100 < reading.sm_mhz < 1300


def test_idle_has_two_levels() -> None:
    gpu = SimulatedGpu(replace(A100, noise_w=0.0))
    gpu.idle(5.0)
    resting = gpu.read()
    gpu.run(RESNET, iterations=1)
    gpu.idle(5.0)
    held = gpu.read()
    gpu.apply(Setting(sm_mhz=510))
    gpu.idle(5.0)
    held_low = gpu.read()
    gpu.release()
    gpu.idle(5.0)
    assert (resting.power_w, resting.sm_mhz) == (pytest.approx(50.0), 210)
    assert (held.power_w, held.sm_mhz) == (pytest.approx(97, abs=2), 1410)
    assert (held_low.power_w, held_low.sm_mhz) == (pytest.approx(62, abs=3), 510)
    assert gpu.read().power_w == pytest.approx(50.0)
    for reading in (resting, held, held_low):
        assert reading.throttle is not None
        assert Throttle.IDLE in reading.throttle


def test_memory_clocks_can_be_locked_if_the_gpu_has_several() -> None:
    gpu = SimulatedGpu(load_model("3080ti"))
    gpu.apply(Setting(mem_mhz=5001))
    gpu.play(RESNET)
    assert gpu.read().mem_mhz == 5001
    gpu.apply(Setting(sm_mhz=420, mem_mhz=405))
    assert (gpu.read().sm_mhz, gpu.read().mem_mhz) == (420, 405)
    with pytest.raises(SettingRefused):
        gpu.apply(Setting(sm_mhz=1005, mem_mhz=405))


def test_it_warms_up_and_cools_down() -> None:
    gpu = SimulatedGpu(A100)
    start_c = gpu.read().temperature_c
    gpu.run(RESNET, iterations=5000)
    hot_c = gpu.read().temperature_c
    gpu.release()
    gpu.idle(600.0)
    assert start_c == pytest.approx(35.0)
    assert hot_c == pytest.approx(30 + 0.1 * tabulate(A100, RESNET)[0].mean_power_w[held(RESNET)], abs=0.1)
    assert gpu.read().temperature_c == pytest.approx(35.0, abs=0.01)


def test_utilisation_covers_the_last_interval() -> None:
    gpu = SimulatedGpu(A100)
    gpu.run(RESNET, iterations=20)
    busy = gpu.read()
    gpu.idle(1.0)
    idle = gpu.read()
    assert busy.sm_util is not None
    assert busy.sm_util > 0.9
    assert (idle.sm_util, idle.mem_util) == (0.0, 0.0)


def test_a_million_iterations_are_exact() -> None:
    gpu = SimulatedGpu(A100)
    gpu.run(RESNET, iterations=1_000_000)
    table = tabulate(A100, RESNET)[0]
    assert gpu.truth_j == pytest.approx(1e6 * table.iteration_j[held(RESNET)], rel=1e-12)


def test_restore_resets_every_knob() -> None:
    gpu = SimulatedGpu(A100)
    gpu.apply(Setting(sm_mhz=1005, power_limit_w=200.0))
    gpu.restore()
    assert gpu.setting == DRIVER_DEFAULT
    gpu.play(LIGHT)
    assert (gpu.read().sm_mhz, gpu.read().power_limit_w) == (1410, 400.0)


def test_a_continuous_sensor_reports_present_power() -> None:
    gpu = SimulatedGpu(replace(A100, sensors=Sensors(), noise_w=0.0))
    gpu.run(RESNET, iterations=3)
    assert gpu.count().energy_j == pytest.approx(gpu.truth_j)
    assert gpu.read().power_w is not None


def test_unknown_settings_are_refused() -> None:
    gpu = SimulatedGpu(load_model("v100"))
    with pytest.raises(NotSupported):
        SimulatedGpu(replace(load_model("a4000"), can_lock_mem=False)).apply(Setting(mem_mhz=5001))
    with pytest.raises(SettingRefused, match="no core clock of 1000 MHz"):
        gpu.apply(Setting(sm_mhz=1000))
    with pytest.raises(InputError, match="above 0"):
        gpu.run(RESNET, iterations=0)
    with pytest.raises(InputError, match="not negative"):
        gpu.idle(-1.0)


def test_a_load_plays_while_time_passes() -> None:
    gpu = SimulatedGpu(A100, time=TickingTime())
    gpu.play(RESNET)
    energies = [gpu.truth_j for _ in range(50)]
    assert all(after > before for before, after in pairwise(energies))


def test_a_run_on_a_ticking_clock_ends_after_its_iterations() -> None:
    gpu = SimulatedGpu(A100, time=TickingTime())
    table = tabulate(A100, RESNET)[0]
    gpu.run(RESNET, iterations=10)
    assert gpu.read().time_s >= 10 * table.iteration_s[-1]


def test_wall_time_passes_by_itself() -> None:
    gpu = SimulatedGpu(A100, time=WallTime())
    short = Workload(name="short", phases=(Phase(name="wait", host_stall_s=0.001),))
    gpu.run(short, iterations=2)
    assert gpu.read().time_s >= 0.002


def test_it_can_be_read_while_another_thread_sets_it() -> None:
    gpu = SimulatedGpu(A100, time=WallTime())
    gpu.play(RESNET)
    clocks = A100.clocks[0].sm_mhz

    def change() -> None:
        for step in range(300):
            gpu.apply(Setting(sm_mhz=clocks[step % len(clocks)]))

    thread = Thread(target=change)
    thread.start()
    readings = [gpu.read() for _ in range(300)]
    thread.join()
    for before, after in pairwise(readings):
        assert after.time_s >= before.time_s
        assert before.energy_j is not None
        assert after.energy_j is not None
        assert after.energy_j >= before.energy_j - 1e-9


def test_a_clock_takes_its_switching_time() -> None:
    time = VirtualTime()
    gpu = SimulatedGpu(A100, time=time, seed=2, switching=Switching(0.05, None))
    gpu.play(LIGHT)
    time.wait(1.0)
    gpu.apply(Setting(sm_mhz=1005))
    assert (gpu.read().sm_mhz, gpu.setting.sm_mhz) == (1410, 1005)
    before_j = gpu.truth_j
    time.wait(0.5)
    assert gpu.read().sm_mhz == 1005
    assert gpu.truth_j > before_j


def test_a_run_over_a_change_of_clock_does_its_iterations() -> None:
    gpu = SimulatedGpu(A100, seed=2, switching=A100.switching)
    ideal = SimulatedGpu(A100, seed=2)
    for each in (gpu, ideal):
        each.play(LIGHT)
        each.apply(Setting(sm_mhz=1005))
        each.run(RESNET, iterations=50)
    at_1005 = A100.clocks[0].sm_mhz.index(1005)
    slow_s = 50 * tabulate(A100, RESNET)[0].iteration_s[at_1005]
    assert ideal.read().time_s == pytest.approx(slow_s)
    # The old, higher clock held for some milliseconds; the change itself cost a tenth of one.
    assert slow_s - 0.1 < gpu.read().time_s < slow_s
    assert gpu.read().sm_mhz == 1005


def test_a_stall_does_no_work_and_costs_energy() -> None:
    model = replace(A100, change=SwitchingPhysics(ClockChange(0.5, 0.0), ClockChange(0.0, 0.0)))
    gpu = SimulatedGpu(model, switching=Switching(0.1, None))
    gpu.apply(Setting(sm_mhz=1005))
    gpu.run(GEMM, iterations=20)
    tables = tabulate(model, GEMM)[0]
    fast_s, slow_s = tables.iteration_s[held(GEMM)], tables.iteration_s[model.clocks[0].sm_mhz.index(1005)]
    assert gpu.read().time_s == pytest.approx(0.1 + 0.5 + (20 - 0.1 / fast_s) * slow_s)


def test_a_setting_during_a_pending_change_joins_it() -> None:
    time = VirtualTime()
    gpu = SimulatedGpu(A100, time=time, seed=1, switching=Switching(0.2, None))
    gpu.play(LIGHT)
    clocks_mhz = []
    for sm_mhz in (600, 900, 1200):
        gpu.apply(Setting(sm_mhz=sm_mhz))
        time.wait(0.001)
        clocks_mhz.append(gpu.read().sm_mhz)
    for _ in range(2000):
        time.wait(0.001)
        clocks_mhz.append(gpu.read().sm_mhz)
    assert [mhz for mhz, _ in groupby(clocks_mhz)] == [1410, 1200]
    gpu.apply(Setting(sm_mhz=600))
    gpu.apply(Setting(sm_mhz=1200))  # what holds already needs no change
    time.wait(2.0)
    assert gpu.read().sm_mhz == 1200


def test_a_part_time_counter_misses_energy_outside_its_window() -> None:
    square = Workload(
        name="square", phases=(Phase(name="busy", dram_bytes=1368.4e9 * 0.05), Phase(name="wait", host_stall_s=0.05))
    )
    whole, part = SimulatedGpu(A100), SimulatedGpu(replace(A100, counter_window_s=0.025))
    for gpu in (whole, part):
        gpu.run(square, iterations=200)
    assert whole.truth_j == pytest.approx(part.truth_j)
    assert part.count().energy_j < 0.9 * whole.count().energy_j
    assert part.read().energy_j == part.count().energy_j


def test_a_gpu_without_a_counter_integrates_power_readings() -> None:
    gpu = SimulatedGpu(load_model("p100"))
    gpu.run(RESNET, iterations=20)
    assert gpu.refresh is not None
    assert gpu.refresh.period_s == 0.02
    assert 0 <= gpu.truth_j - gpu.count().energy_j <= 0.02 * 250


def test_a_laptop_keeps_its_makers_limit() -> None:
    gpu = SimulatedGpu(load_model("rtx2000ada-laptop"))
    gpu.play(GEMM)
    reading = gpu.read()
    assert (reading.power_limit_w, reading.throttle) == (95.0, Throttle.POWER_CAP)
    with pytest.raises(NotSupported):
        gpu.apply(Setting(power_limit_w=80.0))


def test_a_gpu_in_a_hot_room_slows_down() -> None:
    hot = replace(A100, thermal=replace(A100.thermal, ambient_c=60.0))
    gpu = SimulatedGpu(hot)
    gpu.play(GEMM)
    assert gpu.read().throttle == Throttle.THERMAL


def test_an_offset_changes_power_and_energy() -> None:
    gpu = SimulatedGpu(replace(A100, offset_w=5.0, noise_w=0.0))
    gpu.idle(10.0)
    assert gpu.read().power_w == pytest.approx(55.0)
    assert gpu.count().energy_j == pytest.approx(550.0)
