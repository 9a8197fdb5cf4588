"""A known setting is held while a command runs, and the GPU is left as it was found."""

import json
import os
import signal
import subprocess
import sys

import pytest

from fakes import FakeGpu
from processes import wait_until
from wattune.cli.hold import unheld_line
from wattune.cli.main import run
from wattune.cli.measured_program import held
from wattune.core.errors import DeviceError, InputError
from wattune.core.reading import Reading, Throttle, Trace
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.emulator.node import Privilege

FOUND = Setting(power_limit_w=400.0)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("WATTUNE_DEVICE", "sim:a100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def environment(node):
    return {**os.environ, "WATTUNE_NODE": str(node.path), "LD_LIBRARY_PATH": str(node.library.parent)}


def complaint(capfd, *arguments):
    assert run(["hold", *arguments]) == 1
    captured = capfd.readouterr()
    assert captured.out == ""
    error, hint = (line for line in captured.err.splitlines() if line.startswith(("error: ", "hint: ")))
    return error, hint


def test_the_setting_and_the_gpu_are_named_before_the_command_starts(capfd):
    assert run(["hold", "1200MHz", "--", sys.executable, "-c", "import sys; print('training', file=sys.stderr)"]) == 0
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "wattune: NVIDIA A100-SXM4-40GB (simulated) is set to 1200 MHz until the command ends"
    assert lines[1] == "training"
    assert any(line.startswith("GPU ") and "energy J" in line for line in lines)


def test_the_document_is_that_of_measure_with_the_setting(capfd):
    assert run(["hold", "1200MHz,390W", "--json", "--", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    captured = capfd.readouterr()
    found = json.loads(captured.out)
    assert captured.err == ""
    assert found["setting"] == {"sm_mhz": 1200, "mem_mhz": None, "power_limit_w": 390.0}
    assert (found["exit_code"], found["simulated"], found["unheld"]) == (3, True, [])
    assert found["total"]["energy_j"] > 0


def test_several_devices_get_the_setting_and_the_run_is_stored(capfd):
    devices = ["--device", "sim:a100", "--device", "sim:v100"]
    assert run(["hold", "1200MHz", *devices, "--", "true"]) == 0
    assert capfd.readouterr().err.count("is set to 1200 MHz") == 2
    assert run(["hold", "1200MHz", "--no-store", "--", "true"]) == 0
    assert run(["hold", "250W", "--name", "kept", "--", "true"]) == 0
    capfd.readouterr()
    assert run(["history", "--kind", "hold", "--json"]) == 0
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert [one["name"] for one in runs] == ["kept", "true"]
    assert runs[0]["details"]["setting"] == "250W"


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        ("1210MHz", "has no core clock of 1210 MHz", "nearest to yours: 1200 and 1215"),
        ("5000W", "takes no power limit of 5000 W", "from 100 to 400 W"),
        ("1200MHz,mem=9MHz", "has no memory clock of 9 MHz", "it has 1215 MHz"),
        ("1200", "1200 has no unit", "1200MHz for a core clock"),
        ("fast", "'fast' is no setting", "write 1200MHz"),
    ],
)
def test_a_setting_that_the_gpu_does_not_have_is_refused_before_the_command(capfd, setting, message, hint):
    error, advice = complaint(capfd, setting, "--", sys.executable, "-c", "print('ran')")
    assert message in error
    assert hint in advice


def test_of_two_devices_none_is_set_if_one_lacks_the_setting(capfd):
    error, _ = complaint(capfd, "1410MHz", "--device", "sim:a100", "--device", "sim:v100", "--", "true")
    assert "V100" in error


def test_a_command_that_is_not_there_is_refused_first(capfd):
    assert "there is no command 'no-such-program'" in complaint(capfd, "1200MHz", "--", "no-such-program")[0]


def test_missing_permission_is_reported_and_the_command_is_not_run(emulated_node, capfd):
    node = emulated_node("a100", clock="wall", privilege=Privilege.DENIED)
    error, hint = complaint(capfd, "1200MHz", "--device", "nvml:0", "--", sys.executable, "-c", "print('ran')")
    assert "lack of permission" in error
    assert "root" in hint
    assert node.setting(0) == FOUND


def test_the_gpu_has_the_setting_while_the_command_runs_and_its_own_afterwards(emulated_node, capfd, monkeypatch):
    node = emulated_node("a100", clock="wall")
    for name, value in environment(node).items():
        monkeypatch.setenv(name, value)
    ask = (
        "import pynvml as n; n.nvmlInit(); "
        "print('limit', n.nvmlDeviceGetPowerManagementLimit(n.nvmlDeviceGetHandleByIndex(0)))"
    )
    assert run(["hold", "1200MHz,250W", "--device", "nvml:0", "--", sys.executable, "-c", ask]) == 0
    captured = capfd.readouterr()
    assert "limit 250000" in captured.out
    assert node.setting(0) == FOUND


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_without_a_command_it_holds_until_a_signal(emulated_node, number, code):
    node = emulated_node("a100", clock="wall")
    line = [sys.executable, "-m", "wattune", "hold", "1200MHz", "--device", "nvml:0", "--no-store"]
    with subprocess.Popen(line, env=environment(node), stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: node.setting(0) == Setting(sm_mhz=1200, power_limit_w=400.0), process)
        first = process.stderr.readline()
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == code
    assert "is set to 1200 MHz until Ctrl-C" in first
    assert "energy J" in rest
    assert "Traceback" not in rest
    assert node.setting(0) == FOUND


class Stuck(FakeGpu):
    """A GPU that cannot be restored."""

    def restore(self):
        raise DeviceError("the driver is gone")


def test_a_gpu_that_cannot_be_restored_is_named_also_where_something_else_fails(capfd):
    with pytest.raises(InputError, match="something else"), held((Stuck(),), Setting(sm_mhz=1410)):
        raise InputError("something else", hint="")
    assert capfd.readouterr().err.startswith(
        "warning: Fake GPU (simulated) could not be restored: the driver is gone\nhint: "
    )


def trace(*readings):
    return Trace("GPU", tuple(Reading(time_s=float(place), **reading) for place, reading in enumerate(readings)))


def test_a_clock_that_did_not_hold_is_reported_with_its_reason():
    fine, capped = {"sm_mhz": 1410}, {"sm_mhz": 1200, "throttle": Throttle.POWER_CAP}
    idle = {"sm_mhz": 210, "throttle": Throttle.IDLE}
    setting = Setting(sm_mhz=1410)
    assert unheld_line(setting, trace(*[fine] * 30, *[idle] * 9, capped)) is None
    line = unheld_line(setting, trace(fine, capped, idle))
    assert line == (
        "GPU: the core clock was not 1410 MHz in 50 % of the readings, but 1200 MHz on average, "
        "limited by the power limit"
    )
    assert unheld_line(setting, trace({}, {})) is None
    assert unheld_line(DRIVER_DEFAULT, trace(capped)) is None


def test_a_limit_that_did_not_hold_is_reported():
    line = unheld_line(Setting(power_limit_w=250.0), trace({"power_limit_w": 300.0}, {"power_limit_w": 300.0}))
    assert line == "GPU: the power limit was not 250 W but 300 W"


def test_throttling_is_reported_after_the_run(capfd):
    line = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    assert run(["hold", "1410MHz,150W", "--", *line]) == 0
    assert "was not 1410 MHz in 100 % of the readings" in capfd.readouterr().err
