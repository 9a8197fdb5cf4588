"""`wattune simulate` with real processes that speak NVML."""

import json
import os
import signal
import subprocess
import sys

import pytest

from command import Command, complaint

PYNVML = """
import json, os, pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps({
    "names": [pynvml.nvmlDeviceGetName(h) for h in handles],
    "pids": [[p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)] for h in handles],
    "pid": os.getpid(),
    "limits": [pynvml.nvmlDeviceGetPowerManagementLimit(h) for h in handles],
}))
"""

VIRTUAL = """
import os, time
from pathlib import Path
import pynvml
from wattune.emulator.node import Node

pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
with Node.attach(Path(os.environ["WATTUNE_NODE"])) as node:
    wall, joules, monotonic = time.time(), pynvml.nvmlDeviceGetTotalEnergyConsumption(handle), time.monotonic()
    node.run(0, 1000)
    print(time.time() - wall, (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - joules) / 1000, node.now_s())
    assert time.monotonic() - monotonic < time.time() - wall
"""


@pytest.fixture
def simulate(emulated_library, tmp_path):
    """A function that runs `wattune simulate` and gives what came back; nothing of the user's is touched."""
    environment = {
        **os.environ,
        "WATTUNE_CACHE": str(emulated_library.parent.parent),
        "WATTUNE_STATE": str(tmp_path / "state"),
        "WATTUNE_STORE": str(tmp_path / "store.db"),
        "WATTUNE_CONFIG": str(tmp_path / "none.toml"),
        "TMPDIR": str(tmp_path),
    }
    environment.pop("WATTUNE_NODE", None)

    def run(*arguments):
        command = [sys.executable, "-m", "wattune", "simulate", *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    run.environment, run.folder = environment, tmp_path
    return run


def test_a_program_finds_the_gpus_and_is_their_user(simulate):
    done = simulate("--gpu", "a100,v100", "--", sys.executable, "-c", PYNVML)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["names"] == ["NVIDIA A100-SXM4-40GB (simulated)", "Tesla V100-PCIE-32GB (simulated)"]
    assert found["pids"] == [[found["pid"]]] * 2
    assert "simulated" in done.stderr
    assert "truth J" in done.stderr


def test_the_exit_code_passes_through_and_nothing_is_left(simulate):
    done = simulate("--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err" in done.stderr
    assert list(simulate.folder.glob("wattune-simulate-*")) == []


def test_json_keeps_standard_output_to_itself(simulate):
    done = simulate("--gpu", "v100", "--count", "2", "--json", "--", "sh", "-c", "echo noise; nvidia-smi -pl 150")
    found = json.loads(done.stdout)
    assert found["simulated"] is True
    assert [gpu["index"] for gpu in found["gpus"]] == [0, 1]
    assert all(gpu["energy_j"] > 0 and "simulated" in gpu["name"] for gpu in found["gpus"])
    assert found["nvml_calls"]["setters"] == 2
    assert "noise" in done.stderr


def test_the_truth_goes_to_a_file(simulate):
    file = simulate.folder / "truth.json"
    done = simulate("--truth", str(file), "--", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(file.read_text())["gpus"][0]["time_s"] > 0


def test_virtual_time_passes_when_the_program_says_so(simulate):
    done = simulate("--virtual-time", "--json", "--", sys.executable, "-c", VIRTUAL)
    assert done.returncode == 0, done.stderr
    passed_s, counted_j, now_s = (float(word) for word in done.stderr.split()[:3])
    (gpu,) = json.loads(done.stdout)["gpus"]
    assert gpu["time_s"] == pytest.approx(passed_s, abs=1e-6)
    assert now_s == pytest.approx(passed_s, abs=1e-6)
    assert gpu["iterations"] == pytest.approx(1000, abs=1e-3)
    assert counted_j == pytest.approx(gpu["energy_j"], abs=0.1 * 500)


def test_our_own_commands_find_the_gpus_through_nvml(simulate):
    done = simulate("--gpu", "a40", "--", sys.executable, "-m", "wattune", "devices", "--json")
    assert done.returncode == 0, done.stderr
    assert any("A40" in str(device) and "nvml:0" in str(device) for device in json.loads(done.stdout)["devices"])


def test_unprivileged_programs_may_read_and_not_set(simulate):
    done = simulate("--unprivileged", "--", "sh", "-c", "nvidia-smi -L && nvidia-smi -pl 200")
    assert done.returncode == 4
    assert "simulated" in done.stdout


def test_a_lost_gpu(simulate):
    done = simulate("--count", "2", "--fault", "1:lost", "--", "nvidia-smi", "-i", "1", "-L")
    assert done.returncode == 15
    assert simulate("--count", "2", "--fault", "1:lost", "--", "nvidia-smi", "-i", "0", "-L").returncode == 0


def test_signals_reach_the_command(simulate):
    script = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); time.sleep(3600)"
    )
    command = [sys.executable, "-m", "wattune", "simulate", "--", sys.executable, "-c", script]
    with subprocess.Popen(command, env=simulate.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        _, complaint = process.communicate()
    assert process.returncode == 9
    assert b"simulated" in complaint


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--gpu", "a1oo", "--", "true"), 1, "hint:"),
        (("--workload", "resnet5", "--", "true"), 1, "hint:"),
        (("--fault", "0:tired", "--", "true"), 1, "is not a fault"),
        (("--fault", "4:lost", "--", "true"), 1, "no GPU 4"),
        (("--count", "99", "--", "true"), 1, "cannot be simulated"),
        (("--gpu", ",", "--", "true"), 1, "cannot be simulated"),
        (("--truth", "missing/file", "--", "true"), 1, "cannot write"),
        (("--", "no-such-command"), 1, "no command"),
        ((), 2, "missing"),
        (("--count", "0", "--", "true"), 2, "count"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(simulate, arguments, code, words):
    done = simulate(*arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(simulate.folder.glob("wattune-simulate-*")) == []


FULL = """
mount -t tmpfs -o size=64k none "$1" && cd "$1" && head -c 60000 /dev/zero > filling
shift
exec "$@"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk")
def test_a_full_disk_is_named_and_does_not_end_with_sigbus(tmp_path, emulated_library):
    small = tmp_path / "small"
    small.mkdir()
    command = Command(tmp_path)
    command.environment["WATTUNE_CACHE"] = str(emulated_library.parents[1])  # compiled before the disk is full
    shell = ["unshare", "-m", "sh", "-ec", FULL, "sh", str(small)]
    if subprocess.run([*shell, "true"], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*shell, *command.line("simulate", "--", "true")],
        env={**command.environment, "TMPDIR": str(small)},
        capture_output=True,
        text=True,
    )
    message, hint = complaint(done)
    assert "No space left on device" in message
    assert "TMPDIR" in hint


TORCH = """
hooks = []
register_optimizer_step_post_hook = hooks.append
class Optimizer:
    def step(self):
        [hook(self, (), {}) for hook in hooks]
"""
FOLLOWING = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from torch.optim.optimizer import Optimizer
import pynvml
pynvml.nvmlInit()
handle, one = pynvml.nvmlDeviceGetHandleByIndex(0), Optimizer()
def seconds(steps):
    start = time.time()
    [one.step() for _ in range(steps)]
    return (time.time() - start) / steps
one.step()
fast = seconds(20)
pynvml.nvmlDeviceSetGpuLockedClocks(handle, 705, 705)
print(fast, seconds(20))
"""


def write_torch(folder):
    optimizer = folder / "torch" / "optim" / "optimizer.py"
    optimizer.parent.mkdir(parents=True)
    for file in (optimizer.parent / "__init__.py", optimizer.parent.parent / "__init__.py"):
        file.touch()
    optimizer.write_text(TORCH)


def test_steps_follow_the_simulated_clock(simulate):
    write_torch(simulate.folder)
    (simulate.folder / "program.py").write_text(FOLLOWING)
    done = simulate("--follow", "--virtual-time", "--", sys.executable, "program.py")
    assert done.returncode == 0, done.stderr
    fast, slow = map(float, done.stdout.split())
    assert fast == pytest.approx(0.0684, rel=0.02)
    assert 1.3 * fast < slow < 2 * fast
    alone = simulate("--virtual-time", "--", sys.executable, "program.py")
    assert alone.stdout.split() == ["0.0", "0.0"]


def test_nothing_to_follow_is_refused(simulate):
    refused = simulate("--follow", "--workload", "none", "--", "true")
    assert refused.returncode == 2
    assert "--follow needs a workload" in refused.stderr


def test_a_sweep_of_a_program_that_does_not_follow_recommends_nothing(simulate):
    sweep = (sys.executable, "-m", "wattune", "sweep", "--points", "2", "--json", "--", "sleep", "0.6")
    done = simulate("--", *sweep)
    found = json.loads(done.stdout)
    assert "wattune simulate --follow" in found["doubt"]
    assert [name for trial in found["trials"] for name in trial["names"]] == ["driver default"]


STEPPING = """
import sys, time
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from torch.optim.optimizer import Optimizer
one, end = Optimizer(), time.monotonic() + 4
while time.monotonic() < end:
    one.step()
    print("step")
    time.sleep(0.02)
"""


@pytest.mark.parametrize("options", [(), ("--no-inject", "--step-pattern", "step")], ids=["hook", "pattern"])
def test_a_run_of_a_program_that_does_not_follow_claims_nothing(simulate, options):
    write_torch(simulate.folder)
    (simulate.folder / "program.py").write_text(STEPPING)
    done = simulate(
        "--", sys.executable, "-m", "wattune", "run", "--json", *options, "--", sys.executable, "program.py"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert any("wattune simulate --follow" in event["text"] for event in found["events"])
    assert not found["saving_percent"]  # unknown, or none where it ended before a clock was set
    assert not found["slowdown_percent"]
    assert found["held"] is None
