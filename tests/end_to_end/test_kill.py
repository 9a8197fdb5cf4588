"""Processes that set an emulated GPU and die at random times: the GPU is restored."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from processes import wait_until
from wattune.core.setting import Setting
from wattune.devices.open import Surroundings, open_gpu, restore_abandoned

FOUND = Setting(None, None, 350.0)

TUNER = """
import itertools, sys
from pathlib import Path
from wattune.core.setting import Setting
from wattune.devices.open import Surroundings, open_gpu

with open_gpu("nvml:0", Surroundings(Path(sys.argv[1]))) as gpu:
    print("open", flush=True)
    for sm_mhz in itertools.cycle(gpu.spec.sm_clocks_mhz[20:]):
        gpu.apply(Setting(sm_mhz, power_limit_w=200 + sm_mhz % 7))
        if sys.argv[2] == "raise":
            raise RuntimeError("the program failed")
        if sys.argv[2] == "exit":
            sys.exit(3)
"""


@pytest.fixture
def node(emulated_node):
    made = emulated_node("a100", clock="wall")
    limit_to_350(made)
    return made


def limit_to_350(node):
    import pynvml

    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), 350_000)
    pynvml.nvmlShutdown()
    assert node.setting(0) == FOUND


def environment(node):
    return {**os.environ, "WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}


@contextmanager
def tuner(node, state, how="loop"):
    command = [sys.executable, "-c", TUNER, str(state), how]
    process = subprocess.Popen(
        command, env=environment(node), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with process:
        assert process.stdout.readline() == "open\n"
        yield process


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_restores_the_gpu(node, tmp_path, stop):
    with tuner(node, tmp_path / "state") as process:
        wait_until(lambda: node.setting(0) != FOUND, process)
        process.send_signal(stop)
    assert node.setting(0) == FOUND
    assert restore_abandoned(Surroundings(tmp_path / "state")) == ()


@pytest.mark.parametrize(("how", "code"), [("raise", 1), ("exit", 3)])
def test_an_error_or_an_exit_restores_the_gpu(node, tmp_path, how, code):
    with tuner(node, tmp_path / "state", how) as process:
        pass
    assert process.returncode == code
    assert node.setting(0) == FOUND


def child_that_tunes(state, ready, *, restores_every):
    """In a forked child: set the GPU over and over until killed."""
    with open_gpu("nvml:0", Surroundings(state)) as gpu:
        step = 0
        while True:
            step += 1
            gpu.apply(Setting(gpu.spec.sm_clocks_mhz[20 + step % 50], power_limit_w=float(150 + step % 100)))
            if step == 1:
                os.write(ready, b"!")
            if step % restores_every == 0:
                gpu.restore()


def test_kill_9_at_random_times_three_hundred_times(node, tmp_path):
    generator = random.Random(11)
    state = tmp_path / "state"
    around = Surroundings(state)
    abandoned = 0
    opened, ready = os.pipe()
    for attempt in range(300):
        pid = os.fork()
        if pid == 0:
            try:
                child_that_tunes(state, ready, restores_every=7 if attempt % 2 else 300)
            finally:
                os._exit(1)
        if attempt % 4:  # every fourth is killed while it starts
            assert os.read(opened, 1)
        time.sleep(generator.uniform(0.0, 0.005))  # where the kill falls is the point of the test
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        abandoned += len(restore_abandoned(around))
        assert node.setting(0) == FOUND
    os.close(opened)
    os.close(ready)
    assert abandoned > 50  # the kills did fall where it matters


def test_the_restore_command_and_the_next_start_do_the_same(node, tmp_path):
    state = tmp_path / "state"
    for undo in ("command", "start"):
        with tuner(node, state) as process:
            wait_until(lambda: node.setting(0) != FOUND, process)
            process.kill()
        assert node.setting(0) != FOUND
        if undo == "command":
            command = [sys.executable, "-m", "wattune", "restore"]
            done = subprocess.run(
                command, env={**environment(node), "WATTUNE_STATE": str(state)}, capture_output=True, text=True
            )
            assert done.returncode == 0
            assert "restored nvml:GPU-" in done.stdout
        else:
            with open_gpu("nvml:0", Surroundings(state)):
                pass
        assert node.setting(0) == FOUND


def test_a_second_process_cannot_tune_the_gpu(node, tmp_path):
    state = tmp_path / "state"
    with tuner(node, state) as process:
        wait_until(lambda: node.setting(0) != FOUND, process)
        second = subprocess.run(
            [sys.executable, "-c", TUNER, str(state), "loop"], env=environment(node), capture_output=True, text=True
        )
        assert f"being tuned by process {process.pid}" in second.stderr
        process.terminate()
    assert node.setting(0) == FOUND
