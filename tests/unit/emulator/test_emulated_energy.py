"""Energy against closed forms and against brute force, in virtual time."""

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulated import plain_gpu, plain_load
from wattune.core.gpu_spec import ClockTable
from wattune.core.setting import Setting
from wattune.devices.simulated import SimulatedGpu
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.node import Node, emulated
from wattune.physics.catalog import catalog_names, load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload

MILLIJOULE = 1e-3


def test_an_idle_gpu_draws_idle_power(emulated_node):
    node = emulated_node(plain_gpu())
    node.advance(10)
    assert node.truth_j(0) == pytest.approx(200, abs=MILLIJOULE)


def test_a_known_schedule_to_less_than_a_millijoule(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    expected_j = 0.0
    node.advance(3)
    expected_j += 3 * 20
    node.play(0, plain_load(gpu))  # 0.2 s at 250 W and 0.1 s at 80 W: 58 J in 0.3 s
    node.advance(3.2)
    expected_j += 10 * 58 + 0.2 * 250
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1000, 1000)  # 2/3 of the clock: 1.5 of the time, 2/3 of the power
    node.advance(0.15 + 0.3)
    expected_j += 0.15 * 80 * 2 / 3 + 0.3 * 250 * 2 / 3
    node.idle(0)
    node.advance(2)
    expected_j += 2 * 50
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    node.advance(1)
    expected_j += 60
    node.idle(0, context=False)
    node.advance(1)
    expected_j += 20
    assert node.truth_j(0) == pytest.approx(expected_j, abs=MILLIJOULE)


def test_a_million_iterations_are_as_exact_as_one(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu))
    node.run(0, 1_000_000)
    assert node.truth_j(0) == pytest.approx(58e6, abs=MILLIJOULE)
    assert node.now_s() == pytest.approx(300_000, abs=1e-6)
    assert node.iterations(0) == pytest.approx(1_000_000, abs=1e-7)


def test_a_change_of_clock_goes_on_in_the_middle_of_the_phase(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    node.play(0, plain_load(gpu))
    node.advance(0.1)  # half of the first phase
    before_j = node.truth_j(0)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 500, 500)
    node.advance(0.3)  # the other half, three times as slow
    assert node.truth_j(0) - before_j == pytest.approx(0.3 * 250 / 3, abs=MILLIJOULE)
    assert node.iterations(0) == pytest.approx(2 / 3)
    node.advance(0.3)
    assert node.truth_j(0) - before_j == pytest.approx(0.3 * 250 / 3 + 0.3 * 80 / 3, abs=MILLIJOULE)
    assert node.iterations(0) == pytest.approx(1)


def test_loads_that_follow_one_another_add_up(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    expected_j = 0.0
    for power_w in (100.0, 200.0, 150.0, 250.0):
        node.play(0, plain_load(gpu, duration_s=(0.05, 0.05), power_w=(power_w, power_w)))
        node.run(0, 3)
        expected_j += 0.3 * power_w
    assert node.truth_j(0) == pytest.approx(expected_j, abs=MILLIJOULE)
    assert node.iterations(0) == pytest.approx(12)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["play", "idle", "sleep", "lock 500", "lock 1200", "unlock", "limit 100", "limit 300"]),
            st.floats(0, 3),
        ),
        max_size=20,
    ),
    durations=st.lists(st.floats(0.001, 0.4), min_size=1, max_size=5),
)
def test_random_schedules_agree_with_brute_force(emulated_library, steps, durations):
    gpu = plain_gpu()
    powers = tuple(itertools.islice(itertools.cycle((250.0, 80.0, 290.0)), len(durations)))
    load = plain_load(gpu, duration_s=tuple(durations), power_w=powers)
    with (
        tempfile.TemporaryDirectory() as folder,
        Node.create(Path(folder) / "node", [gpu], library=emulated_library, clock="virtual") as node,
        emulated(node),
    ):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        reference = _BruteForce(load[0])
        for what, seconds in steps:
            _do(node, handle, what, load)
            reference.do(what)
            before_s = node.now_s()
            node.advance(seconds)
            reference.pass_time(node.now_s() - before_s)
            assert node.truth_j(0) == pytest.approx(reference.energy_j, abs=MILLIJOULE)
        pynvml.nvmlShutdown()


def _do(node, handle, what, load):
    match what.split():
        case ["play"]:
            node.play(0, load)
        case ["idle"]:
            node.idle(0)
        case ["sleep"]:
            node.idle(0, context=False)
        case ["lock", mhz]:
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, 500, int(mhz))
        case ["unlock"]:
            pynvml.nvmlDeviceResetGpuLockedClocks(handle)
        case ["limit", watts]:
            pynvml.nvmlDeviceSetPowerManagementLimit(handle, int(watts) * 1000)


class _BruteForce:
    """The plain GPU walked through phase by phase."""

    def __init__(self, table):
        self.table, self.mode, self.lock_mhz, self.limit_w = table, "sleep", 1500, 300.0
        self.phase, self.done, self.energy_j = 0, 0.0, 0.0

    def do(self, what):
        match what.split():
            case ["play"]:
                self.mode, self.phase, self.done = "play", 0, 0.0
            case ["lock", mhz]:
                self.lock_mhz = int(mhz)
            case ["unlock"]:
                self.lock_mhz = 1500
            case ["limit", watts]:
                self.limit_w = float(watts)
            case [mode]:
                self.mode = mode

    def column(self):
        allowed = [n for n, mhz in enumerate(self.table.sm_mhz) if mhz <= self.lock_mhz]
        if self.mode == "play":
            allowed = [n for n in allowed if self.table.mean_power_w[n] <= self.limit_w] or [0]
        return allowed[-1]

    def pass_time(self, seconds):
        column = self.column()
        if self.mode != "play":
            self.energy_j += seconds * (20.0 if self.mode == "sleep" else (40.0, 50.0, 60.0)[column])
            return
        while seconds > 0:
            length_s = self.table.duration_s[self.phase, column]
            step_s = min(seconds, length_s * (1 - self.done))
            self.energy_j += step_s * self.table.power_w[self.phase, column]
            self.done += step_s / length_s
            seconds -= step_s
            if self.done >= 1 - 1e-12:
                self.phase, self.done = (self.phase + 1) % len(self.table.duration_s), 0.0


@pytest.mark.parametrize("name", catalog_names())
@pytest.mark.parametrize("knob", ["nothing", "core clock", "power limit"])
def test_it_is_the_same_gpu_as_the_simulated_one(name, knob, emulated_node):
    model, workload = load_model(name), make_workload("resnet50")
    limits = model.power_limits
    simulated, node = SimulatedGpu(model), emulated_node(name)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    setting = Setting(
        max(mhz for mhz in model.clocks[0].sm_mhz if mhz <= 900) if knob == "core clock" else None,
        power_limit_w=(limits.min_w + limits.max_w) / 2 if knob == "power limit" and limits else None,
    )
    simulated.apply(setting)
    if setting.sm_mhz:
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, setting.sm_mhz, setting.sm_mhz)
    if setting.power_limit_w:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, int(setting.power_limit_w * 1000))
    node.play(0, tabulate(model, workload))
    node.run(0, 100)
    node.idle(0)
    simulated.run(workload, iterations=100)
    assert node.truth_j(0) == pytest.approx(simulated.truth_j, rel=1e-9)
    assert node.now_s() == pytest.approx(simulated.read().time_s, rel=1e-9)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == simulated.read().sm_mhz
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == round(simulated.read().temperature_c)


def test_a_second_memory_clock_has_its_own_table(emulated_node):
    gpu = plain_gpu()
    two = _with_second_memory_clock(gpu)
    node = emulated_node(two)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    fast, slow = plain_load(two)
    node.play(0, (fast, _halved(slow)))
    node.run(0, 2)
    assert node.truth_j(0) == pytest.approx(2 * 58, abs=MILLIJOULE)
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 500, 500)
    before_j = node.truth_j(0)
    node.run(0, 2)
    assert node.truth_j(0) - before_j == pytest.approx(58, abs=MILLIJOULE)


def _with_second_memory_clock(gpu: EmulatedGpu) -> EmulatedGpu:

    clocks = (*gpu.spec.clocks, ClockTable(500, gpu.spec.clocks[0].sm_mhz))
    return replace(gpu, spec=replace(gpu.spec, clocks=clocks), context_idle_w=gpu.context_idle_w * 2)


def _halved(table):

    return replace(table, power_w=np.asarray(table.power_w) / 2)


def test_the_past_is_known_after_clocks_have_changed(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu))
    pynvml.nvmlInit()
    handle, seen = pynvml.nvmlDeviceGetHandleByIndex(0), []
    for sm_mhz in (1500, 500, 1000):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, sm_mhz, sm_mhz)
        for _ in range(3):
            node.advance(0.123)
            seen.append((node.now_s(), node.truth_j(0), node.iterations(0), sm_mhz))
    for time_s, energy_j, iterations, _ in seen:
        moment = node.at(0, time_s)
        assert (moment.energy_j, moment.iterations) == (pytest.approx(energy_j), pytest.approx(iterations))
    assert [node.at(0, time_s - 1e-6).sm_mhz for time_s, *_ in seen] == [sm_mhz for *_, sm_mhz in seen]
