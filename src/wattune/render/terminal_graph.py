"""Plots for a terminal, as lines of rich text: a graph of braille dots (two by four in each character), a scatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from wattune.render.chart import Chart, Mark, Series, Shape, Tone, padded, tick_labels, ticks

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_LEAST = 0.02
"""The least width of a scatter's axis as a share of its middle: smaller differences are mostly noise."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A point of a scatter: its character and its rich style."""

    x: float
    y: float
    sign: str
    style: str


def area_graph(
    values: Sequence[float | None], *, width: int, height: int, high: float, unit: str, span_s: float | None = None
) -> tuple[Text, ...]:
    """Draw a filled graph from 0 to `high`, the newest value at the right edge; unknown values leave a gap.

    With `span_s`, the time that the width stands for, an axis of two lines follows.
    """
    labels = _edge_labels(height, 0.0, high, unit)
    room = max(len(label) for label in labels) + 2
    columns = max(width - room, 1) * 2
    newest = ([None] * columns + list(values))[-columns:]
    heights = [None if value is None else min(max(value / high, 0.0), 1.0) * height * 4 for value in newest]
    lines = []
    for row in range(height):
        cells = (_filled(heights[column], heights[column + 1], height - 1 - row) for column in range(0, columns, 2))
        lines.append(_with_axis(labels[row], room, ("".join(cells), "cyan")))
    if span_s is None:
        return tuple(lines)
    return (*lines, *_x_axis(-span_s, 0.0, columns=columns // 2, room=room, unit="s"))


def scatter(spots: Sequence[Spot], *, width: int, height: int, x_unit: str, y_unit: str) -> tuple[Text, ...]:
    """Draw signs in a frame with round numbers at its edges; where two share a place, the later one shows."""
    x_low, x_high = padded(min(spot.x for spot in spots), max(spot.x for spot in spots), share=0.04, least=_LEAST)
    y_low, y_high = padded(min(spot.y for spot in spots), max(spot.y for spot in spots), least=_LEAST)
    labels = _edge_labels(height, y_low, y_high, y_unit)
    room = max(len(label) for label in labels) + 2
    columns = max(width - room, 8)
    cells: dict[tuple[int, int], Spot] = {}
    for spot in spots:
        across = int((spot.x - x_low) / (x_high - x_low) * (columns - 1))
        down = int((y_high - spot.y) / (y_high - y_low) * (height - 1))
        cells[down, across] = spot
    rows = [_with_axis(labels[row], room, *_scatter_row(cells, row, columns)) for row in range(height)]
    return (*rows, *_x_axis(x_low, x_high, columns=columns, room=room, unit=x_unit))


_FILLED = {Shape.CIRCLE: "●", Shape.SQUARE: "■", Shape.DIAMOND: "◆", Shape.TRIANGLE: "▲", Shape.CROSS: "×"}
_HOLLOW = {Shape.CIRCLE: "○", Shape.SQUARE: "□", Shape.DIAMOND: "◇", Shape.TRIANGLE: "△", Shape.CROSS: "+"}
_STYLES = {
    Tone.BLUE: "cyan",
    Tone.ORANGE: "bold",
    Tone.GREEN: "green",
    Tone.PURPLE: "magenta",
    Tone.GOLD: "yellow",
    Tone.SKY: "bright_red",
    Tone.GREY: "dim",
}


def draw_chart(chart: Chart, *, width: int, height: int) -> Text:
    """Draw the points of a chart as a scatter; dashed lines lie below lines, and these below points."""
    spots = [
        Spot(point.x, point.y, *_look(series))
        for series in sorted(chart.series, key=lambda series: (not series.dashed, series.mark is Mark.POINTS))
        for point in series.points
        if point.y is not None
    ]
    if not spots:
        return Text()
    x_unit, y_unit = chart.x.unit or "", chart.y.unit or ""
    return Text("\n", no_wrap=True).join(scatter(spots, width=width, height=height, x_unit=x_unit, y_unit=y_unit))


def legend(chart: Chart) -> Text:
    """Name the series of a chart behind their signs."""
    line = Text()
    for series in chart.series:
        sign, style = _look(series)
        line.append(sign, style=style).append(f" {series.name}  ", style="dim")
    line.rstrip()
    return line


def _look(series: Series) -> tuple[str, str]:
    """Return the sign and the style of a series."""
    style = _STYLES[series.tone]
    if series.mark is Mark.POINTS:
        return _FILLED[series.shape], style
    return _HOLLOW[series.shape] if series.mark is Mark.LINE_AND_POINTS else "·" if series.dashed else "•", style


def _filled(left: float | None, right: float | None, row: int) -> str:
    """Return the character of two neighbouring columns, `row` rows of characters above the ground."""
    bits = 0
    for side, height in enumerate((left, right)):
        if height is None:
            continue
        # A known value shows at least one dot, so that an idle GPU differs from one that reports nothing.
        lit = min(max(round(max(height, 1.0)) - row * 4, 0), 4)
        bits |= sum(_DOTS[3 - dot][side] for dot in range(lit))
    return chr(_BLANK + bits) if bits else " "


def _scatter_row(cells: dict[tuple[int, int], Spot], row: int, columns: int) -> list[tuple[str, str]]:
    spots = (cells.get((row, column)) for column in range(columns))
    drawn = [(spot.sign, spot.style) if spot else (" ", "") for spot in spots]
    return [("".join(sign for sign, _ in run), style) for style, run in groupby(drawn, key=lambda cell: cell[1])]


def _with_axis(label: str, room: int, *drawn: tuple[str, str]) -> Text:
    return Text.assemble((f"{label:>{room - 2}} {'┤' if label else '│'}", "dim"), *drawn)


def _edge_labels(height: int, low: float, high: float, unit: str) -> list[str]:
    """Return a label for each row of characters, empty for most, the unit beside the topmost."""
    values = ticks(low, high, about=max(height // 3, 1))
    labels = [""] * height
    for value, text in zip(values, tick_labels(values), strict=True):
        row = round((high - value) / (high - low) * height - 0.5)
        labels[min(max(row, 0), height - 1)] = text
    top = next((row for row, label in enumerate(labels) if label), 0)
    padding = " " * (len(unit) + 1)
    return [f"{label} {unit}" if row == top else label and label + padding for row, label in enumerate(labels)]


def _x_axis(low: float, high: float, *, columns: int, room: int, unit: str) -> tuple[Text, Text]:
    values = ticks(low, high, about=max(columns // 14, 2))
    ground, words = ["─"] * columns, [" "] * columns
    for value, label in zip(values, tick_labels(values), strict=True):
        column = min(int((value - low) / (high - low) * columns), columns - 1)
        text = f"{label} {unit}" if value == values[-1] else label
        start = max(min(column - len(label) // 2, columns - len(text)), 0)
        ground[column] = "┬"
        words[start : start + len(text)] = text
    return Text(" " * (room - 1) + "└" + "".join(ground), "dim"), Text(" " * room + "".join(words).rstrip(), "dim")
