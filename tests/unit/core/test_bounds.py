import pytest

from wattune.config import load_config
from wattune.core.codec import JsonReader
from wattune.core.csv_input import parse_csv
from wattune.core.errors import ConfigError, InputError
from wattune.core.measurement import Measurement
from wattune.core.objective import parse_objective, parse_seconds, parse_share

ABSURD = ("1e308", "9" * 400)


@pytest.mark.parametrize("text", [*ABSURD, "inf", "nan", "-5", "20000"])
def test_no_grid_emits_that(text):
    config = load_config({"WATTUNE_GRID_INTENSITY": text, "WATTUNE_CONFIG": "/dev/null"})
    with pytest.raises(ConfigError, match="grid_intensity") as caught:
        _ = config.tariff
    assert caught.value.hint


def test_no_price_is_that_high():
    with pytest.raises(ConfigError, match=r"too large|not a finite"):
        _ = load_config({"WATTUNE_ELECTRICITY_PRICE": f"{'9' * 400} EUR", "WATTUNE_CONFIG": "/dev/null"}).tariff


@pytest.mark.parametrize("column", ["time_s", "energy_j", "power_limit_w", "frequency", "energy"])
@pytest.mark.parametrize("text", [*ABSURD, "inf", "nan", "-1", "1e-308"])
def test_a_table_has_no_absurd_number(column, text):
    (row,) = parse_csv(f"{column}\n{text}\n", file="sweep.csv", required=(column,))
    with pytest.raises(InputError, match=rf"sweep\.csv, line 2, column {column}"):
        row.positive(column)


def test_the_bound_names_the_unit():
    (row,) = parse_csv("energy_j\n1e308\n", file="sweep.csv", required=("energy_j",))
    with pytest.raises(InputError, match=r"1e\+308 J is too large; the most is 1e\+15 J"):
        row.positive("energy_j")


def test_a_json_file_has_no_absurd_number():
    entry = {"time_s": 1.0, "energy_j": 1e308, "time_error_s": None, "energy_error_j": None}
    with pytest.raises(InputError, match=r"plan\.json: runs\[3\].energy_j: 1e\+308 J is too large"):
        JsonReader(source="plan.json").read(Measurement, entry, "runs[3]")


@pytest.mark.parametrize(
    "text", ["deadline:1e300", "deadline:" + "9" * 400, "money:1e308", "power:inf", "energy:1e300%"]
)
def test_an_objective_has_no_absurd_number(text):
    with pytest.raises(InputError):
        parse_objective(text, max_power_w=400)


def test_a_share_and_a_time_are_bounded():
    with pytest.raises(InputError, match="too large"):
        parse_share("1e300%")
    with pytest.raises(InputError, match="not a finite number"):
        parse_seconds("9" * 400 + "s")
