from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.core.tariff import Footprint
from wattune.render.quantity import UNKNOWN, changes, fixed, footprint_words, number, percent, quantity, unit_for


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [
        (0.3123, "s", "312 ms"),
        (1.5, "s", "1.50 s"),
        (7200.0, "s", "7\u2009200 s"),
        (95.94, "J", "95.9 J"),
        (123_456.0, "J", "123 kJ"),
        (0.9999, "J", "1.00 J"),
        (2.5e-7, "s", "0.250 µs"),
        (0.0, "W", "0 W"),
        (-3.0, "W", "−3.00 W"),
        (None, "W", UNKNOWN),
    ],
)
def test_a_quantity_has_a_fitting_unit(value: float | None, base: str, text: str) -> None:
    assert quantity(value, base) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.24, "+4.2 %"), (-7.73, "−7.7 %"), (-0.01, "0.0 %"), (0.0, "0.0 %"), (None, UNKNOWN)],
)
def test_a_percentage_has_its_sign(value: float | None, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.31, "+4.2 ± 0.3 %"), (0.042, "+4.24 ± 0.04 %"), (0.0, "+4.2 %"), (0.004, "+4.2 %"), (None, "+4.2 %")],
)
def test_a_percentage_has_its_error_where_that_shows(error: float | None, text: str) -> None:
    assert percent(4.24, error=error) == text


def test_differences_are_signed_with_time_first() -> None:
    assert changes(3.9, -11.7) == "time +3.9 %, energy −11.7 %"
    assert changes(3.9, None, time_error=0.2) == "time +3.9 ± 0.2 %, energy –"


@pytest.mark.parametrize(
    ("energy_kwh", "text"),
    [
        (2.81e-7, "281 µWh"),
        (7.6e-6, "7.60 mWh"),
        (0.0, "0 Wh"),
        (0.000224, "224 mWh"),
        (0.0161, "16.1 Wh"),
        (1.5, "1.50 kWh"),
        (46_900.0, "46\u2009900 kWh"),
        (-0.002, "−2.00 Wh"),
    ],
)
def test_energy_of_a_bill_has_the_unit_that_reads(energy_kwh: float, text: str) -> None:
    assert footprint_words(Footprint(energy_kwh)) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [(0.0, "0 EUR"), (3.54e-8, "under 0.0001 EUR"), (-3.54e-8, "under 0.0001 EUR"), (0.0042, "0.00420 EUR")],
)
def test_money_that_is_hardly_any_is_named_so(cost: float, text: str) -> None:
    footprint = Footprint(1.5, energy_cost=cost, currency="EUR")
    assert footprint_words(footprint) == f"1.50 kWh, {text}"


def test_zero_has_no_sign_at_any_number_of_places() -> None:
    assert percent(-0.004, places=2) == "0.00 %"
    assert percent(-0.004, places=3) == "−0.004 %"
    assert fixed(-0.2, "W") == "0 W"
    assert fixed(-0.0004, "%", places=2) == "0.00 %"


def test_the_unknown_is_a_dash_and_zero_is_a_number() -> None:
    assert fixed(None, "W") == UNKNOWN
    assert fixed(0.0, "W") == "0 W"
    assert number(None) == UNKNOWN


@given(st.floats(min_value=1e-5, max_value=1e11))
def test_a_quantity_reads_back_within_its_three_digits(value: float) -> None:
    unit = unit_for((value,), "J")
    digits = quantity(value, "J").removesuffix(" " + unit.symbol).replace("\u2009", "")
    assert float(digits) / unit.factor == pytest.approx(value, rel=5.1e-3)


def test_one_unit_serves_many_values() -> None:
    assert unit_for((0.2, None, 0.03), "s").symbol == "ms"
    assert unit_for((), "s").symbol == "s"
