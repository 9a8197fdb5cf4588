"""Processes that set an emulated GPU and die at random times: the GPU is restored."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil
import pytest

from processes import shared_folder, wait_until
from wattune.core.setting import Setting
from wattune.devices.guarded import GuardedGpu
from wattune.devices.journal import Journal
from wattune.devices.nvml.open import opened_nvml
from wattune.devices.open import Surroundings, open_gpu, restore_abandoned
from wattune_bench.reliability.kills import KINDS, KillBench, kill_rounds

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
        if sys.argv[2] == "hold":
            print("holds", flush=True)
            sys.stdin.read()
        if sys.argv[2] == "fork":
            import os
            if os.fork() == 0:
                sys.stdin.read()  # a worker that outlives its parent
                os._exit(0)
            print("holds", flush=True)
            sys.stdin.read()
"""


@pytest.fixture
def node(emulated_node):
    made = emulated_node("a100", clock="wall")
    limit(350)
    assert made.setting(0) == FOUND
    return made


def limit(watts):
    import pynvml

    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), watts * 1000)
    pynvml.nvmlShutdown()


def environment(node):
    return {**os.environ, "WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}


@contextmanager
def tuner(node, state, how="loop"):
    command = [sys.executable, "-c", TUNER, str(state), how]
    process = subprocess.Popen(
        command,
        env=environment(node),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
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
    """In a forked child without a watchdog: set the GPU over and over until killed."""
    with opened_nvml("0") as bare:
        gpu, step = GuardedGpu(bare, Journal(state), f"nvml:{bare.spec.uuid}"), 0
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
        outcomes = restore_abandoned(around)
        assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
        assert [outcome.left for outcome in outcomes] == [()] * len(outcomes)
        abandoned += len(outcomes)
        assert node.setting(0) == FOUND
    os.close(opened)
    os.close(ready)
    assert abandoned > 50  # the kills did fall where it matters


# the watchdog


@contextmanager
def holding(node, state, how="hold"):
    """A tuner that has set the GPU and waits, and its watchdog."""
    with tuner(node, state, how) as process:
        assert process.stdout.readline() == "holds\n"
        (watchdog,) = watchdogs(state)
        yield process, watchdog


def watchdogs(state):
    """The watchdogs over a state folder."""
    return [process for process in psutil.process_iter() if str(state) in command_line(process)[4:5]]


def command_line(process):
    try:
        line = process.cmdline()
    except psutil.Error:
        return []
    return line[2:] if "-S" in line else []


def test_the_watchdog_restores_after_every_kind_of_kill():
    rows = kill_rounds(KillBench(len(KINDS) + 3, seed=3), cache_dir=shared_folder(), on_round=lambda _: None)
    assert {row["kind"] for row in rows} == set(KINDS)
    assert all(row["restored"] for row in rows), rows
    assert not any(row["left_entries"] or row["left_processes"] for row in rows), rows


def test_the_watchdog_is_small_alone_and_deaf(node, tmp_path):
    with holding(node, tmp_path / "state") as (process, watchdog):
        assert watchdog.ppid() != process.pid
        assert os.getsid(watchdog.pid) != os.getsid(process.pid)
        assert sorted(os.listdir(f"/proc/{watchdog.pid}/fd")) == ["0", "1", "2"]
        assert {os.readlink(f"/proc/{watchdog.pid}/fd/{number}") for number in "12"} == {os.devnull}
        assert watchdog.memory_info().rss < 10e6
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            watchdog.send_signal(number)
        process.kill()
        process.wait()
        wait_until(lambda: node.setting(0) == FOUND)
    wait_until(lambda: not watchdogs(tmp_path / "state"))
    assert Journal(tmp_path / "state").left() == ()


def test_the_watchdog_keeps_no_stream_of_its_owner_open(node, tmp_path):
    with holding(node, tmp_path / "state") as (process, watchdog):
        watchdog.suspend()
        process.kill()
        assert process.stdout.read() == ""  # the end of file, although the watchdog lives
        watchdog.resume()
        wait_until(lambda: node.setting(0) == FOUND)


def test_at_a_normal_end_no_watchdog_is_left(node, tmp_path):
    with holding(node, tmp_path / "state") as (process, _):
        process.terminate()
    assert node.setting(0) == FOUND
    wait_until(lambda: not watchdogs(tmp_path / "state"))


def test_a_forked_worker_that_lives_on_keeps_no_gpu_set(node, tmp_path):
    with holding(node, tmp_path / "state", "fork") as (process, _):
        process.kill()
        process.wait()
        wait_until(lambda: node.setting(0) == FOUND)
        wait_until(lambda: not Journal(tmp_path / "state").holders())
        process.stdin.close()  # the worker ends


def test_the_watchdog_leaves_what_somebody_else_has_set_since(node, tmp_path):
    with holding(node, tmp_path / "state") as (process, watchdog):
        limit(120)
        process.kill()
        process.wait()
        wait_until(lambda: not watchdog.is_running())
    assert node.setting(0) == Setting(None, None, 120.0)
    assert Journal(tmp_path / "state").left() == ()


def test_a_watchdog_that_was_killed_is_started_again_with_the_next_claim(node, tmp_path):
    state = tmp_path / "state"
    with open_gpu("nvml:0", Surroundings(state)) as gpu:
        gpu.apply(Setting(1005))
        (watchdog,) = watchdogs(state)
        gpu.restore()
        gpu.apply(Setting(1005))
        assert watchdogs(state) == [watchdog]
        gpu.restore()
        watchdog.kill()
        wait_until(lambda: not watchdogs(state))
        gpu.apply(Setting(1005))
        assert len(watchdogs(state)) == 1
    wait_until(lambda: not watchdogs(state))


def test_without_the_watchdog_the_restore_command_and_the_next_start_restore(node, tmp_path):
    state = tmp_path / "state"
    for undo in ("command", "start"):
        with holding(node, state) as (process, watchdog):
            watchdog.kill()
            process.kill()
        assert node.setting(0) != FOUND
        if undo == "command":
            command = [sys.executable, "-m", "wattune", "restore"]
            places = {"WATTUNE_STATE": str(state), "WATTUNE_LOCKS": str(state)}
            done = subprocess.run(command, env={**environment(node), **places}, capture_output=True, text=True)
            assert done.returncode == 0
            assert "restored nvml:GPU-" in done.stdout
        else:
            with open_gpu("nvml:0", Surroundings(state)):
                pass
        assert node.setting(0) == FOUND


# disks

FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
"""


@pytest.mark.parametrize(("state", "limited"), [("state", FULL), ("/proc/state", "")], ids=["full", "read-only"])
def test_on_a_full_or_read_only_disk_the_gpu_is_not_set(node, tmp_path, state, limited):
    command = [sys.executable, "-c", limited + TUNER, str(tmp_path / state), "loop"]
    done = subprocess.run(command, env=environment(node), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "wattune.core.errors.ConfigError: cannot " in last
    assert ("the GPU was not set" in last) == bool(limited)
    assert node.setting(0) == FOUND
    wait_until(lambda: not watchdogs(tmp_path / state))


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
