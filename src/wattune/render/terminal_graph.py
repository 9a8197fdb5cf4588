"""Pictures for a terminal: a graph of braille dots (two across and four down in each character) and a scatter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

from wattune.render.chart import padded, tick_labels, ticks

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_LEAST = 0.02
"""Share of its middle that an axis of a scatter is wide at least; less than that is mostly noise."""


@dataclass(frozen=True, slots=True)
class TextRun:
    """Characters of one kind beside each other; the kind names a role (axis, graph, frontier …), not a colour."""

    text: str
    kind: str


Line = tuple[TextRun, ...]
_STYLES = {"axis": "dim", "graph": "cyan", "frontier": "cyan", "beaten": "dim", "pick": "bold yellow"}


def coloured(lines: Iterable[Line]) -> Text:
    """Return the picture with the colours of its kinds."""
    text = Text(no_wrap=True)
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for run in line:
            text.append(run.text, style=_STYLES.get(run.kind))
    return text


@dataclass(frozen=True, slots=True)
class Spot:
    """A point of a scatter: the character that stands for it, and its kind."""

    x: float
    y: float
    sign: str
    kind: str


def plain(lines: Iterable[Line]) -> str:
    """The picture as text without colours."""
    return "\n".join("".join(interval.text for interval in line).rstrip() for line in lines)


def area_graph(values: Sequence[float | None], *, width: int, height: int, high: float, unit: str) -> tuple[Line, ...]:
    """A filled graph from 0 to `high`, the newest value at the right edge; unknown values leave a gap."""
    labels = _edge_labels(height, 0.0, high, unit)
    room = max(len(label) for label in labels) + 2
    columns = max(width - room, 1) * 2
    shown = ([None] * columns + list(values))[-columns:]
    heights = [None if value is None else min(max(value / high, 0.0), 1.0) * height * 4 for value in shown]
    lines = []
    for row in range(height):
        cells = (_filled(heights[column], heights[column + 1], height - 1 - row) for column in range(0, columns, 2))
        lines.append(_with_axis(labels[row], room, TextRun("".join(cells), "graph")))
    return tuple(lines)


def scatter(spots: Sequence[Spot], *, width: int, height: int, x_unit: str, y_unit: str) -> tuple[Line, ...]:
    """Signs in a frame with round numbers at its edges; where two share a place, the later one is seen."""
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


def _filled(left: float | None, right: float | None, row: int) -> str:
    """The character of two neighbouring columns, `row` character rows above the ground."""
    bits = 0
    for side, height in enumerate((left, right)):
        if height is None:
            continue
        # A known value shows at least one dot, so that an idle GPU is not mistaken for a silent one.
        lit = min(max(round(max(height, 1.0)) - row * 4, 0), 4)
        bits |= sum(_DOTS[3 - dot][side] for dot in range(lit))
    return chr(_BLANK + bits) if bits else " "


def _scatter_row(cells: dict[tuple[int, int], Spot], row: int, columns: int) -> list[TextRun]:
    spots = (cells.get((row, column)) for column in range(columns))
    drawn = [(spot.sign, spot.kind) if spot else (" ", "empty") for spot in spots]
    return [TextRun("".join(text for text, _ in run), kind) for kind, run in groupby(drawn, key=lambda cell: cell[1])]


def _with_axis(label: str, room: int, *intervals: TextRun) -> Line:
    return (TextRun(f"{label:>{room - 2}} {'┤' if label else '│'}", "axis"), *intervals)


def _edge_labels(height: int, low: float, high: float, unit: str) -> list[str]:
    """A label for each row of characters, empty for most, the unit beside the topmost."""
    values = ticks(low, high, about=max(height // 3, 1))
    labels = [""] * height
    for value, text in zip(values, tick_labels(values), strict=True):
        row = round((high - value) / (high - low) * height - 0.5)
        labels[min(max(row, 0), height - 1)] = text
    top = next((row for row, label in enumerate(labels) if label), 0)
    padding = " " * (len(unit) + 1)
    return [f"{label} {unit}" if row == top else label and label + padding for row, label in enumerate(labels)]


def _x_axis(low: float, high: float, *, columns: int, room: int, unit: str) -> tuple[Line, Line]:
    values = ticks(low, high, about=max(columns // 14, 2))
    ground, words = ["─"] * columns, [" "] * (columns + 12)
    for value, label in zip(values, tick_labels(values), strict=True):
        column = min(int((value - low) / (high - low) * columns), columns - 1)
        text = f"{label} {unit}" if value == values[-1] else label
        start = max(min(column - len(label) // 2, columns + 12 - len(text)), 0)
        ground[column] = "┬"
        words[start : start + len(text)] = text
    return (
        (TextRun(" " * (room - 1) + "└" + "".join(ground), "axis"),),
        (TextRun(" " * room + "".join(words).rstrip(), "axis"),),
    )
