"""One node under many processes that read, set and are killed: energy never goes back and nobody hangs."""

import itertools
import random
import subprocess
import sys
import time

import pynvml
import pytest

from emulated import plain_gpu, plain_load

READER = """
import sys, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
last, reads = 0, 0
while True:
    energy = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert energy >= last, (energy, last)
    power = pynvml.nvmlDeviceGetPowerUsage(handle)
    assert 19_000 < power < 251_000, power
    assert pynvml.nvmlDeviceGetClockInfo(handle, 1) in (500, 1000, 1500)
    last, reads = energy, reads + 1
    if reads % 200 == 0:
        print(reads, flush=True)
"""

SETTER = """
import itertools, sys, pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print("up", flush=True)
for step in itertools.count(int(sys.argv[1])):
    mhz = (500, 1000, 1500)[step % 3]
    pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 100_000 + 1000 * (step * 37 % 200))
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def served(emulated_node, emulated_library, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(emulated_library.parent))
    gpu = plain_gpu(counter_period_s=0.02)
    node = emulated_node(gpu, clock="wall")
    node.play(0, plain_load(gpu, duration_s=(0.02, 0.01)))
    return node, gpu


def test_readers_setters_and_kills(served):
    node, gpu = served
    chance = random.Random(7)
    readers = [start(READER) for _ in range(2)]
    try:
        for reader in readers:
            reader.stdout.readline()
        for number in range(25):
            setter = start(SETTER, str(number))
            setter.stdout.readline()
            for _ in range(chance.randrange(5)):  # the node's own process takes part as well
                node.play(0, plain_load(gpu, duration_s=(0.02, 0.01)))
            time.sleep(chance.random() * 0.02)  # somewhere in the middle of it
            setter.kill()
            setter.wait()
            setter.stdout.close()
            setter.stderr.close()
            before_j = node.truth_j(0)
            assert node.truth_j(0) >= before_j
        for reader in readers:
            assert reader.poll() is None, reader.stderr.read()
            reader.stdout.readline()
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()
    assert node.setter_calls() > 25


def test_a_process_that_dies_holding_the_lock_stops_nobody(served):
    """What it had begun takes effect, and the timeline goes on."""
    node, _ = served
    script = (
        "import sys; from pathlib import Path; from wattune.emulator.library import load_library\n"
        "c = load_library(Path(sys.argv[1])); c.wattuneDieSetting(c.wattuneNodeOpen(sys.argv[2].encode()), 0, 1000)"
    )
    before_j = node.truth_j(0)
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script, str(node.library), str(node.path)], check=True)
        assert node.truth_j(0) > before_j
    assert node.setting(0).sm_mhz == 1000
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetClockInfo(pynvml.nvmlDeviceGetHandleByIndex(0), pynvml.NVML_CLOCK_SM) == 1000


def test_energy_is_shared_to_the_joule(served):
    node, _ = served
    script = (
        "import pynvml; pynvml.nvmlInit(); "
        "print(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)))"
    )
    shown = []
    for _ in itertools.repeat(None, 3):
        before_j = node.truth_j(0)
        counted = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        shown.append(int(counted.stdout) / 1000 - 1_000_000)
        # Within one refresh of the counter on either side: 20 ms at no more than 250 W.
        assert before_j - 5 <= shown[-1] <= node.truth_j(0) + 1e-3
    assert shown == sorted(shown)
