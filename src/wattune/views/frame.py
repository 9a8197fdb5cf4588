"""Where things of a chart lie on paper: pixels from values, and room for words.

Text is measured by a rule of thumb (0.56 of the font size per character), since no font is at hand when a picture is
written; it errs on the wide side for the system fonts that pages use.
"""

from __future__ import annotations

from dataclasses import dataclass

from wattune.views.chart import Chart, Series
from wattune.views.ticks import tick_labels, ticks

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
        """Whether the two share any area."""
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)

    def holds(self, x: float, y: float) -> bool:
        """Whether the place lies inside."""
        return self.left <= x <= self.right and self.top <= y <= self.bottom

    def inside(self, other: Box) -> bool:
        """Whether it lies wholly within the other."""
        return other.holds(self.left, self.top) and other.holds(self.right, self.bottom)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Values along an axis and what is written at them."""

    values: tuple[float, ...]
    labels: tuple[str, ...]


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
    """Each entry of the legend: its series and the place where it starts."""

    def x(self, value: float) -> float:
        """The pixel of an x value."""
        low, high = self.x_bounds
        return self.plot.left + (value - low) / (high - low) * (self.plot.right - self.plot.left)

    def y(self, value: float) -> float:
        """The pixel of a y value."""
        low, high = self.y_bounds
        return self.plot.bottom - (value - low) / (high - low) * (self.plot.bottom - self.plot.top)


def frame(chart: Chart, *, width: float, height: float) -> Frame:
    """The layout of a chart on paper of that size."""
    keys = _keys(chart, width)
    top = _header(chart) + (keys[-1][2] - keys[0][2] + LINE_PX + 4 if keys else 0.0) + LINE_PX + 8
    bottom = height - 2 * LINE_PX - 8
    y_bounds = chart.y_bounds
    y_ticks = _ticks(y_bounds, (bottom - top) / 48)
    left = max((text_width(label) for label in y_ticks.labels), default=0.0) + 12
    x_bounds = chart.x_bounds
    x_ticks = _ticks(x_bounds, (width - left) / 84)
    right = width - max(text_width(x_ticks.labels[-1]) / 2 if x_ticks.labels else 0.0, 10)
    plot = Box(left, top, right, bottom)
    return Frame(
        width=width,
        height=height,
        plot=plot,
        x_bounds=x_bounds,
        y_bounds=y_bounds,
        x_ticks=x_ticks,
        y_ticks=y_ticks,
        keys=keys,
    )


def text_width(text: str, *, size_px: float = FONT_PX) -> float:
    """Roughly how wide a text will be."""
    return len(text) * size_px * 0.56


def _header(chart: Chart) -> float:
    return TITLE_PX + 8 + (LINE_PX if chart.subtitle else 0.0)


def _ticks(bounds: tuple[float, float], about: float) -> Ticks:
    values = ticks(*bounds, about=max(int(about), 2))
    return Ticks(values, tick_labels(values))


def _keys(chart: Chart, width: float) -> tuple[tuple[Series, float, float], ...]:
    """The legend's entries in rows; none where a single series needs no name."""
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
