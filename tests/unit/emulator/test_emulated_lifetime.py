"""How long settings and counters last, and functions that block or fail by themselves."""

import subprocess
import sys
from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu, plain_load
from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.emulator.node import NODE_VARIABLE

UNSET = Setting(None, None, 300.0)
SET = "import pynvml, sys; pynvml.nvmlInit(); gpu = pynvml.nvmlDeviceGetHandleByIndex(0);"
SET += "pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 500, 500); pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 150_000);"


def handle():
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def set_in_a_process(node, emulated_library, ending):
    environment = {NODE_VARIABLE: str(node.path), "LD_LIBRARY_PATH": str(emulated_library.parent)}
    subprocess.run([sys.executable, "-c", SET + ending], env=environment, check=False)


@pytest.mark.parametrize("ending", ["pynvml.nvmlShutdown()", "import os; os.kill(os.getpid(), 9)"])
def test_without_persistence_mode_settings_end_with_the_last_client(emulated_node, emulated_library, ending):
    node = emulated_node(replace(plain_gpu(), is_persistent=False))
    set_in_a_process(node, emulated_library, ending)
    assert node.setting(0) == UNSET


def test_any_client_keeps_them(emulated_node, emulated_library):
    node = emulated_node(replace(plain_gpu(), is_persistent=False))
    handle()
    set_in_a_process(node, emulated_library, "")
    assert node.setting(0) == Setting(500, None, 150.0)
    pynvml.nvmlShutdown()
    assert node.setting(0) == UNSET


def test_a_program_on_the_gpu_keeps_them(emulated_node, emulated_library):
    node = emulated_node(replace(plain_gpu(), is_persistent=False))
    node.join(0)
    set_in_a_process(node, emulated_library, "")
    assert node.setting(0) == Setting(500, None, 150.0)
    node.leave(0)
    assert node.setting(0) == UNSET


def test_with_persistence_mode_they_stay(emulated_node, emulated_library):
    node = emulated_node(plain_gpu())
    set_in_a_process(node, emulated_library, "")
    assert node.setting(0) == Setting(500, None, 150.0)


def test_a_reset_restarts_the_counter_and_forgets_settings(emulated_node):
    node = emulated_node(plain_gpu())
    gpu = handle()
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 150_000)
    node.advance(10)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 1_000_000_000 + 200_000
    node.reset(0, at_s=12)
    node.advance(5)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == 3 * 20_000
    assert node.setting(0) == UNSET
    assert node.truth_j(0) == pytest.approx(15 * 20)


@pytest.mark.parametrize(("lock_mhz", "power_w"), [((500, 1500), 20), ((1000, 1000), 30), ((1500, 1500), 40)])
def test_an_idle_gpu_pays_for_the_clock_that_a_lock_holds_up(emulated_node, lock_mhz, power_w):
    node = emulated_node(plain_gpu())
    pynvml.nvmlDeviceSetGpuLockedClocks(handle(), *lock_mhz)
    node.advance(10)
    assert node.truth_j(0) == pytest.approx(10 * power_w)


def test_a_function_fails_by_itself(emulated_node):
    node = emulated_node(plain_gpu())
    gpu = handle()
    node.inject("nvmlDeviceGetTemperature", code=26)
    with pytest.raises(pynvml.NVMLError_Deprecated):
        pynvml.nvmlDeviceGetTemperature(gpu, 0)
    assert pynvml.nvmlDeviceGetTemperatureV(gpu, 0) > 0
    node.inject("nvmlDeviceGetTemperature")
    assert pynvml.nvmlDeviceGetTemperature(gpu, 0) > 0
    with pytest.raises(InputError, match="no function"):
        node.inject("nvmlNothing")


def test_initialising_fails_by_itself(emulated_node):
    node = emulated_node(plain_gpu())
    node.inject("nvmlInit", code=18)
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()


def test_a_blocking_call_takes_its_time_but_not_the_processor(emulated_node):
    node = emulated_node(plain_gpu())
    gpu = handle()
    node.inject("all", blocking_s=0.02)
    import time

    start_s, cpu_s = time.monotonic(), time.thread_time()
    for _ in range(5):
        pynvml.nvmlDeviceGetPowerUsage(gpu)
    assert time.monotonic() - start_s >= 0.1
    assert time.thread_time() - cpu_s < 0.1


def test_module_power_is_another_scope(emulated_node):
    node = emulated_node(replace(plain_gpu(), module_rest_w=100.0), plain_gpu(index=1))
    node.play(0, plain_load(plain_gpu()))
    node.advance(1)
    gpu, field = handle(), pynvml.NVML_FI_DEV_POWER_INSTANT
    own, module = pynvml.nvmlDeviceGetFieldValues(gpu, [(field, 0), (field, 1)])
    assert module.value.uiVal - own.value.uiVal == 100_000
    (alone,) = pynvml.nvmlDeviceGetFieldValues(pynvml.nvmlDeviceGetHandleByIndex(1), [(field, 1)])
    assert alone.nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_processes_of_another_namespace(emulated_node):
    node = emulated_node(plain_gpu())
    node.join(0)
    node.shift_pids(1_000_000)
    import os

    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle())
    assert process.pid == os.getpid() + 1_000_000
