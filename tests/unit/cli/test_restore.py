import json

import pytest

from wattune.cli.main import run
from wattune.core.setting import Setting
from wattune.devices.journal import Entry, Journal, boot_id


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    return tmp_path / "state"


def abandon(state, uuid, device):
    """What a process leaves that was killed after it limited the GPU to less than 350 W."""
    claim = Journal(state).claim(uuid, label=uuid)
    claim.write(Entry(uuid, device, ("power_limit",), {"power_limit_w": 350.0}, 4711, boot_id()))
    claim.release()


def test_without_an_entry_there_is_nothing_to_do(state, capsys):
    assert run(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out
    assert run(["restore", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"restored": [], "failed": []}


def test_what_a_dead_process_left_is_undone_once(state, capsys, emulated_node):
    node = emulated_node("a100")
    abandon(state, "GPU-1", "nvml:0")
    assert run(["restore"]) == 0
    assert capsys.readouterr().out == "restored nvml:0: power limit as before process 4711\n"
    assert node.setting(0) == Setting(power_limit_w=350.0)
    assert run(["restore"]) == 0
    assert "nothing to restore" in capsys.readouterr().out


def test_a_gpu_of_a_living_process_is_left_alone(state, capsys, emulated_node):
    node = emulated_node("a100")
    abandon(state, "GPU-1", "nvml:0")
    claim = Journal(state).claim("GPU-1", label="GPU-1")
    assert run(["restore", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["restored"] == []
    assert node.setting(0) == Setting(power_limit_w=400.0)
    claim.release()


def test_an_entry_that_cannot_be_undone_stays_and_is_named(state, capsys, emulated_node):
    node = emulated_node("a100")
    abandon(state, "GPU-1", "nvml:0")
    node.lose(0)
    assert run(["restore", "--json"]) == 1
    captured = capsys.readouterr()
    failed = json.loads(captured.out)["failed"]
    assert failed[0]["device"] == "nvml:0"
    assert "fallen off the bus" in failed[0]["error"]
    assert failed[0]["hint"]
    assert captured.err.startswith("error: ")
    assert len(Journal(state).entries()) == 1
