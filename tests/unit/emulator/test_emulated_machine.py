"""Heat, offsets, clocks that take a while and parts that lack something: alike in the library and in the simulation."""

from dataclasses import replace

import numpy as np
import pynvml
import pytest

from emulated import plain_gpu, plain_load
from wattune.core.gpu_spec import Switching
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.physics.catalog import load_model
from wattune.physics.gpu_parts import ClockChange, SwitchingPhysics
from wattune.physics.spend import tabulate

A100 = load_model("a100")
GEMM = Workload(name="gemm", phases=(Phase(name="multiply", flops=1e13, pipe=Pipe.FP16),))


def opened():
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def test_a_hot_room_slows_both_down_alike(emulated_node):
    hot = replace(A100, thermal=replace(A100.thermal, ambient_c=60.0))
    node, simulated = emulated_node(EmulatedGpu.of(hot)), SimulatedGpu(hot)
    handle = opened()
    node.play(0, tabulate(hot, GEMM))
    simulated.play(GEMM)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == simulated.read().sm_mhz
    reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    assert reasons == pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
    threshold = pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX
    assert pynvml.nvmlDeviceGetTemperatureThreshold(handle, threshold) == 85


def test_a_clock_takes_over_when_its_time_has_come(emulated_node):
    model = replace(A100, change=SwitchingPhysics(ClockChange(0.0, 0.0), ClockChange(0.0, 0.0)))
    slow = Switching(0.3, None)
    gpu = replace(EmulatedGpu.of(model), switching=slow)
    assert gpu.wait_spread == 0
    time = VirtualTime()
    node, simulated = emulated_node(gpu), SimulatedGpu(model, time=time, switching=slow)
    handle = opened()
    node.play(0, tabulate(model, GEMM))
    simulated.play(GEMM)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 600, 600)
    simulated.apply(Setting(sm_mhz=600))
    for wait_s in (0.2, 0.05, 0.2, 3.0):
        node.advance(wait_s)
        time.wait(wait_s)
        assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == simulated.read().sm_mhz
        assert node.truth_j(0) == pytest.approx(simulated.truth_j, rel=1e-9)
    assert simulated.read().sm_mhz == 600


def test_a_run_goes_on_over_a_change_of_clock(emulated_node):
    gpu = replace(plain_gpu(), switching=Switching(0.45, 0.0))
    node = emulated_node(gpu)
    handle = opened()
    node.play(0, plain_load(gpu))  # 0.3 s an iteration at 1500 MHz, 0.9 s at 500 MHz
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 500, 500)
    node.run(0, 3)
    assert node.now_s() == pytest.approx(0.45 + 1.5 * 0.9, abs=0.2)
    assert node.iterations(0) == pytest.approx(3, abs=1e-6)


def test_what_is_asked_for_meanwhile_goes_with_it(emulated_node):
    gpu = replace(plain_gpu(), switching=Switching(0.5, 0.0))
    node = emulated_node(gpu)
    handle = opened()
    node.play(0, plain_load(gpu))
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 500, 500)
    node.advance(0.4)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1000, 1000)
    node.advance(0.2)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1000
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 150_000)  # a limit does not wait
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1000
    node.advance(1.0)
    assert pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) == 1000


def test_waits_are_spread_around_their_median(emulated_node):
    gpu = replace(plain_gpu(), switching=Switching(0.1, 0.0), wait_spread=0.69)
    node = emulated_node(gpu)
    handle = opened()
    waits_s = []
    for turn in range(60):
        mhz = (500, 1000)[turn % 2]
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
        begun_s = node.now_s()
        while pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) != mhz:
            node.advance(0.002)
        waits_s.append(node.now_s() - begun_s)
    assert 0.06 < np.median(waits_s) < 0.16
    assert len(set(waits_s)) > 20
    assert max(waits_s) > 2 * min(waits_s)


def test_an_offset_shows_in_power_and_energy(emulated_node):
    node = emulated_node(replace(plain_gpu(counter_period_s=0.1), offset_w=5.0, counter_start_j=0.0))
    handle = opened()
    node.advance(10)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 25_000
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 250_000


def test_a_laptop_refuses_limits_and_keeps_its_own(emulated_node):
    node = emulated_node("rtx2000ada-laptop")
    handle = opened()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, 80_000)
    node.play(0, tabulate(load_model("rtx2000ada-laptop"), GEMM))
    node.advance(5)
    assert node.truth_j(0) / 5 < 96
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & pynvml.nvmlClocksThrottleReasonSwPowerCap


def test_a_pascal_gpu_has_no_energy_counter(emulated_node):
    emulated_node("p100")
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(opened())
