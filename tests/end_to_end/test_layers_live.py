"""`wattune layers switch-latency` on the emulated NVML library, with real processes."""

import json
import sys

import pytest

from command import Command, complaint

WATTUNE = (sys.executable, "-m", "wattune")


@pytest.fixture
def command(emulated_library, tmp_path):
    return Command(tmp_path)


def measured(command, *arguments, gpu="a100", load=()):
    simulate = ("simulate", "--gpu", gpu, "--workload", "lstm", "--switching", "real", "--")
    latency = ("layers", "switch-latency", "--device", "nvml:0", "--repeats", "2", "--json", *arguments)
    return command(*simulate, *WATTUNE, *latency, *(("--", *load) if load else ()))


def test_the_delay_of_the_emulated_gpu_is_seen_and_clocks_are_restored(command):
    read = "nvidia-smi --query-gpu=clocks.sm --format=csv,noheader"
    latency = f"{sys.executable} -m wattune layers switch-latency --device nvml:0 --repeats 2 --clocks 705,1005 --json"
    script = f"{read} >&2; {latency} -- sleep 1000; sleep 0.2; {read} >&2"
    simulate = ("simulate", "--gpu", "a100", "--workload", "lstm", "--switching", "real", "--", "sh", "-c", script)
    done = command(*simulate)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["simulated"] is True
    assert found["load"] == "sleep 1000"
    assert found["mem"] is None
    assert found["sm"]["reached"] == found["sm"]["tried"] == 4
    # Drawn around 10 ms; how precisely they are seen depends on the machine.
    assert found["sm"]["error_s"] < found["sm"]["p95_s"]
    assert found["sm"]["stall_s"] is None
    clocks = [line for line in done.stderr.splitlines() if line.endswith("MHz") and line[0].isdigit()]
    assert len(clocks) == 2
    assert clocks[0] == clocks[1]


def test_a_load_that_ends_early_is_reported(command):
    done = measured(command, "--clocks", "705,1005", load=("true",))
    error, hint = complaint(done)
    assert "became effective" in error
    assert hint


def test_a_user_who_may_not_set_clocks_gets_one_line(command):
    latency = ("layers", "switch-latency", "--device", "nvml:0")
    error, _ = complaint(command("simulate", "--unprivileged", "--", *WATTUNE, *latency))
    assert "permission" in error.lower() or "not allowed" in error.lower()


def test_an_unknown_command_is_refused_before_a_clock_changes(command):
    error, _ = complaint(measured(command, load=("no-such-program",)))
    assert "no-such-program" in error
