import json
import os
import signal
import subprocess
import sys

import pynvml
import pytest

from processes import wait_until
from wattune.cli.main import run
from wattune.core.setting import Setting
from wattune.devices.entry import Entry
from wattune.devices.journal import Journal, boot_id
from wattune.devices.nvml.open import list_visible
from wattune.devices.open import Surroundings, open_gpu


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    return Journal(tmp_path / "state", tmp_path / "locks")


def abandon(journal, node, *, pid=4711, uuid=None):
    """Leave what a process leaves that was killed after it limited the first GPU, found at 350 W, to 400 W."""
    uuid = uuid or list_visible(None, None).gpus[0].uuid
    claim = journal.claim(uuid, label=uuid)
    ours = {"power_limit": (round(node.setting(0).power_limit_w * 1000),)}
    found = {"power_limit": 350_000}
    claim.write(Entry(uuid, f"nvml:{uuid}", pid=pid, boot_id=boot_id(), found=found, ours=ours))
    claim.close()
    return f"nvml:{uuid}"


def limit(watts):
    pynvml.nvmlInit()
    pynvml.nvmlDeviceSetPowerManagementLimit(pynvml.nvmlDeviceGetHandleByIndex(0), watts * 1000)
    pynvml.nvmlShutdown()


def test_without_an_entry_there_is_nothing_to_do(journal, capsys):
    assert run(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out
    assert run(["restore", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"restored": [], "left": [], "failed": [], "held": []}


def test_what_a_dead_process_left_is_undone_once(journal, capsys, emulated_node):
    node = emulated_node("a100")
    device = abandon(journal, node)
    assert run(["restore"]) == 0
    assert capsys.readouterr().out == f"restored {device}: power limit as before process 4711\n"
    assert node.setting(0) == Setting(power_limit_w=350.0)
    assert run(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("how", ["restore", "run"])
def test_root_gives_back_what_another_user_found(journal, tmp_path, capsys, emulated_node, how):
    """A user's process found the GPU at 350 W, limited it to 250 W, and died with its watchdog; then root comes."""
    node = emulated_node("a100")
    uuid = list_visible(None, None).gpus[0].uuid
    (tmp_path / "locks").mkdir()
    (tmp_path / "theirs").mkdir()
    os.chmod(tmp_path / "locks", 0o1777)
    os.chown(tmp_path / "theirs", 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    limit(250)
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        abandon(Journal(tmp_path / "theirs" / "state", tmp_path / "locks"), node, uuid=uuid)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    if how == "restore":
        assert run(["restore"]) == 0
        line = f"restored nvml:{uuid}: power limit as before process 4711 of user 65534\n"
        assert capsys.readouterr().out == line
    else:
        with open_gpu("nvml:0", Surroundings(tmp_path / "state", lock_dir=tmp_path / "locks")) as gpu:
            gpu.apply(Setting(power_limit_w=200))
    assert node.setting(0).power_limit_w == 350
    assert run(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out


def test_a_newer_limit_is_left_and_it_is_said(journal, capsys, emulated_node):
    node = emulated_node("a100")
    device = abandon(journal, node)
    limit(120)
    assert run(["restore", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    why = "its power limit is 120 W, set by somebody else after our 400 W"
    assert document["left"] == [{"device": device, "why": why}]
    assert node.setting(0).power_limit_w == 120
    assert journal.left() == ()


TUNER = """
import sys
from wattune.api import open_gpu
from wattune.core.setting import Setting

with open_gpu("nvml:0") as gpu:
    gpu.apply(Setting(1005))
    print("set", flush=True)
    sys.stdin.read()
"""


def test_a_gpu_of_a_living_process_is_left_alone_and_listed(journal, capsys, emulated_node):
    node = emulated_node("a100", clock="wall")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(node.library.parent)}
    command = [sys.executable, "-c", TUNER]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"set\n"
        assert run(["restore", "--json"]) == 0
        (held,) = json.loads(capsys.readouterr().out)["held"]
        assert (held["pid"], held["state"]) == (process.pid, "running")
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: journal.holders()[0].state == "stopped")
        assert run(["restore"]) == 0
        out = capsys.readouterr().out
        assert f"held by process {process.pid} (stopped, for " in out
        assert f"kill -CONT {process.pid}" in out
        assert run(["doctor", "--json"]) == 0
        findings = json.loads(capsys.readouterr().out)["findings"]
        claim = next(finding for finding in findings if finding["topic"] == "claim")
        assert (claim["level"], claim["fix"]) == ("problem", f"kill -CONT {process.pid}")
        assert node.setting(0).sm_mhz == 1005
        process.send_signal(signal.SIGCONT)
        process.stdin.close()
    assert node.setting(0).sm_mhz is None


def test_an_entry_that_cannot_be_undone_stays_and_is_named(journal, capsys, emulated_node):
    node = emulated_node("a100")
    device = abandon(journal, node)
    node.lose(0)
    assert run(["restore", "--json"]) == 1
    captured = capsys.readouterr()
    failed = json.loads(captured.out)["failed"]
    assert failed[0]["device"] == device
    assert "fallen off the bus" in failed[0]["error"]
    assert failed[0]["hint"]
    assert captured.err.startswith("error: ")
    assert len(journal.left()) == 1


def test_an_entry_of_a_gpu_that_is_not_there_stays(journal, capsys, emulated_node):
    emulated_node("a100")
    claim = journal.claim("GPU-gone", label="x")
    ours = {"sm_clock": (1005,)}
    claim.write(Entry("GPU-gone", "nvml:GPU-gone", pid=1, boot_id=boot_id(), found={}, ours=ours))
    claim.close()
    assert run(["restore", "--json"]) == 1
    assert "no such GPU" in json.loads(capsys.readouterr().out)["failed"][0]["error"]
    assert journal.left() == ("GPU-gone",)
