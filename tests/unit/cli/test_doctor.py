import json

import pytest

from wattune.cli.main import run


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
    assert node.setter_calls() == 0
    assert simulated is True
    assert "emulated NVML (simulated GPUs)" in found["driver"]["line"]
    assert found["store"]["level"] == "ok"
    assert node.setting(0) == before


def test_a_problem_gets_the_line_to_run(capsys, emulated_node):
    emulated_node("a100").lose(0)
    assert run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "does not answer" in out
    assert "    → " in out


def test_a_state_folder_that_cannot_be_written_is_a_finding(capsys, emulated_node, tmp_path, monkeypatch):
    emulated_node("a100")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "file" / "state"))
    _, found = findings(capsys)
    assert found["journal"]["level"] == "problem"
    assert found["journal"]["fix"]


def test_a_store_that_cannot_be_used_is_a_finding(capsys, emulated_node, monkeypatch):
    emulated_node("a100")
    monkeypatch.setenv("WATTUNE_STORE", "/dev/null/history.db")
    _, found = findings(capsys)
    assert found["store"]["level"] == "problem"
    assert found["store"]["fix"]
