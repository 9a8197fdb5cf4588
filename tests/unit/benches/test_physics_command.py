"""`wattune physics fit`, from the sweep to the catalogue file."""

import json
from pathlib import Path

import pytest

from wattune.cli.main import run
from wattune.physics.catalog import read_model

HEADER = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


@pytest.fixture
def sweep(tmp_path, monkeypatch, capsys):
    for variable, place in (("STORE", "h.db"), ("STATE", "state"), ("CONFIG", "none.toml")):
        monkeypatch.setenv(f"WATTUNE_{variable}", str(tmp_path / place))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    made = ["sweep", "--device", "sim:a100", "--workload", "resnet50", "--points", "9", "--even", "--csv", "sweep.csv"]
    assert run(made) == 0
    capsys.readouterr()
    return tmp_path / "sweep.csv"


def test_a_sweep_becomes_a_catalogue_file(sweep, capsys):
    assert run(["physics", "fit", str(sweep), "--gpu", "a100", "--out", "mine.toml", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    found = json.loads(captured.out)
    assert found["simulated"] is True
    assert found["errors"]["time_percent"] < 1
    assert found["errors"]["power_percent"] < 1
    assert found["out"] == "mine.toml"
    knee = next(row for row in found["parameters"] if row["key"] == "core.voltage_knee_mhz")
    assert knee["value"] == pytest.approx(knee["before"], rel=0.05)
    assert knee["sd"] > 0
    assert read_model(Path("mine.toml")).key == "mine"


def test_a_fitted_file_is_a_device_at_once(sweep, capsys):
    assert run(["physics", "fit", str(sweep), "--gpu", "a100", "--out", "mine.toml", "--json"]) == 0
    device = json.loads(capsys.readouterr().out)["device"]
    for name in (device, "sim:./mine.toml", f"sim:{sweep.parent}/mine.toml"):
        assert run(["sweep", "--device", name, "--setting", "1200MHz", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["trials"]) == 2
    for words in (["devices"], ["monitor", "--once"], ["hold", "1200MHz", "--"], ["measure"]):
        tail = ["true"] if words[0] in ("hold", "measure") else []
        assert run([words[0], "--device", device, *words[1:], *tail]) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file mine.toml"),
        ("[", "cannot read mine.toml"),
        ("key = 3", "mine.toml: clocks is not a list of tables"),
        ("", "mine.toml: clocks is not a list of tables"),
    ],
)
def test_a_file_that_is_no_gpu_is_one_line_and_a_hint(sweep, capsys, text, message):
    if text is not None:
        Path("mine.toml").write_text(text)
    assert run(["sweep", "--device", "sim:./mine.toml"]) == 1
    error, hint = capsys.readouterr().err.splitlines()
    assert message.replace("mine.toml", "") in error.replace("./mine.toml", "")
    assert hint.startswith("hint: ")


def test_a_fitted_file_may_be_fitted_again(sweep, capsys):
    assert run(["physics", "fit", str(sweep), "--gpu", "a100", "--out", "mine.toml"]) == 0
    assert run(["physics", "fit", str(sweep), "--gpu", "mine.toml", "--json"]) == 0
    assert "core.voltage_knee_mhz" in capsys.readouterr().out


def test_people_see_a_table_a_picture_and_the_errors(sweep, capsys):
    assert run(["physics", "fit", str(sweep), "--gpu", "a100"]) == 0
    shown = capsys.readouterr().out
    assert "(simulated), fitted to 10 points of sweep.csv" in shown
    for word in ("core.voltage_ratio", "●", "·", "MHz", "mean error of time", "mean error of power"):
        assert word in shown


def test_limits_and_unknown_programs_are_fitted_too(sweep, capsys):
    rows = "".join(f"train.py,,,{watts},{60 / watts},{60 - watts / 20}\n" for watts in range(150, 401, 50))
    Path("mine.csv").write_text(HEADER + rows)
    assert run(["physics", "fit", "mine.csv", "--gpu", "a100"]) == 0
    shown = capsys.readouterr().out
    assert " W\n" in shown
    assert "before" not in shown.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.csv", "--gpu", "a100"), "cannot read none.csv"),
        (("sweep.csv", "--gpu", "a1000"), "there is no simulated GPU 'a1000'"),
        (("sweep.csv", "--gpu", "v100"), "column sm_mhz: 1410 MHz lies outside of"),
        (("sweep.csv", "--gpu", "none.toml"), "there is no file none.toml"),
        (("sweep.csv", "--gpu", "a100", "--workload", "vgg16"), "has no workload 'vgg16'"),
        (("sweep.csv", "--gpu", "a100", "--out", "no/such/folder.toml"), "cannot write no/such/folder.toml"),
    ],
)
def test_what_cannot_be_is_one_line_and_a_hint(sweep, capsys, arguments, words):
    assert run(["physics", "fit", *arguments]) == 1
    captured = capsys.readouterr()
    assert words in captured.err
    assert "hint: " in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
