import json

import pynvml
import pytest

from wattune.cli.main import run
from wattune.devices.nvml import library
from wattune.physics.catalog import catalog_names


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("WATTUNE_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("WATTUNE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def no_driver(monkeypatch):
    """Hide an emulated library that an earlier test may have loaded into this process."""

    def missing():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", missing)
    monkeypatch.setattr(library, "SONAME", "libno-such-driver.so.1")


def found(capsys, *arguments):
    assert run(["devices", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["devices"]


@pytest.mark.usefixtures("no_driver")
def test_every_simulated_gpu_is_listed_with_what_may_be_set(capsys):
    devices = found(capsys)
    assert [device["device"] for device in devices if device["device"].startswith("sim:")] == [
        f"sim:{name}" for name in catalog_names()
    ]
    a100 = next(device for device in devices if device["device"] == "sim:a100")
    assert a100["simulated"] is True
    assert a100["name"] == "NVIDIA A100-SXM4-40GB (simulated)"
    assert a100["power_limits"] == {"min_w": 100.0, "default_w": 400.0, "max_w": 400.0}
    assert (a100["clocks"][0]["mem_mhz"], a100["clocks"][0]["sm_mhz"][-1]) == (1215, 1410)
    assert a100["sensors"]["counter_period_s"] == 0.1


@pytest.mark.usefixtures("no_driver")
def test_eighty_columns_are_enough_and_nothing_is_cut(capsys):
    assert run(["devices", "--simulated"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    assert out.count("(simulated)") == len(catalog_names())
    assert sum(line.startswith("sim:") for line in out.splitlines()) == len(catalog_names())


@pytest.mark.usefixtures("no_driver")
def test_simulated_gpus_are_listed_by_name_unless_asked_for(capsys):
    assert run(["devices"]) == 0
    out = capsys.readouterr().out
    assert "no NVIDIA GPU was found" in out
    assert "(simulated)" not in out
    assert all(f"sim:{name}" in out for name in catalog_names())


def test_emulated_gpus_come_first_and_visible_ones_only(capsys, emulated_node, monkeypatch):
    emulated_node("a100", "v100")
    assert [device["device"] for device in found(capsys)][:2] == ["nvml:0", "nvml:1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert found(capsys, "--device", "nvml")[0]["name"] == "Tesla V100-PCIE-32GB (simulated)"


def test_a_lost_gpu_does_not_hide_the_others(capsys, emulated_node):
    emulated_node("a100", "v100").lose(1)
    assert run(["devices", "--json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["devices"][0]["device"] == "nvml:0"
    assert captured.err.startswith("error: cannot open nvml:1: the GPU has fallen off the bus\nhint: ")


def test_what_cannot_be_set_is_the_drivers_and_a_long_path_is_whole(capsys, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    file = folder / "sweep.csv"
    file.write_text("workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\ntraining,,,,0.10,30.0\n")
    assert run(["devices", "--device", f"table:{file}"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines[0].split()[-3:] == ["driver's"] * 3
    assert "".join(line.split(" ")[0] for line in lines) == f"table:{file}"
