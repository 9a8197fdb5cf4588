import json

import pytest

from wattune.cli.main import run
from wattune.cli.measured_program import _covered
from wattune.core.reading import Reading, Trace


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_STORE", str(tmp_path / "history.db"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("WATTUNE_DEVICE", "sim:a100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(capfd, *arguments):
    assert run(["measure", "--json", *arguments]) == 0
    return json.loads(capfd.readouterr().out)


def test_the_document_adds_up(capfd):
    found = document(capfd, "--device", "sim:a40", "--device", "sim:v100", "--", "true")
    assert found["simulated"] is True
    assert [gpu["simulated"] for gpu in found["gpus"]] == [True, True]
    assert found["total"]["energy_j"] == pytest.approx(sum(gpu["energy_j"] for gpu in found["gpus"]))
    assert found["total"]["time_s"] == max(gpu["time_s"] for gpu in found["gpus"])
    for part in (*found["gpus"], found["total"]):
        assert part["power_w"] == pytest.approx(part["energy_j"] / part["time_s"])
        assert part["energy_error_j"] > 0


def test_options_of_the_command_are_its_own(capfd):
    assert document(capfd, "echo", "--json", "--device", "x")["command"] == ["echo", "--json", "--device", "x"]


def test_a_run_is_stored_by_default(capfd):
    document(capfd, "--no-store", "--", "true")
    document(capfd, "--name", "kept", "--", "true")
    assert run(["history", "--json"]) == 0
    runs = json.loads(capfd.readouterr().out)["runs"]
    assert [run["name"] for run in runs] == ["kept"]
    assert runs[0]["details"]["exit_code"] == 0


def test_the_trace_has_a_line_per_sample(capfd, home):
    found = document(capfd, "--trace", "trace.csv", "--", "sleep", "0.3")
    lines = (home / "trace.csv").read_text().splitlines()
    assert lines[0] == "time_s,power_w,sm_util,mem_util,sm_mhz"
    assert len(lines) == 1 + found["gpus"][0]["samples"]


def test_people_see_joules_watts_seconds_and_the_word_simulated(capfd):
    assert run(["measure", "--device", "sim:a40", "--device", "sim:v100", "--", "true"]) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "all 2 GPUs (simulated)" in captured.err
    assert [line[:2] for line in captured.err.splitlines() if line[:2] in ("0:", "1:")] == ["0:", "1:"]
    assert "CPU packages: " in captured.err


def test_of_several_gpus_the_lost_one_is_named():
    whole = Trace("one", tuple(Reading(time_s=time_s, energy_j=100 * time_s) for time_s in (0.0, 2.0, 6.0)))
    ended = Trace("other", whole.readings[:2])
    assert "of GPU 1 are those until its last reading" in _covered((whole, ended))
    assert _covered((ended,)) == "the figures are those until its last reading"
