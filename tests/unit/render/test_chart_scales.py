from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattune.render.chart import (
    Axis,
    Chart,
    Mark,
    Note,
    Point,
    ReferenceLine,
    Scale,
    Series,
    Shape,
    Spread,
    log_ticks,
)
from wattune.render.frame import frame, text_width
from wattune.render.svg import draw

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series: Series, x: Axis | None = None, y: Axis | None = None) -> Chart:
    return Chart(title="t", x=x or Axis(title="x"), y=y or Axis(title="y"), series=series)


def line(*values: float, **changes: object) -> Series:
    return Series(name="one", points=tuple(Point(n + 1.0, value) for n, value in enumerate(values)), **changes)


def test_an_axis_by_factors_gives_equal_room_to_equal_factors() -> None:
    place = frame(chart(line(1.0, 10.0, 100.0), y=Axis(title="y", scale=Scale.LOG)), width=400, height=300)
    low, middle, high = (place.y(value) for value in (1.0, 10.0, 100.0))
    assert low - middle == pytest.approx(middle - high)


def test_an_axis_by_factors_has_no_place_for_zero() -> None:
    with pytest.raises(ValueError, match="is logarithmic and cannot show"):
        draw(chart(line(0.0, 10.0), y=Axis(title="y", scale=Scale.LOG)))


def test_an_empty_axis_by_factors_still_makes_a_picture() -> None:
    assert draw(chart(x=Axis(title="x", scale=Scale.LOG), y=Axis(title="y", scale=Scale.LOG)))


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e9), st.integers(2, 9))
def test_ticks_by_factors_lie_within_and_rise(low: float, factor: float, about: int) -> None:
    values = log_ticks(low, low * factor, about=about)
    assert values
    assert list(values) == sorted(set(values))
    assert low * (1 - 1e-6) <= values[0]
    assert values[-1] <= low * factor * (1 + 1e-6)


def test_few_decades_are_marked_between() -> None:
    assert log_ticks(0.5, 60.0, about=8) == (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    assert log_ticks(1.0, 10000.0, about=5) == (1.0, 10.0, 100.0, 1000.0, 10000.0)
    assert log_ticks(2.0, 6.0, about=4) == (2.0, 3.0, 4.0, 5.0, 6.0)


def test_each_label_of_a_logarithmic_axis_has_the_places_it_needs():
    place = frame(chart(line(0.5, 10.0, 20000.0), y=Axis(title="y", scale=Scale.LOG)), width=400, height=300)
    labels = dict(place.y_ticks)
    assert [labels[value] for value in labels if value in (1.0, 10.0, 10000.0)] == ["1", "10", "10\u2009000"]
    narrow = frame(chart(line(0.5, 2.0), y=Axis(title="y", scale=Scale.LOG)), width=400, height=300)
    assert dict(narrow.y_ticks)[0.5] == "0.5"


def test_named_values_stand_at_the_axis_where_there_is_room() -> None:
    sizes = tuple(2**n for n in range(16))
    marks = tuple((float(size), str(size)) for size in sizes)
    axis = Axis(title="size", scale=Scale.LOG, low=0.9, high=40000.0, marks=marks)
    wide = frame(chart(line(1.0, 2.0), x=axis), width=900, height=300)
    assert [label for _, label in wide.x_ticks] == [str(size) for size in sizes]
    narrow = frame(chart(line(1.0, 2.0), x=axis), width=260, height=300)
    places = [(narrow.x(value), text_width(text)) for value, text in narrow.x_ticks]
    assert 2 < len(places) < 16
    assert all(b - a >= (wa + wb) / 2 for (a, wa), (b, wb) in pairwise(places))


@pytest.mark.parametrize(
    ("shape", "tag"),
    [
        (Shape.CIRCLE, "circle"),
        (Shape.SQUARE, "polygon"),
        (Shape.DIAMOND, "polygon"),
        (Shape.TRIANGLE, "polygon"),
        (Shape.CROSS, "path"),
    ],
)
def test_each_shape_is_drawn_with_its_tooltip(shape: Shape, tag: str) -> None:
    series = Series(name="one", points=(Point(1.0, 1.0, "a < b"),), mark=Mark.POINTS, shape=shape)
    root = ElementTree.fromstring(draw(chart(series)))
    (found,) = [element for element in root.iter(f"{SVG}{tag}") if element.find(f"{SVG}title") is not None]
    assert found.findtext(f"{SVG}title") == "a < b"


def test_a_spread_is_shaded_and_widens_the_axis() -> None:
    spread = (Spread(1.0, 0.5, 4.0), Spread(2.0, 1.0, 9.0))
    wide = chart(line(2.0, 3.0, spread=spread))
    assert wide.y_bounds[1] > 9.0
    assert draw(wide).count('fill-opacity="0.16"') == 1


def test_a_spread_that_is_upside_down_is_refused() -> None:
    with pytest.raises(ValueError, match="spread"):
        Spread(1.0, 2.0, 1.0)


def test_a_line_may_be_marked_here_and_there() -> None:
    root = ElementTree.fromstring(draw(chart(line(*range(1, 11), mark=Mark.LINE_AND_POINTS, every=4, first=1))))
    assert len(list(root.iter(f"{SVG}circle"))) == 3


def test_the_words_of_a_rule_keep_clear_of_notes() -> None:
    marked = Chart(
        title="t",
        x=Axis(title="x"),
        y=Axis(title="y", low=0.0),
        series=(line(1.0, 5.0, 9.5),),
        notes=(Note(3.0, 9.5, "default", "43 epochs"),),
        rules=(ReferenceLine(10.0, "at most 10"),),
    )
    root = ElementTree.fromstring(draw(marked, width=400, height=440))
    place = {element.text: float(element.attrib["x"]) for element in root.iter(f"{SVG}text")}
    assert place["at most 10"] < place["default"] - text_width("at most 10")


def test_named_values_do_not_run_into_each_other_upwards_either() -> None:
    axis = Axis(title="size", scale=Scale.LOG, low=1.0, high=200.0, marks=((56.0, "56"), (64.0, "64"), (128.0, "128")))
    place = frame(chart(line(60.0, 70.0), y=axis), width=400, height=260)
    assert [label for _, label in place.y_ticks] == ["56", "128"]
