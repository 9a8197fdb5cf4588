"""The layout of a chart: pixels from values, and room for text.

The width of text is estimated as 0.56 of the font size per character, since no font is at hand when a chart is written;
that is rather too wide for the system fonts that pages use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import log

from wattune.render.chart import Axis, Chart, Note, Scale, Series, log_ticks, tick_labels, ticks

FONT_PX = 12.0
TITLE_PX = 15.0
LINE_PX = 17.0
KEY_PX = 22.0


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the picture."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)

    def holds(self, x: float, y: float) -> bool:
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def inside(self, other: Box) -> bool:
        return other.holds(self.left, self.top) and other.holds(self.right, self.bottom)


Ticks = tuple[tuple[float, str], ...]
"""Values along an axis and their labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The plot's rectangle and the scales of its axes."""

    width: float
    height: float
    plot: Box
    x_bounds: tuple[float, float]
    y_bounds: tuple[float, float]
    x_ticks: Ticks
    y_ticks: Ticks
    keys: tuple[tuple[Series, float, float], ...]
    """Each entry of the legend: its series and where it starts."""
    x_scale: Scale
    y_scale: Scale

    def x(self, value: float) -> float:
        return self.plot.left + _share(value, self.x_bounds, self.x_scale) * (self.plot.right - self.plot.left)

    def y(self, value: float) -> float:
        return self.plot.bottom - _share(value, self.y_bounds, self.y_scale) * (self.plot.bottom - self.plot.top)


def frame(chart: Chart, *, width: float, height: float) -> Frame:
    """Lay out a chart at this size."""
    keys = _keys(chart, width)
    top = _header(chart) + (keys[-1][2] - keys[0][2] + LINE_PX + 4 if keys else 0.0) + LINE_PX + 8
    bottom = height - 2 * LINE_PX - 8
    y_bounds = chart.y_bounds
    y_ticks = _ticks(chart.y, y_bounds, (bottom - top) / 48)
    left = max((text_width(label) for _, label in y_ticks), default=0.0) + 12
    x_bounds = chart.x_bounds
    x_ticks = _ticks(chart.x, x_bounds, (width - left) / 84)
    right = width - max(text_width(x_ticks[-1][1]) / 2 if x_ticks else 0.0, 10)
    plot = Box(left, top, right, bottom)
    return Frame(
        width=width,
        height=height,
        plot=plot,
        x_bounds=x_bounds,
        y_bounds=y_bounds,
        x_ticks=_with_room(x_ticks, x_bounds, chart.x.scale, long=right - left),
        y_ticks=_with_room(y_ticks, y_bounds, chart.y.scale, long=bottom - top, each=LINE_PX - 4),
        keys=keys,
        x_scale=chart.x.scale,
        y_scale=chart.y.scale,
    )


def _share(value: float, bounds: tuple[float, float], scale: Scale) -> float:
    """Return the position of a value along an axis, from 0 to 1."""
    low, high = bounds
    if scale is Scale.LOG:
        return log(value / low) / log(high / low)
    return (value - low) / (high - low)


def text_width(text: str, *, size_px: float = FONT_PX) -> float:
    """Estimate the width of a text."""
    return len(text) * size_px * 0.56


def _header(chart: Chart) -> float:
    return TITLE_PX + 8 + (LINE_PX if chart.subtitle else 0.0)


def _ticks(axis: Axis, bounds: tuple[float, float], about: float) -> Ticks:
    if axis.marks:
        return tuple((value, text) for value, text in axis.marks if bounds[0] <= value <= bounds[1])
    parts = max(int(about), 2)
    if axis.scale is Scale.LOG:
        return tuple((value, tick_labels((value,))[0]) for value in log_ticks(*bounds, about=parts))
    values = ticks(*bounds, about=parts)
    return tuple(zip(values, tick_labels(values), strict=True))


def _with_room(
    found: Ticks, bounds: tuple[float, float], scale: Scale, *, long: float, each: float | None = None
) -> Ticks:
    """Drop ticks whose label would overlap the one before; a label takes `each` pixels along the axis, or its width."""
    kept: list[tuple[float, str]] = []
    end = -1e9
    for value, text in found:
        middle, half = _share(value, bounds, scale) * long, (text_width(text) + 6 if each is None else each) / 2
        if middle - half >= end:
            kept.append((value, text))
            end = middle + half
    return tuple(kept)


def _keys(chart: Chart, width: float) -> tuple[tuple[Series, float, float], ...]:
    """Place the legend's entries in rows; a single series needs none."""
    if len(chart.series) < 2:
        return ()
    placed, x, y = [], 0.0, _header(chart) + LINE_PX / 2 + 4
    for series in chart.series:
        wide = KEY_PX + text_width(series.name) + 18
        if x and x + wide > width:
            x, y = 0.0, y + LINE_PX
        placed.append((series, x, y))
        x += wide
    return tuple(placed)


Dots = tuple[tuple[float, float], ...]
"""Pixels that text should not cover."""

_DIRECTIONS = ((1, -1), (-1, -1), (1, 1), (-1, 1), (1, 0), (-1, 0), (0, -1), (0, 1))
_DISTANCES_PX = (16.0, 30.0, 48.0, 70.0, 100.0)
_DOT_PX = 5.0


@dataclass(frozen=True, slots=True)
class PlacedNote:
    """A note, the pixel it points to and the rectangle of its text."""

    note: Note
    x: float
    y: float
    box: Box


def place_notes(notes: Iterable[Note], frame: Frame, *, dots: Dots) -> list[PlacedNote]:
    """Place each note in the best free rectangle near its point, one after the other."""
    placed: list[PlacedNote] = []
    for note in notes:
        x, y = frame.x(note.x), frame.y(note.y)
        candidates = [box for box in _candidates(note, x, y) if box.inside(Box(0, 0, frame.width, frame.height))]
        taken = tuple(other.box for other in placed)
        box = clearest(candidates or _candidates(note, x, y), dots=dots, within=frame.plot, taken=taken)
        placed.append(PlacedNote(note, x, y, box))
    return placed


def clearest(boxes: Iterable[Box], *, dots: Dots, within: Box, taken: tuple[Box, ...] = ()) -> Box:
    """Return the first box that covers fewest dots and other boxes and stays inside the plot."""

    def badness(box: Box) -> float:
        wide = Box(box.left - _DOT_PX, box.top - _DOT_PX, box.right + _DOT_PX, box.bottom + _DOT_PX)
        hidden = sum(wide.holds(x, y) for x, y in dots)
        return 3 * hidden + 100 * sum(box.overlaps(other) for other in taken) + (0 if box.inside(within) else 40)

    return min(boxes, key=badness)


def _candidates(note: Note, x: float, y: float) -> list[Box]:
    """Rectangles around the point, the nearest first, so that of equals the nearest wins."""
    wide = max(text_width(note.text), text_width(note.detail or "")) + 6
    high = LINE_PX * (2 if note.detail else 1)
    boxes = []
    for distance, (across, down) in product(_DISTANCES_PX, _DIRECTIONS):
        reach = distance * (0.75 if across and down else 1.0)
        left = x + across * reach - (0.0 if across > 0 else wide if across < 0 else wide / 2)
        top = y + down * reach - (0.0 if down > 0 else high if down < 0 else high / 2)
        boxes.append(Box(left, top, left + wide, top + high))
    return boxes
