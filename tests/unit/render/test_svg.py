from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from view_samples import everything_chart
from wattune.render.chart import Axis, Chart, Mark, Note, Point, Series, Tone
from wattune.render.frame import Box, frame, place_notes
from wattune.render.palette import DARK, LIGHT
from wattune.render.svg import beside, draw, standalone

SVG = "{http://www.w3.org/2000/svg}"


def parsed(chart: Chart, *, width: float = 760, height: float = 420) -> ElementTree.Element:
    return ElementTree.fromstring(draw(chart, width=width, height=height))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def simple(*points: tuple[float, float | None], mark: Mark = Mark.LINE_AND_POINTS) -> Chart:
    series = Series(name="one", points=tuple(Point(x, y) for x, y in points), mark=mark)
    return Chart(title="t", x=Axis(title="x"), y=Axis(title="y"), series=(series,))


def test_every_word_is_in_the_picture() -> None:
    words = texts(parsed(everything_chart()))
    for word in (
        "Power & time",
        "simulated",
        "a < b",
        "power (W)",
        "time (s)",
        "peak",
        "of the first run",
        "limit 15 W",
    ):
        assert word in words


def test_control_characters_of_a_name_do_not_break_the_picture() -> None:
    points = (Point(0.0, 1.0, "a\x1b[2Jb"), Point(1.0, 2.0))
    chart = Chart(title="run\x00", x=Axis(title="x"), y=Axis(title="y"), series=(Series(name="\x07", points=points),))
    assert "run" in texts(parsed(chart))


def test_tooltips_are_titles() -> None:
    titles = [element.text for element in parsed(everything_chart()).iter(f"{SVG}title")]
    assert "1.0 <s>" in titles
    assert "span" in titles


def test_an_unknown_value_breaks_the_line_and_has_no_point() -> None:
    root = parsed(simple((0, 1), (1, 2), (2, None), (3, 1), (4, 2)))
    assert len(root.findall(f"{SVG}path")) == 2
    assert len(root.findall(f"{SVG}circle")) == 4


def test_steps_hold_each_value_until_the_next() -> None:
    root = parsed(simple((0, 1), (1, 2), (2, 1), mark=Mark.STEPS))
    (path,) = root.findall(f"{SVG}path")
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}", path.attrib["d"])


def test_a_single_series_has_no_legend() -> None:
    assert "one" not in texts(parsed(simple((0, 1), (1, 2))))


@pytest.mark.parametrize("chart", [simple(), simple((3, 3)), simple((0, None))], ids=["empty", "one point", "unknown"])
def test_little_data_still_makes_a_picture(chart: Chart) -> None:
    assert parsed(chart).tag == f"{SVG}svg"


def test_a_point_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown y is None"):
        Point(1.0, float("nan"))


def test_an_axis_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ValueError, match="goes from"):
        Axis(title="x", low=2.0, high=1.0)


def test_a_file_stands_alone_and_knows_dark() -> None:
    text = standalone(everything_chart(), width=500, height=300)
    root = ElementTree.fromstring(text)
    assert (root.attrib["width"], root.attrib["height"]) == ("500", "300")
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


coordinates = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=30),
    st.sampled_from(list(Mark)),
    st.sampled_from([(330.0, 260.0), (400.0, 440.0), (1000.0, 440.0)]),
)
def test_all_points_lie_inside_the_plot(
    points: list[tuple[float, float]], mark: Mark, size: tuple[float, float]
) -> None:
    chart = simple(*points, mark=mark)
    place = frame(chart, width=size[0], height=size[1])
    assert 0 < place.plot.left < place.plot.right <= size[0]
    assert 0 < place.plot.top < place.plot.bottom <= size[1]
    for x, y in points:
        assert place.plot.left - 0.01 <= place.x(x) <= place.plot.right + 0.01
        assert place.plot.top - 0.01 <= place.y(y) <= place.plot.bottom + 0.01


def test_notes_do_not_lie_on_each_other_or_on_points() -> None:
    points = tuple(Point(float(x), 100 / (x + 1)) for x in range(20))
    notes = tuple(Note(point.x, point.y or 0.0, "a note", "with a second line") for point in points[::6])
    series = Series(name="s", points=points, mark=Mark.POINTS)
    chart = Chart(title="t", x=Axis(title="x"), y=Axis(title="y"), series=(series,), notes=notes)
    place = frame(chart, width=800, height=440)
    dots = tuple((place.x(point.x), place.y(point.y or 0.0)) for point in points)
    placed = place_notes(notes, place, dots=dots)
    for index, note in enumerate(placed):
        assert note.box.inside(Box(0, 0, 800, 440))
        assert not any(note.box.overlaps(other.box) for other in placed[:index])
        assert not any(note.box.holds(x, y) for x, y in dots)


def _luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_against_their_paper(colours: dict[str, str]) -> None:
    for tone in Tone:
        assert _contrast(colours[tone.value], colours["paper"]) >= 3.0, tone
    for words in ("ink", "quiet"):
        assert _contrast(colours[words], colours["paper"]) >= 4.5
        assert _contrast(colours[words], colours["panel"]) >= 4.5


def test_charts_lie_side_by_side_in_one_file() -> None:
    root = ElementTree.fromstring(beside([simple((0, 1), (1, 2)), everything_chart()], width=300, height=200))
    charts = root.findall(f"{SVG}svg")
    assert [chart.attrib["x"] for chart in charts] == ["0", "340"]
    assert (root.attrib["width"], root.attrib["height"]) == ("640", "200")
    assert "Power & time" in texts(charts[1])
