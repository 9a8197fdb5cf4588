from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.render.chart import padded, tick_labels, ticks, widened

NUMBERS = st.floats(min_value=-1e7, max_value=1e7).map(lambda value: round(value, 3))


@given(NUMBERS, st.floats(min_value=0.01, max_value=1e7), st.integers(min_value=2, max_value=12))
def test_ticks_are_round_even_and_inside(low: float, width: float, about: int) -> None:
    high = low + max(width, abs(low) * 1e-6)
    values = ticks(low, high, about=about)
    assert 1 <= len(values) <= 2 * about + 1
    room = 1e-7 * max(abs(low), abs(high), 1)
    assert all(low - room <= value <= high + room for value in values)
    gaps = [after - before for before, after in pairwise(values)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-3) for gap in gaps)


def test_ticks_of_a_usual_axis() -> None:
    assert ticks(312, 668, about=5) == (350, 400, 450, 500, 550, 600, 650)
    assert ticks(0, 1, about=4) == (0.0, 0.25, 0.5, 0.75, 1.0)


def test_labels_share_their_places() -> None:
    assert tick_labels((0.0, 0.25, 0.5)) == ("0.00", "0.25", "0.50")
    assert tick_labels((-500.0, 0.0, 1500.0)) == ("−500", "0", "1\u2009500")


def test_a_range_without_width_gets_one() -> None:
    assert widened(4.0, 4.0) == (3.8, 4.2)
    assert widened(0.0, 0.0) == (-0.5, 0.5)
    assert len(ticks(7.0, 7.0)) > 1


def test_room_never_takes_positive_values_below_zero() -> None:
    assert padded(0.0, 10.0)[0] == 0.0
    assert padded(-1.0, 1.0)[0] < -1.0
