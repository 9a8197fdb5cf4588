"""Drivers that remove functions, restart counters, block, or report other processes."""

import threading
import time
from dataclasses import replace

import pynvml
import pytest

from wattune.cli.run.tuning import _lasting_notes
from wattune.core.errors import DeviceError
from wattune.core.reading import Throttle
from wattune.core.setting import Setting
from wattune.devices.meter import measured
from wattune.devices.nvml import library, readings
from wattune.devices.nvml.describe import examine
from wattune.devices.nvml.open import forgetful, opened_nvml
from wattune.devices.open import Surroundings, open_gpu
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.launch import CODES
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


@pytest.fixture
def said():
    return []


@pytest.fixture
def around(tmp_path, said):
    return Surroundings(tmp_path / "state", notify=said.append)


def play(node):
    node.play(0, tabulate(load_model("a100"), make_workload("resnet50")))
    node.advance(10)


OPTIONAL = {
    "nvmlDeviceGetUtilizationRates": ("sm_util", "mem_util"),
    "nvmlDeviceGetClockInfo": ("sm_mhz", "mem_mhz"),
    "nvmlDeviceGetEnforcedPowerLimit": ("power_limit_w",),
    "nvmlDeviceGetMemoryInfo": ("memory_used_bytes", "memory_total_bytes"),
    "nvmlDeviceGetFieldValues": (),
    "nvmlDeviceGetTemperatureV": (),
    "nvmlDeviceGetTemperature": (),
    "nvmlDeviceGetCurrentClocksEventReasons": (),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (),
    "nvmlDeviceGetApplicationsClock": (),
    "nvmlDeviceGetArchitecture": (),
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlDeviceGetSupportedMemoryClocks": (),
    "nvmlDeviceGetSupportedGraphicsClocks": (),
    "nvmlDeviceGetPowerManagementLimit": (),
    "nvmlDeviceGetPowerManagementDefaultLimit": (),
    "nvmlDeviceGetPowerManagementLimitConstraints": (),
}


@pytest.mark.parametrize("error", ["deprecated", "function-not-found", "not-supported", "timeout", "unknown"])
@pytest.mark.parametrize("function", OPTIONAL)
def test_no_optional_reading_keeps_a_gpu_from_opening(emulated_node, around, function, error):
    node = emulated_node("a100")
    play(node)
    node.inject(function, code=CODES[error])
    with open_gpu("nvml:0", around) as gpu:
        reading = gpu.read()
    missing = {name for name in reading.__slots__ if getattr(reading, name) is None}
    fallible = {"nvmlDeviceGetTemperatureV": "temperature_c", "nvmlDeviceGetCurrentClocksEventReasons": "throttle"}
    has_successor = CODES[error] in (3, 13, 26) or function not in fallible
    assert missing == set(OPTIONAL[function]) | (set() if has_successor else {fallible[function]})


@pytest.mark.parametrize("function", ["nvmlDeviceGetTotalEnergyConsumption"])
def test_without_a_counter_power_is_added_up(emulated_node, around, function):
    node = emulated_node("a100")
    play(node)
    node.inject(function, code=CODES["deprecated"])
    with open_gpu("nvml:0", around) as gpu:
        first = gpu.count()
        node.advance(10)
        assert gpu.count().energy_j - first.energy_j == pytest.approx(10 * gpu.read().power_w, rel=0.1)


def test_old_functions_are_not_called_where_there_are_new_ones(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        assert gpu.read().throttle == Throttle.IDLE
    called = node.calls()
    assert "nvmlDeviceGetTemperature" not in called
    assert "nvmlDeviceGetCurrentClocksThrottleReasons" not in called


def test_what_a_driver_does_not_have_is_asked_once(emulated_node, around):
    node = emulated_node("a100")
    node.inject("nvmlDeviceGetTemperatureV", code=CODES["function-not-found"])
    with open_gpu("nvml:0", around) as gpu:
        for _ in range(5):
            assert gpu.read().temperature_c > 0
    assert node.calls()["nvmlDeviceGetTemperatureV"] == 1


def test_a_clock_is_locked_as_a_range(emulated_node, around):
    node = emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        gpu.apply(Setting(sm_mhz=1200))
        node.advance(10)
        idle_j = node.truth_j(0)
        assert idle_j == pytest.approx(10 * load_model("a100").idle_w)
        play(node)
        assert gpu.read().sm_mhz == 1200


# the counter


def test_a_restart_in_a_span_widens_its_error_and_is_reported(emulated_node, around, said):
    node = emulated_node("a100")
    play(node)
    with open_gpu("nvml:0", around) as gpu:
        with measured(gpu, wait=node.advance) as span:
            before_j = node.truth_j(0)
            node.advance(5)
            gpu.count()
            node.advance(0.2)
            node.reset(0)
            node.advance(0.3)
            gpu.count()
            node.advance(4.5)
            truth_j = node.truth_j(0) - before_j
        found = span.measurement
    assert [len(restarts) for restarts in span.restarts] == [1]
    assert 0 <= found.energy_j <= truth_j + found.energy_error_j
    assert abs(found.energy_j - truth_j) <= found.energy_error_j
    assert found.energy_error_j >= 0.5 * 400
    assert len(said) == 1
    assert "started again from zero" in said[0]


def test_a_counter_never_falls(emulated_node, around):
    node = emulated_node("a100")
    play(node)
    with open_gpu("nvml:0", around) as gpu:
        last_j = 0.0
        for index in range(20):
            if index % 4 == 3:
                node.reset(0)
            node.advance(0.5)
            now_j = gpu.count().energy_j
            assert now_j >= last_j
            last_j = now_j
        assert len(gpu.restarts) == 5


def test_threads_that_count_at_once_see_no_restart(emulated_node, around, said):
    emulated_node("a100", clock="wall")
    with open_gpu("nvml:0", around) as gpu:
        threads = [threading.Thread(target=lambda: [gpu.count() for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert gpu.restarts == ()
    assert said == []


# blocking


def test_a_blocking_call_leaves_the_interpreter_to_other_threads(emulated_node):
    """While one thread waits for the driver, this one goes on: by the number of its turns, not by time."""
    node = emulated_node("a100")
    with opened_nvml("0") as gpu:
        node.inject("all", blocking_s=0.2)
        for call in (gpu.count, lambda: pynvml.nvmlDeviceGetName(gpu._handle)):
            thread = threading.Thread(target=call)
            turns = 0
            thread.start()
            while thread.is_alive():
                turns += 1
                time.sleep(0.001)
            assert turns > 5
        node.inject("all")


def test_the_energy_call_is_of_the_kind_that_releases_the_interpreter(emulated_node):
    emulated_node("a100")
    loaded = library.load()
    import ctypes

    assert isinstance(loaded.energy_call, ctypes._CFuncPtr)
    assert not loaded.energy_call._flags_ & 0x4  # FUNCFLAG_PYTHONAPI: the interpreter stays locked
    library.close()


def test_a_driver_that_never_had_a_gpu_says_so(emulated_node, around):
    node = emulated_node("a100")
    node.inject("nvmlDeviceGetCount", code=CODES["unknown"])
    with pytest.raises(DeviceError, match="cannot list the GPUs"), open_gpu("auto", around):
        pass


def test_module_power_is_labelled_and_not_taken_for_the_gpu(emulated_node, around):
    node = emulated_node(replace(EmulatedGpu.of(load_model("h100"), 0), module_rest_w=250.0), "a100")
    node.advance(10)
    with open_gpu(f"nvml:{EmulatedGpu.of(load_model('h100'), 0).spec.uuid}", around) as gpu:
        own_w = gpu.read().power_w
    module, alone = examine().gpus
    assert module.module_power_w == pytest.approx(own_w + 250, rel=0.01)
    assert alone.module_power_w is None


def test_run_and_doctor_warn_about_settings_that_do_not_last(emulated_node, around):
    emulated_node(replace(EmulatedGpu.of(load_model("a100"), 0), is_persistent=False))
    assert examine().gpus[0].persistent is False
    with open_gpu("nvml:0", around) as gpu:
        assert forgetful(gpu.spec.uuid)
        assert "persistence mode" in _lasting_notes([gpu])[0]
    emulated_node("a100")
    with open_gpu("nvml:0", around) as gpu:
        assert _lasting_notes([gpu]) == ()


def test_a_slow_reading_shows_the_present_limit(emulated_node, tmp_path, monkeypatch):
    monkeypatch.setattr(readings, "CHEAP_S", 0.0)  # as on a busy machine: every reading counts as slow
    emulated_node("a100")
    with open_gpu("nvml:0", Surroundings(tmp_path / "state")) as gpu:
        for limit_w in (300.0, 250.0):
            gpu.apply(Setting(power_limit_w=limit_w))
            assert gpu.read().power_limit_w == limit_w
