"""A GPU of the catalogue fitted to a sweep that another GPU made."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import wattune.physics.catalog as catalog
from wattune.core.errors import InputError
from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog.parse import parse_model
from wattune.physics.catalog.sheet import Sheet
from wattune.physics.fit.model_fit import (
    Parameter,
    SweepPoint,
    fit_model,
    parameters_of,
    parse_points,
    spent,
    with_values,
)

A100 = catalog.load_model("a100")
NET = Workload(
    name="net",
    phases=(
        Phase(name="multiply", flops=4e12, pipe=Pipe.FP32, dram_bytes=5e9, launches=20),
        Phase(name="add", dram_bytes=4e10, launches=20),
    ),
)
HEADER = "workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j\n"


def sweep(model, settings, workload=NET):
    asked = [SweepPoint(workload.name, setting, 1.0, 1.0) for setting in settings]
    time_s, power_w = spent(model, {workload.name: workload}, asked)
    return [replace(point, time_s=t, energy_j=t * w) for point, t, w in zip(asked, time_s, power_w, strict=True)]


def other_a100():
    core = replace(A100.core, voltage_knee_mhz=1080.0, voltage_ratio=1.25, board_w=A100.core.board_w + 12)
    return replace(A100, core=core)


CLOCKS = [Setting(sm_mhz=mhz) for mhz in range(510, 1411, 90)]
LIMITS = [Setting(power_limit_w=float(watts)) for watts in range(120, 401, 40)]


@pytest.mark.parametrize("known", [True, False])
def test_a_fit_follows_a_sweep_of_another_gpu(known):
    points = sweep(other_a100(), CLOCKS)
    fit = fit_model(A100, points, {"net": NET} if known else {})
    assert fit.time_s == pytest.approx([point.time_s for point in points], rel=0.01)
    assert fit.power_w == pytest.approx([point.power_w for point in points], rel=0.02)
    fitted = {parameter.key: parameter for parameter in fit.parameters}
    assert fitted["core.voltage_knee_mhz"].value == pytest.approx(1080, rel=0.03)
    assert fitted["core.voltage_knee_mhz"].before == A100.core.voltage_knee_mhz
    assert 0 < fitted["core.voltage_knee_mhz"].sd < 40
    assert (fit.before_power_w is None) is (not known)


def test_limits_tell_a_fit_something_too():
    points = sweep(other_a100(), LIMITS)
    fit = fit_model(A100, points, {"net": NET})
    assert fit.power_w == pytest.approx([point.power_w for point in points], rel=0.03)
    assert fit.time_s == pytest.approx([point.time_s for point in points], rel=0.03)


def test_a_fit_to_its_own_sweep_changes_no_parameter():
    fit = fit_model(A100, sweep(A100, CLOCKS), {"net": NET})
    for parameter in fit.parameters:
        assert parameter.value == pytest.approx(parameter.before, rel=0.03), parameter.key


def test_values_go_where_their_keys_say():
    parameters = parameters_of(A100, [Pipe.FP32])
    values = {parameter.key: parameter.base * 1.01 for parameter in parameters}
    model = with_values(A100, values)
    assert model.core.voltage_knee_mhz == pytest.approx(A100.core.voltage_knee_mhz * 1.01)
    assert model.unit(Pipe.FP32).w_per_ghz == pytest.approx(A100.unit(Pipe.FP32).w_per_ghz * 1.01)
    assert model.unit(Pipe.FP16) == A100.unit(Pipe.FP16)
    assert model.memory.j_per_byte == pytest.approx(A100.memory.j_per_byte * 1.01)


@pytest.mark.parametrize(
    "parameter",
    [Parameter("a", 30.0, 0.5), Parameter("b", 1.37, 0.5, offset=1.0), Parameter("c", 0.88, 0.4, most=1.0)],
)
def test_a_parameter_comes_back_from_its_prior(parameter):
    assert parameter.value(parameter.prior.mean) == pytest.approx(parameter.base)
    assert parameter.value_sd(parameter.prior.mean, 0.01) > 0


def lines(*rows):
    return HEADER + "".join(f"{row}\n" for row in rows)


GOOD = [f"net,{mhz},,,0.1,{20 + mhz / 100}" for mhz in range(510, 1411, 150)]


def test_a_good_sweep_is_read():
    points = parse_points(lines(*GOOD), file="s.csv", model=A100)
    assert len(points) == 7
    assert points[0] == SweepPoint("net", Setting(sm_mhz=510), 0.1, 25.1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("net,1500,,,0.1,20", "s.csv, line 9, column sm_mhz: 1500 MHz lies outside of the 210 to 1410 MHz"),
        ("net,900,5001,,0.1,20", "line 9, column mem_mhz"),
        ("net,,,450,0.1,20", "line 9, column power_limit_w"),
        ("net,900,,,nan,20", "line 9, column time_s"),
        ("net,900,,,0.1,-3", "line 9, column energy_j"),
        ("net,900,,,0.1,20000", "line 9, column energy_j: 200000 W is far beyond"),
        ("net,fast,,,0.1,20", "line 9, column sm_mhz: 'fast' is not a number"),
        ("net,900,,,0.1", "line 9, column energy_j: 5 cells for 6 columns"),
    ],
)
def test_a_bad_cell_is_named(row, words):
    with pytest.raises(InputError) as caught:
        parse_points(lines(*GOOD, row), file="s.csv", model=A100)
    assert words in caught.value.message
    assert caught.value.hint


def test_too_few_settings_are_refused():
    with pytest.raises(InputError, match="4 settings"):
        parse_points(lines(*GOOD[:4], GOOD[0]), file="s.csv", model=A100)


def test_a_workload_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InputError) as caught:
        parse_points(lines(*GOOD), file="s.csv", model=A100, workload="vgg16")
    assert "net" in (caught.value.hint or "")


@pytest.mark.parametrize("name", catalog.catalog_names())
def test_every_catalogue_file_survives_being_written(name):
    sheet = Sheet.read(Path(catalog.__file__).parent / f"{name}.toml")
    assert tomllib.loads(sheet.toml) == sheet.document


def test_a_fitted_file_is_one_that_the_catalogue_accepts(tmp_path):
    fit = fit_model(A100, sweep(other_a100(), CLOCKS), {"net": NET})
    sheet = Sheet.read(Path(catalog.__file__).parent / "a100.toml")
    source = 'fit of "my\x7f \tsweep".csv'
    file = tmp_path / "mine.toml"
    file.write_text(sheet.replaced(fit.sourced(source), file=file).toml)
    model = catalog.read_model(file)
    assert model.key == "mine"
    assert model.core.voltage_knee_mhz == pytest.approx(fit.model.core.voltage_knee_mhz, rel=1e-5)
    assert model.memory.efficiency == pytest.approx(fit.model.memory.efficiency, rel=1e-5)
    knee = Sheet.read(file).sourced("core.voltage_knee_mhz")
    assert knee.mark == "measured"
    assert source in knee.source
    assert np.isfinite(parse_model(Sheet.read(file)).core.voltage_ratio)
