"""`wattune measure` around real commands: their output, signals and exit codes stay their own."""

import json
import os
import signal
import sys

import pytest

from command import Command, complaint

TRAP = "trap 'echo stopped; exit 9' {signal}; echo ready; while :; do sleep 0.02; done"


@pytest.fixture
def wattune(tmp_path):
    return Command(tmp_path)


def under(node):
    return {"WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}


@pytest.mark.parametrize(
    ("child", "code"),
    [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)],
)
def test_the_exit_code_is_that_of_the_command(wattune, child, code):
    done = wattune("measure", "--device", "sim:a100", "--json", "--", "sh", "-c", child)
    assert done.returncode == code
    document = json.loads(done.stdout)
    assert document["exit_code"] == code
    assert document["simulated"] is True
    assert done.stderr == ""


def test_a_command_that_does_not_exist_is_an_error_of_ours(wattune):
    done = wattune("measure", "--device", "sim:a100", "--json", "--", "no-such-command")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: there is no command 'no-such-command'\nhint: ")
    done = wattune("measure", "--device", "sim:a100", "--", ".")
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot run '.': Permission denied\nhint: ")
    assert json.loads(wattune("history", "--json").stdout)["runs"] == []


def test_the_command_keeps_its_input_and_output(wattune):
    done = wattune("measure", "--name", "talk", "--", sys.executable, "-c", "print('--json', 5)")
    assert done.stdout == "--json 5\n"
    assert "NVIDIA A100-SXM4-40GB (simulated)" in done.stderr
    assert "CPU packages: " in done.stderr
    quiet = wattune("measure", "--device", "sim:a100", "--json", "--", "echo", "to the side")
    assert quiet.stderr == "to the side\n"
    assert json.loads(quiet.stdout)["command"] == ["echo", "to the side"]
    runs = json.loads(wattune("history", "--json").stdout)["runs"]
    assert [run["name"] for run in runs] == ["echo 'to the side'", "talk"]
    assert all(run["simulated"] for run in runs)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_the_command_which_decides(wattune, number):
    script = TRAP.format(signal=number.name.removeprefix("SIG"))
    with wattune.start("measure", "--", "sh", "-c", script) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, number)
        out, errors = process.communicate()
    assert (process.returncode, out) == (9, "stopped\n")
    assert "(simulated)" in errors
    assert "Traceback" not in errors


def test_ctrl_c_that_ends_the_command_still_shows_its_figures(wattune):
    with wattune.start(
        "measure", "--device", "sim:a100", "--json", "--", "sh", "-c", "echo ready >&2; exec sleep 3600"
    ) as process:
        assert process.stderr.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        out, errors = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert json.loads(out)["total"]["energy_j"] > 0
    assert errors == ""
    assert len(json.loads(wattune("history", "--json").stdout)["runs"]) == 1


def test_several_gpus_are_measured_each_and_together(wattune):
    arguments = ("--device", "sim:a100", "--device", "sim:v100", "--device", "sim:a100", "--trace", "trace.csv")
    done = wattune("measure", "--json", *arguments, "--", "sleep", "0.3")
    document = json.loads(done.stdout)
    assert [gpu["name"] for gpu in document["gpus"]] == [
        "NVIDIA A100-SXM4-40GB (simulated)",
        "Tesla V100-PCIE-32GB (simulated)",
    ]
    total_j = sum(gpu["energy_j"] for gpu in document["gpus"])
    assert document["total"]["energy_j"] == pytest.approx(total_j)
    for index in range(2):
        lines = (wattune.folder / f"trace-{index}.csv").read_text().splitlines()
        assert lines[0].startswith("time_s,power_w")
        assert len(lines) > 1


def test_a_gpu_that_is_lost_meanwhile_costs_neither_exit_code_nor_figures(wattune, emulated_node):
    from emulated import plain_gpu, plain_load

    gpu = plain_gpu()
    node = emulated_node(gpu, clock="wall")
    node.play(0, plain_load(gpu))
    waiting = "sleep 0.3; echo ready >&2; while [ ! -e go ]; do sleep 0.02; done; exit 5"
    arguments = ("measure", "--json", "--device", "nvml:0", "--", "sh", "-c", waiting)
    with wattune.start(*arguments, **under(node)) as process:
        assert process.stderr.readline() == "ready\n"
        node.lose(0)
        (wattune.folder / "go").touch()
        out, errors = process.communicate()
    assert process.returncode == 5
    assert errors.startswith("warning: cannot read the energy counter of Plain (simulated): the GPU has fallen off")
    assert "hint: " in errors
    assert "Traceback" not in errors
    document = json.loads(out)
    assert document["total"]["energy_j"] > 0
    assert document["total"]["energy_error_j"] is None


def test_measuring_needs_no_privilege_and_sets_nothing(wattune, emulated_node):
    from wattune.emulator.node import Privilege

    node = emulated_node("a100", clock="wall", privilege=Privilege.DENIED)
    assert wattune("measure", "--device", "nvml:0", "--", "true", **under(node)).returncode == 0
    assert node.setter_calls() == 0


def test_a_sweep_without_privilege_fails_before_its_command_runs(wattune, emulated_node, tmp_path):
    from wattune.emulator.node import Privilege

    node = emulated_node("a100", clock="wall", privilege=Privilege.DENIED)
    ran = tmp_path / "ran"
    message, hint = complaint(wattune("sweep", "--device", "nvml:0", "--", "touch", str(ran), **under(node)))
    assert "permission" in message
    assert "root" in hint
    assert not ran.exists()


def test_a_simulated_gpu_in_place_of_a_missing_driver_is_announced(wattune):
    done = wattune("measure", "--json", "--", "true")
    assert done.stderr.startswith("warning: no NVIDIA driver is installed here: a simulated GPU (sim:a100) is used")
    assert done.stderr.endswith("hint: --require-gpu makes this an error\n")
    assert json.loads(done.stdout)["simulated"] is True


@pytest.mark.parametrize("how", ["flag", "setting"])
def test_a_missing_driver_is_an_error_where_a_gpu_is_required(wattune, tmp_path, how):
    flags, variables = (("--require-gpu",), {}) if how == "flag" else ((), {"WATTUNE_REQUIRE_GPU": "1"})
    message, hint = complaint(wattune("measure", *flags, "--", "touch", str(tmp_path / "started"), **variables))
    assert message == "no NVIDIA driver is installed here, and a GPU is required"
    assert "--require-gpu" in hint
    assert not (tmp_path / "started").exists()


def test_a_driver_that_does_not_work_is_an_error_before_the_command_starts(wattune, tmp_path, emulated_library):
    environment = {"WATTUNE_NODE": str(tmp_path / "none"), "LD_LIBRARY_PATH": str(emulated_library.parent)}
    done = wattune("measure", "--", "touch", str(tmp_path / "started"), **environment)
    assert done.returncode == 1
    assert done.stderr.startswith("error: cannot use NVML: the NVIDIA driver is installed but not loaded\nhint: ")
    assert not (tmp_path / "started").exists()
