"""`wattune layers switch-latency` on simulated GPUs, in virtual time."""

import json
import re

import pytest

from wattune.cli.main import run
from wattune.levels.layer.switch_latency import KIND, latest_switching
from wattune.levels.layer.switching import SwitchCost
from wattune.physics.catalog import load_model
from wattune.store.sql_store import open_store


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable, place in (("STORE", "history.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.setenv("WATTUNE_DEVICE", "sim:a100")
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def document(capfd, *arguments):
    assert run(["layers", "switch-latency", "--json", *arguments]) == 0
    return json.loads(capfd.readouterr().out)


def test_the_result_is_stored_for_the_planner(capfd, home):
    found = document(capfd, "--device", "sim:a4000", "--repeats", "1")
    model = load_model("a4000")
    (stored,) = open_store(str(home / "history.db")).runs(kind=KIND)
    assert stored.simulated
    assert stored.details == found
    cost = latest_switching([stored], model.spec(), known=SwitchCost.of(model.spec(), model.change))
    assert cost.sm_latency_s == found["sm"]["median_s"]
    assert cost.mem_stall_s == found["mem"]["stall_s"]


def test_it_is_not_stored_on_request(capfd, home):
    document(capfd, "--no-store", "--repeats", "1")
    assert not (home / "history.db").exists()


def test_clocks_and_repeats_are_as_given(capfd):
    found = document(capfd, "--clocks", "705,1410", "--repeats", "3")
    assert [(target["mhz"], target["tried"]) for target in found["sm"]["targets"]] == [(705, 3), (1410, 3)]


def test_the_screen_marks_simulated_gpus_and_names_what_limits_a_clock(capfd):
    assert run(["layers", "switch-latency", "--workload", "resnet50", "--repeats", "1"]) == 0
    text = capfd.readouterr().out
    assert "(simulated), load: resnet50" in text
    assert re.search(r"1410 MHz missed: 1\d\d\d MHz held.*power cap", text, re.DOTALL)
    assert "stall not measured" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--clocks", "fast"), "not a list of clocks"),
        (("--clocks", "1410"), "two or more core clocks"),
        (("--clocks", "1410,1400"), "no core clock of 1400 MHz"),
        (("--workload", "resnet5000"), "no workload"),
        (("--clocks", "1395,1350", "--workload", "resnet50"), "power cap"),
        (("--", "true"), "runs a load of its own"),
    ],
)
def test_bad_input_is_one_line(capfd, home, arguments, message):
    assert run(["layers", "switch-latency", *arguments]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert not (home / "history.db").exists()
