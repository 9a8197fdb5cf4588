"""`wattune layers measure`, and plans from its table."""

from __future__ import annotations

import json

import pytest

from wattune.cli.layers.measure import chosen_settings
from wattune.cli.main import run
from wattune.core.setting import DRIVER_DEFAULT
from wattune.devices.simulated import SimulatedGpu
from wattune.levels.layer.table_file import read_table
from wattune.physics.catalog import load_model

NETWORK = ("--model", "vgg16", "--batch", "64", "--precision", "fp32")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(capsys, *arguments):
    assert run(["layers", *arguments]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("hint: ")
    return lines[0]


def test_a_table_from_few_settings_is_planned_with_a_transfer(home, capsys):
    measure = ["layers", "measure", *NETWORK, "--device", "sim:a4000", "--settings", "4", "--out", "t.csv", "--json"]
    assert run(measure) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated"]
    table = read_table(home / "t.csv")
    assert table.simulated
    assert found["measurements"] == table.time_s.size == found["layers"] * found["settings"]
    plan = ["layers", "plan", *NETWORK, "--gpu", "a4000", "--table", "t.csv", "--switch-latency", "50ms", "--json"]
    assert run([*plan, "--transfer"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["simulated"]
    assert 0 < planned["verdict"]["saving_percent"] < 25


def test_an_interrupted_measurement_goes_on_where_it_stopped(home, capsys):
    measure = ["layers", "measure", *NETWORK, "--device", "sim:a4000", "--settings", "2", "--resume", "cells.jsonl"]
    assert run([*measure, "--out", "first.csv"]) == 0
    lines = (home / "cells.jsonl").read_text().splitlines()
    (home / "cells.jsonl").write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    assert run([*measure, "--out", "second.csv"]) == 0
    first, second = read_table(home / "first.csv"), read_table(home / "second.csv")
    assert second.names == first.names
    assert second.settings == first.settings
    assert (home / "cells.jsonl").read_text().count("\n") == len(lines)


def test_no_setting_is_above_the_clock_that_the_step_reaches():
    gpu = SimulatedGpu(load_model("a4000"))
    settings = chosen_settings(gpu, 6, highest_mhz=1740)
    assert all(setting.sm_mhz is not None and setting.sm_mhz <= 1740 for setting in settings)
    assert chosen_settings(gpu, 6)[0] == DRIVER_DEFAULT


def test_bad_input_gets_one_line(capsys, home):
    assert "--transfer" in complaint(capsys, "plan", *NETWORK, "--gpu", "a4000", "--transfer")
    assert "is no share" in complaint(
        capsys, "measure", *NETWORK, "--device", "sim:a4000", "--error", "much", "--out", "t.csv"
    )
    (home / "other.csv").write_text("layer,sm_mhz,mem_mhz,time_s,energy_j\nforward/a,1000,,1,100\n")
    line = complaint(capsys, "plan", *NETWORK, "--gpu", "a4000", "--table", "other.csv", "--transfer")
    assert "1 layers" in line
