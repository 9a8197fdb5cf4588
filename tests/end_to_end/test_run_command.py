"""`wattune run` and `wattune attach` around real programs: whatever these do, their output and exit code are theirs."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from command import Command, complaint
from emulated import plain_load
from processes import PATIENCE_S, wait_until
from wattune.core.run_folder import PREFIX, places
from wattune.core.setting import Setting
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.node import Privilege
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.process import beside
from wattune.workloads.catalog import make_workload

FOUND = Setting(None, None, 400.0)
SIM = ("--device", "sim:a100")


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


class Started(Command):
    """A command that ends whatever a test left running."""

    def __init__(self, folder, node):
        super().__init__(folder)
        self.processes = []
        self.environment |= {
            "WATTUNE_NODE": str(node.path),
            "LD_LIBRARY_PATH": str(node.library.parent),
            "WATTUNE_DEVICE": "nvml:0",
        }

    def start(self, *arguments, **variables):
        self.processes.append(super().start(*arguments, **variables))
        return self.processes[-1]

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdout, process.stderr):
                pipe.close()
            process.wait()


@pytest.fixture
def tuning(emulated_node, tmp_path):
    """A function that gives a node and a command that finds it."""
    with ExitStack() as stack:

        def make(*, privilege=Privilege.GRANTED):
            node = emulated_node("a100", clock="wall", privilege=privilege)
            command = Started(tmp_path, node)
            stack.callback(command.end)
            return node, command

        yield make


def play(node, pid):
    node.play(0, tabulate(load_model("a100"), make_workload("resnet50")), pid=pid)


def child_of(process):
    """The program that a `wattune run` started, once it has."""
    wait_until(lambda: psutil.Process(process.pid).children(), process)
    return psutil.Process(process.pid).children()[0]


STEPS = "import time\nfor _ in range({}): time.sleep(0.05); print('step', flush=True)"


def stepper(seconds):
    """A program that reports a step twenty times a second, for so long."""
    return ("--step-pattern", "step", "--", sys.executable, "-c", STEPS.format(20 * seconds))


UNTIL = """
import os, sys, time
while not os.path.exists("enough"):
    time.sleep(0.05)
    print("step", flush=True)
sys.exit(7)
"""
STEPS_UNTIL_ENOUGH = ("--step-pattern", "step", "--", sys.executable, "-c", UNTIL)


def read_until(process, word):
    """Wait until the screen of a command shows a word."""
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"the command ended without showing {word!r}")


def end(process, command):
    """Let a program that steps until there is enough end, and return the document of its `wattune run`."""
    (command.folder / "enough").touch()
    out, err = process.communicate()
    assert process.returncode == 7, err
    document = json.loads(out)
    assert document["exit_code"] == 7
    return document


def events(document):
    return " | ".join(event["text"] for event in document["events"])


# the program's own


@pytest.mark.parametrize("pattern", [(), ("--step-pattern", "out")])
def test_output_and_exit_code_are_the_programs(command, pattern):
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    done = command("run", *SIM, *pattern, "--", sys.executable, "-c", script)
    assert done.returncode == 3
    assert done.stdout == "out\n"
    first, *rest = done.stderr.splitlines()
    assert first.startswith(
        "wattune: NVIDIA A100-SXM4-40GB (simulated): clocks may be set; at most 5 % slower; step times"
    )
    assert "err" in rest


def test_quiet_leaves_the_closing_lines_alone(command):
    done = command("run", "--quiet", *SIM, "--", "sh", "-c", "echo out; echo err >&2")
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\n\nwattune: NVIDIA A100-SXM4-40GB (simulated): ")
    assert command("run", "--quiet", "--screen", *SIM, "--", "true").returncode == 2


def test_a_pattern_that_matched_no_line_is_named(command):
    done = command("run", "--json", *SIM, "--step-pattern", "stepp?ed", "--", "echo", "step")
    assert "--step-pattern 'stepp?ed' matched no line" in events(json.loads(done.stdout))


def test_with_json_the_document_is_alone_on_standard_output(command):
    done = command("run", "--json", *SIM, "--", "echo", "hello")
    document = json.loads(done.stdout)
    assert "hello" in done.stderr
    assert document["exit_code"] == 0
    assert document["command"] == ["echo", "hello"]
    assert document["simulated"] is True
    assert document["windows"] == []


def test_a_program_that_a_signal_ends(command):
    done = command("run", *SIM, "--", "sh", "-c", "kill -KILL $$")
    assert done.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--max-slowdown", "quick", "--", "true"), "slowdown"),
        (("--max-slowdown", "5", "--", "true"), "500 %"),
        (("--objective", "best", "--", "true"), "objective"),
        (("--knobs", "fan", "--", "true"), "knob"),
        (("--step-pattern", "(", "--", "true"), "regular expression"),
        (("--", "no-such-program"), "no command"),
        (("--report", "nowhere/r.html", "--", "true"), "cannot write"),
        (("--policy", "gpoeo", "--objective", "edp", "--", "true"), "slowdown"),
        (("--workload", "nothing", "--", "true"), "workload"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(command, arguments, word):
    message, hint = complaint(command("run", *SIM, *arguments))
    assert word in message
    assert hint


def test_both_kinds_of_objective_at_once_are_wrong_usage(command):
    done = command("run", *SIM, "--max-slowdown", "5%", "--objective", "edp", "--", "true")
    assert done.returncode == 2


def test_gpus_of_two_kinds_are_tuned_each_by_itself(command):
    both = ("--device", "sim:a100", "--device", "sim:v100")
    message, hint = complaint(command("run", *both, "--", "true"))
    assert "one kind" in message
    assert "--per-gpu" in hint
    done = command("run", "--json", "--per-gpu", "--report", "r.html", *both, "--", "sh", "-c", "exit 4")
    assert done.returncode == 4
    document = json.loads(done.stdout)
    assert [len(one["gpus"]) for one in document["each"]] == [1, 1]
    assert [one["command"] for one in (document, *document["each"])] == [["sh", "-c", "exit 4"]] * 3
    assert (command.folder / "r-1.html").exists()


# the GPU


def test_a_program_that_never_uses_the_gpu_has_nothing_set(tuning):
    node, command = tuning()
    before = node.setter_calls()
    done = command("run", "--json", *stepper(2))
    document = json.loads(done.stdout)
    assert node.setter_calls() == before
    assert document["windows"] == []
    assert document["held"] is None


def test_without_permission_the_program_runs_as_ever_and_it_is_said(tuning):
    node, command = tuning(privilege=Privilege.DENIED)
    script = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {STEPS.format(72_000)!r}]))"
    process = command.start("run", "--json", "--screen", "--step-pattern", "step", "--", sys.executable, "-c", script)
    child = child_of(process)
    wait_until(child.children, process)
    worker = child.children()[0]
    play(node, worker.pid)  # what a program starts belongs to it
    read_until(process, "tuning ended")
    worker.terminate()
    out, _ = process.communicate()
    assert process.returncode == 256 - signal.SIGTERM  # what `sys.exit(-15)` comes to
    assert "permission" in events(json.loads(out))
    assert node.setting(0) == FOUND


def test_a_lack_of_permission_is_said_before_the_program_starts(tuning):
    node, command = tuning(privilege=Privilege.DENIED)
    before = node.setter_calls()
    done = command("run", "--no-store", "--", sys.executable, "-c", "import sys; print('begun', file=sys.stderr)")
    said, _, _ = done.stderr.partition("begun")
    assert "clocks may not be set for lack of permission (`wattune doctor`" in said
    assert node.setter_calls() == before


def test_a_gpu_that_is_shared_is_not_set(tuning):
    node, command = tuning()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        before = node.setter_calls()
        process = command.start("run", "--json", "--screen", *STEPS_UNTIL_ENOUGH)
        node.join(0, pid=other.pid)
        play(node, child_of(process).pid)
        node.join(0, pid=other.pid)
        read_until(process, "sharing the GPU")
        document = end(process, command)
    finally:
        other.kill()
        other.wait()
    assert node.setter_calls() == before
    assert node.setting(0) == FOUND
    assert "sharing the GPU" in events(document)


def test_a_signal_reaches_the_program_and_the_gpu_is_restored(tuning):
    node, command = tuning()
    process = command.start("run", *stepper(3600))
    play(node, child_of(process).pid)
    wait_until(lambda: node.setting(0) != FOUND, process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert node.setting(0) == FOUND


def test_a_program_that_exits_during_the_search(tuning):
    node, command = tuning()
    process = command.start("run", "--json", *STEPS_UNTIL_ENOUGH)
    play(node, child_of(process).pid)
    wait_until(lambda: node.setting(0) != FOUND, process)
    document = end(process, command)
    assert document["windows"][0]["purpose"] == "baseline"
    assert node.setting(0) == FOUND


FORK = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open("child", "w").write(str(os.getpid()))
    os.close(1), os.close(2)  # as a daemon does, so that nobody waits for its output
    while not os.path.exists("enough"):
        time.sleep(0.05)
    os._exit(0)
while not os.path.exists("parent-enough"):
    time.sleep(0.05)
    print("step", flush=True)
print("the parent ends", flush=True)
os._exit(5)
"""


def test_a_program_that_forks_and_leaves_its_child(tuning):
    node, command = tuning()
    process = command.start("run", "--json", "--step-pattern", "step", "--", sys.executable, "-c", FORK)
    left = command.folder / "child"
    wait_until(lambda: left.exists() and left.read_text(), process)
    play(node, int(left.read_text()))
    wait_until(lambda: node.setting(0) != FOUND, process)  # what the program forked belongs to it
    (command.folder / "parent-enough").touch()
    _, err = process.communicate()
    assert process.returncode == 5, err
    assert "the parent ends" in err
    assert node.setting(0) == FOUND  # although its child goes on
    assert psutil.pid_exists(int(left.read_text()))
    (command.folder / "enough").touch()


def run_folders(pid):
    """The folders in which a `wattune run` shares a file with its program."""
    return [path for place in places() for path in Path(place).glob(f"{PREFIX}{pid}-*")]


def test_after_kill_9_the_watchdog_restores_while_the_program_goes_on(tuning):
    node, command = tuning()
    process = command.start("run", *stepper(3600))
    child = child_of(process)
    play(node, child.pid)
    wait_until(lambda: node.setting(0) != FOUND, process)
    assert len(run_folders(process.pid)) == 1
    process.kill()
    process.wait()
    wait_until(lambda: node.setting(0) == FOUND)
    assert child.is_running()  # it writes to the pipe of this test by itself
    wait_until(lambda: not run_folders(process.pid))
    child.kill()
    assert "nothing to restore" in command("restore").stdout


def test_a_program_that_is_stopped_and_goes_on(tuning):
    node, command = tuning()
    process = command.start("run", "--json", *STEPS_UNTIL_ENOUGH)
    child = child_of(process)
    play(node, child.pid)
    wait_until(lambda: node.setting(0) != FOUND, process)
    child.suspend()
    wait_until(lambda: node.setting(0) == FOUND, process)
    child.resume()
    assert "the program is stopped" in events(end(process, command))


def test_a_gpu_that_is_lost_midway(tuning):
    node, command = tuning()
    process = command.start("run", "--json", "--screen", *STEPS_UNTIL_ENOUGH)
    play(node, child_of(process).pid)
    wait_until(lambda: node.setting(0) != FOUND, process)
    node.lose(0)
    read_until(process, "fallen off the bus")
    assert "fallen off the bus" in events(end(process, command))


# attach


def test_a_running_process_is_attached_to_until_it_ends(tuning):
    node, command = tuning()
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        gpu = EmulatedGpu.of(load_model("a100"), 0)
        node.play(0, plain_load(gpu, duration_s=(0.5, 0.3), power_w=(350.0, 150.0)), pid=program.pid)
        del command.environment["WATTUNE_DEVICE"]
        process = command.start("attach", "--json", str(program.pid))
        wait_until(lambda: node.setting(0) != FOUND, process)
    finally:
        program.kill()
        program.wait()
    out, err = process.communicate()
    assert process.returncode == 0, err
    document = json.loads(out)
    # How soon the period shows depends on how often a busy machine lets us sample.
    step_times_s = [window["pace_s"] for window in document["windows"] if window["pace_s"] is not None]
    assert step_times_s == [pytest.approx(0.8, rel=0.02)] * len(step_times_s)
    if step_times_s:
        assert document["unit"] == "period"
    assert document["exit_code"] is None
    assert document["command"] == program.args
    assert node.setting(0) == FOUND


def test_attaching_to_what_is_not_there(command):
    message, _ = complaint(command("attach", "4190000"))
    assert "no process 4190000" in message
    message, hint = complaint(command("attach", str(os.getpid())))
    assert "GPUs of process" in message
    assert "--device" in hint


# a slow driver

LONG_S = 2 * PATIENCE_S
"""Longer than a test may take: what waits for such a call fails."""


@pytest.mark.parametrize("words", [("run",), ("measure",), ("hold", "1200MHz")])
def test_a_program_does_not_wait_for_a_slow_driver(tuning, words):
    node, command = tuning()
    node.inject("all", blocking_s=LONG_S)
    process = command.start(*words, "--json", "--", "sh", "-c", "echo ran >&2; exit 7")
    out, err = process.communicate()
    assert (process.returncode, err) == (7, "ran\n")
    document = json.loads(out)
    assert (document["exit_code"], document["gpus"]) == (7, [])
    figures = document if words == ("run",) else document["total"]
    assert (figures["energy_j"], figures["time_s"]) == (None, None)
    why = events(document) if words == ("run",) else document["unmeasured"]
    assert why.endswith("its GPU was not open before it ended")
    node.inject("all")
    usual = json.loads(command(*words, "--json", "--", "true").stdout)
    assert document.keys() == usual.keys()
    assert words == ("run",) or (usual["measured_from_s"], usual["unmeasured"]) == (0.0, None)


@pytest.mark.parametrize("words", [("measure",), ("hold", "1200MHz")])
def test_a_gpu_that_opens_late_is_measured_and_held_from_then_on(tuning, words):
    node, command = tuning()
    node.inject("nvmlDeviceGetSupportedMemoryClocks", blocking_s=4 * beside.PATIENCE_S)
    process = command.start(*words, "--json", *STEPS_UNTIL_ENOUGH)
    began_s = psutil.Process(process.pid).create_time()
    child = child_of(process)
    assert node.setting(0) == FOUND
    play(node, child.pid)
    wait_until(lambda: node.calls().get("nvmlDeviceGetUtilizationRates", 0) > 20, process)  # its trace grows
    if words[0] == "hold":
        assert node.setting(0).sm_mhz == 1200
    document = end(process, command)
    assert node.setting(0) == FOUND
    total, from_s = document["total"], document["measured_from_s"]
    assert from_s > beside.PATIENCE_S
    assert total["energy_j"] > 0
    assert document["unmeasured"] is None
    assert from_s + total["time_s"] < time.time() - began_s
    steps = document["steps"]
    if steps is not None:  # as many as a busy machine let the program do
        assert steps["time_s"] <= total["time_s"]
        assert steps["before_s"] >= from_s
    kept = json.loads(command("history", "--json").stdout)["runs"][0]["details"]
    assert kept["measured_from_s"] == from_s


def test_a_gpu_that_opens_late_is_tuned_from_then_on(tuning):
    node, command = tuning()
    node.inject("nvmlDeviceGetSupportedMemoryClocks", blocking_s=4 * beside.PATIENCE_S)
    process = command.start("run", "--json", *STEPS_UNTIL_ENOUGH)
    play(node, child_of(process).pid)
    read_until(process, "from then on")
    wait_until(lambda: node.setting(0) != FOUND, process)
    document = end(process, command)
    assert "the driver is slow: the GPU was open" in events(document)
    assert document["energy_j"] > 0
    assert document["step_source"] == "pattern"


def test_a_gpu_that_cannot_be_opened_late_leaves_the_program_running(tuning):
    node, command = tuning()
    node.inject("nvmlInit", code=18, blocking_s=4 * beside.PATIENCE_S)
    process = command.start("run", "--json", *STEPS_UNTIL_ENOUGH)
    read_until(
        process, "the program runs on and is not tuned: cannot use NVML: the NVIDIA library and the loaded driver"
    )
    assert "of different versions" in events(end(process, command))
    (command.folder / "enough").unlink()
    needed = command("run", "--require-gpu", *STEPS_UNTIL_ENOUGH)
    assert "of different versions" in complaint(needed)[0]


@pytest.mark.parametrize(("words", "line"), [(("measure",), "measured"), (("hold", "1200MHz"), "held or measured")])
def test_a_gpu_that_cannot_be_opened_late_is_named_once_the_program_runs(tuning, words, line):
    node, command = tuning()
    node.inject("nvmlInit", code=18, blocking_s=4 * beside.PATIENCE_S)
    process = command.start(*words, *STEPS_UNTIL_ENOUGH)
    read_until(process, f"wattune: the command runs on and is not {line}: cannot use NVML")
    (command.folder / "enough").touch()
    _, errors = process.communicate()
    assert process.returncode == 7
    assert f"wattune: nothing was {line}: cannot use NVML" in errors
    assert json.loads(command("history", "--json").stdout)["runs"] == []
