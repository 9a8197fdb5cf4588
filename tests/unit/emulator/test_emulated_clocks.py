"""Locks, applications clocks and the power cap: which clock holds, and why."""

from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu, plain_load
from wattune.core.gpu_spec import ClockTable
from wattune.core.setting import Setting

SM, MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
IDLE = pynvml.nvmlClocksEventReasonGpuIdle
ASKED = pynvml.nvmlClocksEventReasonApplicationsClocksSetting
CAP = pynvml.nvmlClocksEventReasonSwPowerCap


def two_memory_clocks():
    gpu = plain_gpu()
    clocks = (*gpu.spec.clocks, ClockTable(400, (500, 1000)))
    idle_w = (*gpu.context_idle_w, (30.0, 35.0))
    return replace(gpu, spec=replace(gpu.spec, clocks=clocks), context_idle_w=idle_w)


@pytest.fixture
def busy(emulated_node):
    """A node whose one plain GPU plays the plain load (193.3 W at 1500, 128.9 W at 1000, 64.4 W at 500 MHz)."""
    gpu = plain_gpu()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu))
    pynvml.nvmlInit()
    return node, pynvml.nvmlDeviceGetHandleByIndex(0)


def state(handle):
    return pynvml.nvmlDeviceGetClockInfo(handle, SM), pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)


def test_unlocked_the_highest_clock_holds(busy):
    assert state(busy[1]) == (1500, 0)


@pytest.mark.parametrize(("most", "holds"), [(500, 500), (999, 500), (1000, 1000), (1499, 1000), (1400, 1000)])
def test_a_lock_between_clocks_takes_the_highest_below(busy, most, holds):
    node, handle = busy
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 300, most)
    assert state(handle) == (holds, ASKED)
    assert node.setting(0) == Setting(most, None, 300.0)
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    assert state(handle) == (1500, 0)
    assert node.setting(0) == Setting(None, None, 300.0)


def test_a_lock_above_everything_does_not_bite(busy):
    pynvml.nvmlDeviceSetGpuLockedClocks(busy[1], 0, 9999)
    assert state(busy[1]) == (1500, 0)


@pytest.mark.parametrize(("least", "most"), [(1000, 500), (100, 499), (0, 0)])
def test_an_impossible_lock_is_refused_without_effect(busy, least, most):
    node, handle = busy
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, least, most)
    assert node.setting(0) == Setting(None, None, 300.0)


def test_clocks_by_name(busy):
    _, handle = busy
    lowest, unlimited = pynvml.NVML_CLOCK_LIMIT_ID_RANGE_START, pynvml.NVML_CLOCK_LIMIT_ID_UNLIMITED
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, lowest, lowest)
    assert state(handle)[0] == 500
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, lowest, unlimited)
    assert state(handle)[0] == 1500


@pytest.mark.parametrize(
    ("limit_w", "holds", "reason"), [(194, 1500, 0), (193, 1000, CAP), (129, 1000, CAP), (100, 500, CAP)]
)
def test_the_cap_lowers_the_clock_until_the_mean_power_fits(busy, limit_w, holds, reason):
    _, handle = busy
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, limit_w * 1000)
    assert state(handle) == (holds, reason)


def test_cap_and_lock_together_name_both_reasons(busy):
    _, handle = busy
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 100_000)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1000, 1000)
    assert state(handle) == (500, ASKED | CAP)


def test_a_cap_below_the_lowest_clock_is_exceeded(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu, power_w=(900.0, 900.0)))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 100_000)
    assert state(handle) == (500, CAP)


def test_time_under_the_cap_is_counted(busy):
    node, handle = busy
    node.advance(1)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 150_000)
    node.advance(2)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    node.advance(4)
    violation = pynvml.nvmlDeviceGetViolationStatus(handle, pynvml.NVML_PERF_POLICY_POWER)
    assert violation.violationTime == pytest.approx(2e9, abs=1)
    assert pynvml.nvmlDeviceGetViolationStatus(handle, pynvml.NVML_PERF_POLICY_THERMAL).violationTime == 0


def test_idle_clocks(emulated_node):
    node = emulated_node(plain_gpu())
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert state(handle) == (500, IDLE)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1000, 1500)
    assert state(handle) == (1000, IDLE)
    node.idle(0)
    assert state(handle) == (1500, IDLE)


def test_supported_clocks_come_highest_first(emulated_node):
    emulated_node(two_memory_clocks())
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetSupportedMemoryClocks(handle) == [1000, 400]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 1000) == [1500, 1000, 500]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 400) == [1000, 500]
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 999)


def test_memory_locks(emulated_node):
    gpu = two_memory_clocks()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetClockInfo(handle, MEM) == 1000
    pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 400, 700)
    assert pynvml.nvmlDeviceGetClockInfo(handle, MEM) == 400
    assert state(handle)[0] == 1000
    assert node.setting(0).mem_mhz == 700
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 100, 200)
    pynvml.nvmlDeviceResetMemoryLockedClocks(handle)
    assert pynvml.nvmlDeviceGetClockInfo(handle, MEM) == 1000


def test_asleep_the_memory_clock_and_the_performance_state_fall(emulated_node):
    node = emulated_node(two_memory_clocks(), plain_gpu(index=1))
    pynvml.nvmlInit()
    sleeper, keeper = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
    assert (pynvml.nvmlDeviceGetClockInfo(sleeper, MEM), pynvml.nvmlDeviceGetPerformanceState(sleeper)) == (400, 8)
    assert (pynvml.nvmlDeviceGetClockInfo(keeper, MEM), pynvml.nvmlDeviceGetPerformanceState(keeper)) == (1000, 0)
    node.idle(0)
    assert (pynvml.nvmlDeviceGetClockInfo(sleeper, MEM), pynvml.nvmlDeviceGetPerformanceState(sleeper)) == (1000, 0)


def test_applications_clocks(emulated_node):
    gpu = two_memory_clocks()
    node = emulated_node(gpu)
    node.play(0, plain_load(gpu))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetApplicationsClock(handle, SM) == 1500
    pynvml.nvmlDeviceSetApplicationsClocks(handle, 1000, 1000)
    assert state(handle) == (1000, ASKED)
    assert pynvml.nvmlDeviceGetApplicationsClock(handle, SM) == 1000
    assert pynvml.nvmlDeviceGetClock(handle, SM, pynvml.NVML_CLOCK_ID_APP_CLOCK_TARGET) == 1000
    assert pynvml.nvmlDeviceGetDefaultApplicationsClock(handle, SM) == 1500
    for mem_mhz, sm_mhz in ((1000, 1001), (999, 1000), (400, 1500)):
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceSetApplicationsClocks(handle, mem_mhz, sm_mhz)
    assert node.setting(0) == Setting(1000, 1000, 300.0)
    pynvml.nvmlDeviceResetApplicationsClocks(handle)
    assert state(handle) == (1500, 0)


def test_maxima_and_types_of_clocks(busy):
    _, handle = busy
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle, SM) == 1500
    assert pynvml.nvmlDeviceGetMaxClockInfo(handle, MEM) == 1000
    assert pynvml.nvmlDeviceGetMaxCustomerBoostClock(handle, SM) == 1500
    assert pynvml.nvmlDeviceGetClock(handle, SM, pynvml.NVML_CLOCK_ID_CURRENT) == 1500
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_VIDEO)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetClockInfo(handle, 9)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetClock(handle, SM, 9)


def test_a_gpu_whose_clocks_cannot_be_set(emulated_node):
    emulated_node(replace(plain_gpu(), can_lock_sm=False))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for call in (
        lambda: pynvml.nvmlDeviceSetGpuLockedClocks(handle, 500, 500),
        lambda: pynvml.nvmlDeviceResetGpuLockedClocks(handle),
        lambda: pynvml.nvmlDeviceSetMemoryLockedClocks(handle, 1000, 1000),
        lambda: pynvml.nvmlDeviceResetMemoryLockedClocks(handle),
        lambda: pynvml.nvmlDeviceSetApplicationsClocks(handle, 1000, 500),
        lambda: pynvml.nvmlDeviceResetApplicationsClocks(handle),
        lambda: pynvml.nvmlDeviceGetSupportedMemoryClocks(handle),
        lambda: pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, 1000),
        lambda: pynvml.nvmlDeviceGetApplicationsClock(handle, SM),
    ):
        with pytest.raises(pynvml.NVMLError_NotSupported):
            call()
