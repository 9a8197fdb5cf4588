"""Scenarios: their faults, environment and truth."""

import pynvml
import pytest

from wattune.core.errors import DeviceNotFound, InputError
from wattune.emulator.launch import CallFault, Fault, Scenario, assign_load, environment_for, open_scenario, truths
from wattune.workloads.catalog import make_workload


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0:lost@30s", Fault(0, "lost", 30.0)),
        ("3:lost@2.5", Fault(3, "lost", 2.5)),
        ("1:LOST", Fault(1, "lost")),
        ("0:timeout", Fault(0, "timeout")),
        ("2:reset-required", Fault(2, "reset-required")),
        ("1:reset@4s", Fault(1, "reset", 4.0)),
        ("nvmlDeviceGetTemperature:deprecated", CallFault("nvmlDeviceGetTemperature", 26)),
        ("nvmlInit:mismatch", CallFault("nvmlInit", 18)),
        ("all:300ms", CallFault("all", 0, 0.3)),
    ],
)
def test_faults_are_read(text, fault):
    assert Fault.parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lost",
        "0",
        "x:lost",
        "0:lost@",
        "0:lost@soon",
        "0:gone",
        "-1:lost",
        "0:timeout@3s",
        "nvmlInit:gone-away",
        "all:3s",
    ],
)
def test_what_is_no_fault(text):
    with pytest.raises(InputError) as caught:
        Fault.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize("gpus", [(), ("a100",) * 17])
def test_a_scenario_has_1_to_16_gpus(gpus):
    with pytest.raises(InputError, match="cannot be simulated"):
        Scenario(gpus=gpus)


def test_a_fault_needs_its_gpu():
    with pytest.raises(InputError, match="no GPU 1"):
        Scenario(gpus=("a100",), faults=(Fault(1, "lost"),))


def test_an_unknown_gpu_is_named(emulated_library, tmp_path):
    with pytest.raises(DeviceNotFound):
        open_scenario(Scenario(gpus=("a1000000",)), tmp_path, library=emulated_library)
    assert list(tmp_path.iterdir()) == []


def test_truth_between_two_marks(emulated_library, tmp_path):
    scenario = Scenario(gpus=("a100", "v100"), workload=make_workload("resnet50"), virtual_time=True)
    with open_scenario(scenario, tmp_path, library=emulated_library) as node:
        node.advance(1)
        before = truths(node, scenario.gpus)
        node.advance(10)
        after = truths(node, scenario.gpus)
    a100, v100 = (end.since(start) for start, end in zip(before, after, strict=True))
    assert (a100.time_s, v100.time_s) == (10, 10)
    assert a100.energy_j > v100.energy_j > 0
    assert a100.power_w == pytest.approx(a100.energy_j / 10)
    assert "simulated" in a100.name


def test_where_no_time_passed_there_is_no_mean_power(emulated_library, tmp_path):
    with open_scenario(Scenario(gpus=("v100",), virtual_time=True), tmp_path, library=emulated_library) as node:
        (mark,) = truths(node, ("v100",))
        assert mark.since(mark).power_w is None


def test_the_environment_of_the_command(emulated_library, tmp_path):
    for virtual_time in (False, True):
        folder = tmp_path / str(virtual_time)
        folder.mkdir()
        scenario = Scenario(gpus=("v100",), virtual_time=virtual_time)
        with open_scenario(scenario, folder, library=emulated_library) as node:
            found = environment_for(node, folder, before={"PATH": "/bin", "HOME": "/root"})
        assert found["PATH"] == f"{folder}:/bin"
        assert found["LD_LIBRARY_PATH"] == str(emulated_library.parent)
        assert found["WATTUNE_NODE"] == str(folder / "node")
        assert found["HOME"] == "/root"
        assert ("LD_PRELOAD" in found) == virtual_time
        assert (folder / "nvidia-smi").stat().st_mode & 0o111


def test_the_work_belongs_to_the_process_it_was_handed_to(emulated_library, tmp_path, monkeypatch):
    import os

    scenario = Scenario(gpus=("v100",), workload=make_workload("resnet50"), virtual_time=True)
    with open_scenario(scenario, tmp_path, library=emulated_library) as node:
        monkeypatch.setenv("WATTUNE_NODE", str(node.path))
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
        assign_load(node, scenario, os.getpid())
        assert [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [os.getpid()]
        pynvml.nvmlShutdown()


def test_a_part_time_counter_is_a_choice(emulated_library, tmp_path, monkeypatch):
    def miss_j(part_time):
        folder = tmp_path / str(part_time)
        folder.mkdir()
        workload = make_workload("resnet50")
        scenario = Scenario(gpus=("a100",), workload=workload, virtual_time=True, part_time_counter=part_time)
        with open_scenario(scenario, folder, library=emulated_library) as node:
            monkeypatch.setenv("WATTUNE_NODE", str(node.path))
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            before_j = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000
            node.advance(5)
            shown_j = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000 - before_j
            pynvml.nvmlShutdown()
            return abs(shown_j - node.truth_j(0))

    assert miss_j(False) < 0.01
    assert 0.1 < miss_j(True) < 50
