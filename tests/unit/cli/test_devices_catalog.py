import json

import pytest

from wattune.cli.main import run
from wattune.physics.catalog import catalog_names


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("COLUMNS", "100")


def test_the_catalogue_lists_every_gpu_and_how_well_it_is_known(capsys):
    assert run(["devices", "--catalog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in catalog_names():
        assert sum(line.startswith(f"sim:{name} ") for line in lines) == 1
    assert "(simulated)" in lines[1]


def test_a_gpu_of_the_catalogue_shows_each_value_with_mark_and_source(capsys):
    assert run(["devices", "--catalog", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "NVIDIA A100-SXM4-40GB (simulated)" in shown
    line = next(line for line in shown.splitlines() if line.startswith("core.voltage_knee_mhz"))
    assert line.split()[1:3] == ["994", "measured"]


def test_the_catalogue_is_json_too(capsys):
    assert run(["devices", "--catalog", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["simulated"] is True
    assert [gpu["device"] for gpu in document["catalogue"]] == [f"sim:{name}" for name in catalog_names()]
    for gpu in document["catalogue"]:
        assert "simulated" in gpu["name"]
        assert all(value["mark"] in ("measured", "published", "estimated") for value in gpu["values"])
        assert all(value["source"] for value in gpu["values"])
    assert run(["devices", "--catalog", "sim:rtx2000ada-laptop", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["catalogue"]) == 1


def test_a_gpu_that_is_not_in_the_catalogue_gets_a_hint(capsys):
    assert run(["devices", "--catalog", "a1000"]) == 1
    assert "did you mean a100" in capsys.readouterr().err


def test_catalogue_and_device_exclude_each_other(capsys):
    assert run(["devices", "--catalog", "a100", "--device", "sim:a100"]) == 2
    assert "cannot be used together" in capsys.readouterr().err
