from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.config import load_config
from wattune.core.errors import ConfigError
from wattune.core.tariff import GridIntensity, Price, Tariff, parse_intensity, parse_price

DAY_S = 86_400.0


def local(hour: int, minute: int = 0) -> datetime:
    return datetime(2026, 3, 4, hour, minute).astimezone()


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("0.30 EUR", Price(0.30, "EUR")),
        ("0,30EUR", Price(0.30, "EUR")),
        ("12 ct/kWh", Price(12, "ct")),
        (".2 $ / kWh", Price(0.2, "$")),
    ],
)
def test_a_price_has_a_number_and_a_currency(text, price):
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["0.30", "EUR", "-1 EUR", "nan EUR", "1e999 EUR", "0.30 EUR per hour"])
def test_what_is_no_price_is_refused_with_an_example(text):
    with pytest.raises(ConfigError) as caught:
        parse_price(text)
    assert "0.30 EUR" in (caught.value.hint or "")


def test_without_settings_only_kilowatt_hours_are_known():
    found = Tariff().footprint(7.2e6, started_at=datetime.now(UTC), time_s=3600)
    assert found.energy_kwh == 2
    assert (found.energy_cost, found.currency, found.co2_g) == (None, None, None)


def test_money_and_carbon_follow_the_kilowatt_hours():
    tariff = Tariff(Price(0.25, "EUR"), GridIntensity((0.0,), (400.0,)))
    found = tariff.footprint(3.6e6, started_at=datetime.now(UTC), time_s=3 * DAY_S)
    assert (found.energy_cost, found.currency) == (0.25, "EUR")
    assert found.co2_g == pytest.approx(400)


def test_the_grid_of_each_hour_counts_by_its_share_of_the_run(tmp_path):
    (tmp_path / "grid.csv").write_text("time_of_day,g_per_kwh\n20:00,500\n06:00,300\n")
    tariff = Tariff(intensity=parse_intensity(str(tmp_path / "grid.csv"), path_of=Path))
    assert tariff.footprint(3.6e6, started_at=local(3), time_s=60).co2_g == pytest.approx(500)
    assert tariff.footprint(3.6e6, started_at=local(12), time_s=0).co2_g == pytest.approx(300)
    assert tariff.footprint(3.6e6, started_at=local(19), time_s=4 * 3600).co2_g == pytest.approx(450)
    assert tariff.footprint(3.6e6, started_at=local(5, 30), time_s=3600).co2_g == pytest.approx(400)


@given(
    st.lists(st.floats(1, 900), min_size=1, max_size=5),
    st.floats(0, DAY_S - 1),
    st.floats(1, 3 * DAY_S),
)
def test_a_mean_lies_within_its_values_and_equals_a_sum_over_minutes(grams, start_s, length_s):
    edges = tuple(DAY_S * place / len(grams) for place in range(len(grams)))
    intensity = GridIntensity(edges, tuple(grams))
    found = intensity.mean(start_s, length_s)
    assert min(grams) - 1e-6 <= found <= max(grams) + 1e-6
    samples = 2000
    times = [(start_s + length_s * (place + 0.5) / samples) % DAY_S for place in range(samples)]
    brute = sum(grams[min(int(time_s / DAY_S * len(grams)), len(grams) - 1)] for time_s in times) / samples
    assert found == pytest.approx(brute, abs=(max(grams) - min(grams)) * 0.01 + 1e-6)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("time_of_day,g_per_kwh\n25:00,1\n", "is not a time such as 06:30"),
        ("time_of_day,g_per_kwh\n06:00,1\n06:00,2\n", "has a time of day twice"),
        ("time_of_day,g_per_kwh\n06:00,-1\n", "is not a finite number above 0"),
        ("hour,grams\n1,2\n", "time_of_day"),
    ],
)
def test_a_wrong_file_is_refused_by_line(tmp_path, content, message):
    (tmp_path / "grid.csv").write_text(content)
    config = load_config({"WATTUNE_GRID_INTENSITY": str(tmp_path / "grid.csv")}, tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=message):
        _ = config.tariff


@pytest.mark.parametrize("text", ["-3", "inf", "/no/such/file.csv"])
def test_a_wrong_intensity_is_refused(tmp_path, text):
    config = load_config({"WATTUNE_GRID_INTENSITY": text}, tmp_path / "none.toml")
    with pytest.raises(ConfigError):
        _ = config.tariff
