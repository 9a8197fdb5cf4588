from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from view_samples import plain, styles
from wattune.render.chart import Axis, Chart, Mark, Point, Series, Shape
from wattune.render.terminal_graph import Spot, area_graph, draw_chart, legend, scatter


def test_a_full_graph_is_full_and_an_unknown_is_a_gap() -> None:
    lines = plain(area_graph([100.0] * 8 + [None] * 4 + [50.0] * 8, width=17, height=2, high=100.0, unit="W"))
    assert lines.splitlines() == ["100 W ┤⣿⣿⣿⣿", "  0   ┤⣿⣿⣿⣿  ⣿⣿⣿⣿"]


def test_the_newest_value_is_at_the_right_edge() -> None:
    (line,) = area_graph([0.0, 100.0], width=20, height=1, high=100.0, unit="W")
    assert line.plain.rstrip()[-1] == line.plain[-1]
    assert line.cell_len == 20


def test_zero_is_seen_and_unknown_is_not() -> None:
    zero = plain(area_graph([0.0, 0.0], width=12, height=3, high=10.0, unit="W"))
    unknown = plain(area_graph([None, None], width=12, height=3, high=10.0, unit="W"))
    assert "⣀" in zero
    assert not set(unknown) & {chr(code) for code in range(0x2801, 0x2900)}


@settings(max_examples=50)
@given(
    st.lists(st.none() | st.floats(min_value=-10, max_value=1e4), max_size=300),
    st.integers(20, 150),
    st.integers(1, 20),
)
def test_a_graph_never_leaves_its_frame(values: list[float | None], width: int, height: int) -> None:
    lines = area_graph(values, width=width, height=height, high=400.0, unit="W")
    assert len(lines) == height
    assert all(line.cell_len <= max(width, 10) for line in lines)


coordinates = st.floats(min_value=0.0, max_value=1e5)


@settings(max_examples=50)
@given(st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=40), st.integers(40, 120))
def test_a_scatter_shows_its_signs_and_the_last_is_always_seen(points: list[tuple[float, float]], width: int) -> None:
    spots = [Spot(x, y, "•", "dim") for x, y in points[:-1]] + [Spot(*points[-1], "D", "bold")]
    lines = scatter(spots, width=width, height=12, x_unit="ms", y_unit="J")
    assert len(lines) == 14
    shown = plain(lines)
    assert shown.count("D") == 1
    assert shown.count("•") <= len(points) - 1
    assert [style for line in lines for style in styles(line)].count("bold") == 1


def test_faster_is_left_and_cheaper_is_down() -> None:
    spots = [Spot(1.0, 9.0, "F", "cyan"), Spot(9.0, 1.0, "C", "dim")]
    rows = plain(scatter(spots, width=60, height=10, x_unit="s", y_unit="J")).splitlines()
    fast = next((row, line.index("F")) for row, line in enumerate(rows) if "F" in line)
    cheap = next((row, line.index("C")) for row, line in enumerate(rows) if "C" in line)
    assert fast[0] < cheap[0]
    assert fast[1] < cheap[1]


@pytest.mark.parametrize("unit", ["ms", "s"])
def test_axes_carry_their_units(unit: str) -> None:
    shown = plain(scatter([Spot(1.0, 1.0, "•", "dim")], width=60, height=8, x_unit=unit, y_unit="kJ"))
    assert f" {unit}" in shown.splitlines()[-1]
    assert "kJ" in shown


@pytest.mark.parametrize("high", [4.9, 15.1, 99.9, 1000.0])
def test_no_line_of_a_scatter_is_wider_than_asked(high: float) -> None:
    spots = [Spot(0.0, 0.0, "a", ""), Spot(high, -high, "b", "")]
    assert all(len(line.plain) <= 60 for line in scatter(spots, width=60, height=8, x_unit="%", y_unit="%"))


def test_points_of_a_chart_lie_over_its_lines_and_these_over_dashed_lines():
    ends = (Point(0.0, 1.0), Point(1.0, 2.0))
    chart = Chart(
        title="t",
        x=Axis(title="time", unit="s"),
        y=Axis(title="energy", unit="J"),
        series=(
            Series(name="single", points=ends[:1], mark=Mark.POINTS, shape=Shape.SQUARE),
            Series(name="segments", points=(*ends, Point(0.5, None))),
            Series(name="ideal", points=(*ends, Point(0.5, 1.0)), dashed=True),
        ),
    )
    signs = [sign for sign in draw_chart(chart, width=40, height=8).plain if sign in "■•·"]
    assert sorted(signs) == ["·", "•", "■"]
    assert legend(chart).plain == "■ single  • segments  · ideal"


def test_a_chart_without_points_draws_nothing():
    assert not draw_chart(Chart(title="t", x=Axis(title="x"), y=Axis(title="y"), series=()), width=40, height=8)
