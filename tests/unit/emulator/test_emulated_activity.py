"""Temperature, utilisation, memory and processes."""

import os
import subprocess
import sys
from dataclasses import replace
from math import exp

import pynvml
import pytest

from emulated import plain_gpu, plain_load


@pytest.fixture
def plain(emulated_node):
    node = emulated_node(plain_gpu())
    pynvml.nvmlInit()
    return node, pynvml.nvmlDeviceGetHandleByIndex(0)


def test_temperature_follows_power_with_one_time_constant(plain):
    node, handle = plain
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == 27  # 25 + 0.1 * 20 W
    node.play(0, plain_load(plain_gpu(), duration_s=(0.1,), power_w=(250.0,)))
    for _ in range(10):
        node.advance(1)
        pynvml.nvmlDeviceSetPersistenceMode(handle, 1)
    expected_c = 50 + (27 - 50) * exp(-1)
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == round(expected_c)
    assert pynvml.nvmlDeviceGetTemperatureV(handle, 0) == round(expected_c)
    node.advance(1000)
    assert pynvml.nvmlDeviceGetTemperature(handle, 0) == 50
    assert pynvml.nvmlDeviceGetTemperatureThreshold(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN) > 50
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetTemperature(handle, 1)


def test_utilisation_is_the_mean_of_the_last_sixth_of_a_second(plain):
    node, handle = plain
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    node.play(0, plain_load(plain_gpu(), duration_s=(1.0, 1.0), power_w=(200.0, 100.0)))
    node.advance(0.9)
    busy = pynvml.nvmlDeviceGetUtilizationRates(handle)
    assert (busy.gpu, busy.memory) == (100, 25)
    node.advance(1)
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 50
    node.idle(0)
    node.advance(1)
    assert pynvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0


def test_no_processes_on_an_unused_gpu(plain):
    _, handle = plain
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle) == []
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(handle, 0)


def test_users_are_listed_with_their_memory(plain):
    node, handle = plain
    node.play(0, plain_load(plain_gpu()), memory_bytes=3 << 30)
    node.advance(1)
    for version in (2, 3):
        (process,) = getattr(pynvml, f"nvmlDeviceGetComputeRunningProcesses_v{version}")(handle)
        assert (process.pid, process.usedGpuMemory) == (os.getpid(), 3 << 30)
    assert "python" in pynvml.nvmlSystemGetProcessName(os.getpid())
    (used,) = pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert used.pid == os.getpid()
    assert used.smUtil > 0
    node.join(0, memory_bytes=1 << 30)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle)[0].usedGpuMemory == 1 << 30
    node.leave(0)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []


def test_a_process_that_ended_is_not_listed_and_makes_room(plain):
    node, handle = plain
    for _ in range(2):
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        node.join(0, pid=ended.pid, memory_bytes=1)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    node.join(0, memory_bytes=7)
    assert [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [7]


def test_memory_in_both_versions(plain):
    node, handle = plain
    node.join(0, memory_bytes=2 << 30)
    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    assert first.total == second.total == 16 << 30
    assert first.used == second.used + second.reserved
    assert second.used == 2 << 30
    assert first.free == second.free == second.total - second.used - second.reserved
    with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
        pynvml.nvmlDeviceGetMemoryInfo(handle, version=1)


def test_a_passive_gpu_has_no_fan(plain, emulated_node):
    _, handle = plain
    assert pynvml.nvmlDeviceGetNumFans(handle) == 0
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetFanSpeed(handle)
    pynvml.nvmlShutdown()
    emulated_node(replace(plain_gpu(), has_fan=True))
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetFanSpeed(handle) == 30
    assert pynvml.nvmlDeviceGetFanSpeed_v2(handle, 0) == 30
