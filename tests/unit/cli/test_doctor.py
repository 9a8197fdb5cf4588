import json

import pytest

from wattune.cli.main import run
from wattune.emulator.node import Privilege


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def findings(capsys):
    assert run(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    return document["simulated"], {finding["topic"]: finding for finding in document["findings"]}


def test_an_emulated_gpu_is_named_as_simulated(capsys, emulated_node):
    node = emulated_node("a100")
    before = node.setting(0)
    simulated, found = findings(capsys)
    assert simulated is True
    assert "emulated NVML (simulated GPUs)" in found["driver"]["line"]
    assert found["store"]["level"] == "ok"
    assert node.setting(0) == before


def test_a_user_without_privilege_gets_the_line_to_run(capsys, emulated_node):
    emulated_node("a100", privilege=Privilege.DENIED)
    _, found = findings(capsys)
    assert found["GPU 0"]["level"] in ("problem", "note")
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "can be measured but not set" in out
    assert "    → " in out


def test_a_store_that_cannot_be_used_is_a_finding(capsys, emulated_node, monkeypatch):
    emulated_node("a100")
    monkeypatch.setenv("WATTUNE_STORE", "/dev/null/history.db")
    _, found = findings(capsys)
    assert found["store"]["level"] == "problem"
    assert found["store"]["fix"]
