"""The node itself: making, attaching, time, bad input."""

import contextlib
import subprocess
from dataclasses import replace

import pynvml
import pytest

from emulated import plain_gpu, plain_load
from wattune.core.errors import DeviceError, DeviceNotFound, InputError, NotSupported
from wattune.core.gpu_spec import ClockTable
from wattune.emulator.node import Node


def test_only_the_creator_removes_the_file(emulated_library, tmp_path):
    path = tmp_path / "node"
    with Node.create(path, [plain_gpu()], library=emulated_library) as node:
        with Node.attach(path, library=emulated_library) as other:
            assert other.count == 1
        assert path.exists()
        assert node.count == 1
    assert list(tmp_path.iterdir()) == []


def test_both_see_the_same_time_and_load(emulated_library, tmp_path):
    path, gpu = tmp_path / "node", plain_gpu()
    with (
        Node.create(path, [gpu], library=emulated_library, clock="virtual") as node,
        Node.attach(path, library=emulated_library) as other,
    ):
        other.play(0, plain_load(gpu))
        other.run(0, 2)
        assert node.now_s() == other.now_s() == pytest.approx(0.6)
        assert node.truth_j(0) == other.truth_j(0) == pytest.approx(2 * 58)
        assert node.iterations(0) == pytest.approx(2)


def test_a_closed_node_raises_an_error(emulated_library, tmp_path):
    node = Node.create(tmp_path / "node", [plain_gpu()], library=emulated_library)
    node.close()
    with pytest.raises(DeviceError, match="closed"):
        node.now_s()


def test_a_node_is_not_replaced(emulated_library, tmp_path):
    with Node.create(tmp_path / "node", [plain_gpu()], library=emulated_library) as node:
        with pytest.raises(DeviceError, match="there already"):
            Node.create(tmp_path / "node", [plain_gpu()], library=emulated_library)
        assert node.now_s() >= 0


@pytest.mark.parametrize("count", [0, 17])
def test_too_few_or_too_many_gpus(emulated_library, tmp_path, count):
    with pytest.raises(DeviceError, match=f"{count} simulated GPUs"):
        Node.create(tmp_path / "node", [plain_gpu()] * count, library=emulated_library)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_missing(emulated_library, tmp_path):
    with pytest.raises(DeviceError, match="cannot make a node"):
        Node.create(tmp_path / "none" / "node", [plain_gpu()], library=emulated_library)


def test_a_gpu_that_cannot_be_emulated_leaves_no_file(emulated_library, tmp_path):
    gpu = plain_gpu()
    for clocks, idle_w in (
        ((), ()),
        ((ClockTable(None, (500,)),), ((40.0,),)),
        ((ClockTable(1000, tuple(range(300))),), ((40.0,) * 300,)),
    ):
        unusual = replace(gpu, spec=replace(gpu.spec, clocks=clocks), context_idle_w=idle_w)
        with pytest.raises(InputError, match="emulate"):
            Node.create(tmp_path / "node", [unusual], library=emulated_library)
    long = replace(gpu, spec=replace(gpu.spec, name="x" * 200))
    with pytest.raises(InputError, match="too long"):
        Node.create(tmp_path / "node", [long], library=emulated_library)
    assert list(tmp_path.iterdir()) == []


def test_attaching_to_a_missing_node(emulated_library, tmp_path):
    with pytest.raises(DeviceNotFound, match="no node"):
        Node.attach(tmp_path / "node", library=emulated_library)


def test_real_time_cannot_be_advanced_and_virtual_time_not_back(emulated_node):
    with pytest.raises(NotSupported, match="real"):
        emulated_node(plain_gpu(), clock="wall").advance(1)
    for seconds in (-1, float("nan")):
        with pytest.raises(InputError, match="cannot go back"):
            emulated_node(plain_gpu()).advance(seconds)


def test_in_real_time_a_run_waits(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu, clock="wall")
    node.play(0, plain_load(gpu, duration_s=(0.002, 0.001), power_w=(250.0, 80.0)))
    before_j, before_s = node.truth_j(0), node.now_s()
    node.run(0, 10)
    spent_j, passed_s = node.truth_j(0) - before_j, node.now_s() - before_s
    assert passed_s >= 0.03
    assert 80 * passed_s < spent_j < 250 * passed_s
    assert node.iterations(0) >= 10


def test_waiting_for_an_idle_gpu(emulated_node):
    node = emulated_node(plain_gpu())
    with pytest.raises(DeviceError, match="plays nothing"):
        node.run(0, 1)
    node.run(0, 0)


@pytest.mark.parametrize("index", [-1, 1])
def test_a_gpu_that_is_not_there(emulated_node, index):
    node = emulated_node(plain_gpu())
    for call in (node.truth_j, node.iterations, node.idle, node.setting, node.lose):
        with pytest.raises(DeviceNotFound, match=f"no GPU {index}"):
            call(index)


def test_a_load_for_another_gpu_is_refused(emulated_node):
    node = emulated_node(plain_gpu())
    with pytest.raises(InputError, match="no table for this GPU at a memory clock of 1000 MHz"):
        node.play(0, plain_load(plain_gpu(sm_mhz=(600, 700))))
    assert node.setting(0).sm_mhz is None


def test_a_load_of_many_phases_is_merged(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    durations = tuple(0.001 + 0.0001 * (n % 7) for n in range(500))
    powers = tuple(100.0 + n % 90 for n in range(500))
    node.play(0, plain_load(gpu, duration_s=durations, power_w=powers))
    node.run(0, 3)
    expected_j = 3 * sum(s * w for s, w in zip(durations, powers, strict=True))
    assert node.truth_j(0) == pytest.approx(expected_j, abs=1e-3)


def test_at_most_32_processes_share_a_gpu(emulated_node):
    node = emulated_node(plain_gpu())
    with contextlib.ExitStack() as stack:
        sleepers = [stack.enter_context(_sleeper()) for _ in range(33)]
        for sleeper in sleepers[:32]:
            node.join(0, pid=sleeper.pid)
        with pytest.raises(DeviceError, match="too many users"):
            node.join(0, pid=sleepers[32].pid)


@contextlib.contextmanager
def _sleeper():
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


def test_calls_are_counted_by_function(emulated_node):
    node = emulated_node(plain_gpu())
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(3):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    pynvml.nvmlDeviceSetPersistenceMode(handle, 1)
    assert node.calls() == {
        "nvmlInitWithFlags": 1,
        "nvmlDeviceGetHandleByIndex_v2": 1,
        "nvmlDeviceGetPowerUsage": 3,
        "nvmlDeviceSetPersistenceMode": 1,
    }
    assert (node.getter_calls(), node.setter_calls()) == (4, 1)


def test_a_call_can_be_made_to_take_time(emulated_library, tmp_path):
    import time

    from wattune.emulator.node import emulated

    path = tmp_path / "node"
    with Node.create(path, [plain_gpu()], library=emulated_library, call_latency_s=0.002) as node, emulated(node):
        pynvml.nvmlInit()
        start_s = time.monotonic()
        pynvml.nvmlDeviceGetCount()
        assert time.monotonic() - start_s >= 0.002
        pynvml.nvmlShutdown()


def test_a_long_history_of_changes_is_dropped_without_loss_of_energy(emulated_node):
    gpu = plain_gpu()
    node = emulated_node(gpu)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    node.idle(0)
    for step in range(5000):
        mhz = (500, 1000)[step % 2]
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
        node.advance(0.01)
    assert node.truth_j(0) == pytest.approx(50 * 45, abs=1e-3)
    assert pynvml.nvmlDeviceGetPowerUsage(handle) == 45_000
