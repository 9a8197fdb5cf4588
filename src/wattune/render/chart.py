"""A chart as a value: axes, series and notes. `wattune.render.svg.draw` draws it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor, isclose, isfinite, log10

_MANTISSAS = (1.0, 2.0, 2.5, 5.0, 10.0)


def tick_step(low: float, high: float, *, about: int) -> float:
    """Return the round step that divides low to high into nearly `about` parts."""
    rough = (high - low) / max(about, 1)
    scale = 10.0 ** floor(log10(rough))
    return min((mantissa * scale for mantissa in _MANTISSAS), key=lambda step: abs(step - rough))


def ticks(low: float, high: float, *, about: int = 5) -> tuple[float, ...]:
    """Return the multiples of a round step between low and high."""
    low, high = widened(low, high)
    step = tick_step(low, high, about=about)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    places = max(2 - floor(log10(step)), 0)
    return tuple(round(index * step, places) for index in range(first, last + 1))


def log_ticks(low: float, high: float, *, about: int = 5) -> tuple[float, ...]:
    """Return round numbers between low and high for a logarithmic axis; few decades get 2s and 5s too."""
    if high < 8 * low:  # too narrow for decades to mark it
        return ticks(low, high, about=about)
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for mantissas in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        values = tuple(mantissa * 10.0**decade for decade in decades for mantissa in mantissas)
        within = tuple(value for value in values if low <= value <= high)
        if len(within) <= about + 1:
            break
    return within


def widened(low: float, high: float) -> tuple[float, float]:
    """Return the same range, or a small one around it where it has no width."""
    if high > low and not isclose(low, high, rel_tol=1e-9):
        return low, high
    half = abs(low) * 0.05 or 0.5
    return low - half, low + half


def padded(low: float, high: float, *, share: float = 0.06, least: float = 0.0) -> tuple[float, float]:
    """Return the range with some room on both sides; a range of positive numbers stays positive.

    Its width is at least `least` times its middle, so that noise does not fill the chart.
    """
    wide_low, wide_high = widened(low, high)
    middle = (wide_low + wide_high) / 2
    half = max((wide_high - wide_low) * (0.5 + share), abs(middle) * least / 2)
    return (max(middle - half, 0.0) if low >= 0 else middle - half), middle + half


def tick_labels(values: tuple[float, ...]) -> tuple[str, ...]:
    """Format ticks, all with the same number of places and a thin space before thousands."""
    places = next((n for n in range(10) if all(isclose(v, round(v, n), abs_tol=1e-12) for v in values)), 10)
    return tuple(f"{value:,.{places}f}".replace(",", "\u2009").replace("-", "−") for value in values)


class Mark(Enum):
    """The form of a series."""

    LINE = "line"
    STEPS = "steps"
    POINTS = "points"
    LINE_AND_POINTS = "line and points"


class Shape(Enum):
    """The form of a point, so that series differ without colours too."""

    CIRCLE = "circle"
    SQUARE = "square"
    DIAMOND = "diamond"
    TRIANGLE = "triangle"
    CROSS = "cross"


class Scale(Enum):
    """Equal steps, or equal factors, along an axis."""

    LINEAR = "linear"
    LOG = "log"


class Tone(Enum):
    """The colour of a series; each has a light and a dark form that colour-blind readers can distinguish."""

    BLUE = "blue"
    ORANGE = "orange"
    GREEN = "green"
    PURPLE = "purple"
    GOLD = "gold"
    SKY = "sky"
    GREY = "grey"


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a series; where `y` is None a line has a gap."""

    x: float
    y: float | None
    tip: str | None = None
    """The tooltip."""

    def __post_init__(self) -> None:
        if not isfinite(self.x) or (self.y is not None and not isfinite(self.y)):
            raise ValueError(f"a chart cannot show ({self.x}, {self.y}); an unknown y is None")


@dataclass(frozen=True, slots=True)
class Spread:
    """The range of values at one x."""

    x: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(map(isfinite, (self.x, self.low, self.high))) or self.low > self.high:
            raise ValueError(f"a chart cannot show a spread from {self.low} to {self.high} at {self.x}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one name and tone."""

    name: str
    points: tuple[Point, ...]
    mark: Mark = Mark.LINE
    tone: Tone = Tone.BLUE
    dashed: bool = False
    shape: Shape = Shape.CIRCLE
    every: int = 1
    """For a line with points: mark only every so many points, from `first` on."""
    first: int = 0
    spread: tuple[Spread, ...] = ()
    """A shaded band around the series, such as the range of several seeds."""


def default_series(name: str, *points: Point) -> Series:
    """Return what others are compared with, such as the driver's default: it looks the same in every chart."""
    return Series(name=name, points=points, mark=Mark.POINTS, tone=Tone.ORANGE, shape=Shape.TRIANGLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis; where `low` or `high` is None it comes from the data, with some room."""

    title: str
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    least: float = 0.0
    """The least width as a share of the middle, so that noise does not fill the chart."""
    scale: Scale = Scale.LINEAR
    marks: tuple[tuple[float, str], ...] = ()
    """Values to label instead of round numbers, with their labels; those without room are left out."""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"axis {self.title!r} goes from {self.low} to {self.high}")

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def bounds(self, values: Iterable[float]) -> tuple[float, float]:
        known = tuple(values)
        if self.scale is Scale.LOG:
            return self._log_bounds(known or (1.0, 10.0))
        low, high = padded(min(known), max(known), least=self.least) if known else (0.0, 1.0)
        return widened(low if self.low is None else self.low, high if self.high is None else self.high)

    def _log_bounds(self, known: tuple[float, ...]) -> tuple[float, float]:
        low = min(known) if self.low is None else self.low
        high = max(known) if self.high is None else self.high
        if low <= 0:
            raise ValueError(f"axis {self.title!r} is logarithmic and cannot show {low}")
        room = max((high / low) ** 0.06, 1.05)
        return (low / room if self.low is None else low), (high * room if self.high is None else high)


@dataclass(frozen=True, slots=True)
class Note:
    """A label at a point, with a ring around the point and a thin line to the text."""

    x: float
    y: float
    text: str
    detail: str | None = None
    """A second line in a lighter colour."""


class Way(Enum):
    """The direction of a rule."""

    ACROSS = "across"
    UPRIGHT = "upright"


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """A thin dashed line through the whole chart at one value, such as a power limit."""

    at: float
    text: str
    way: Way = Way.ACROSS


@dataclass(frozen=True, slots=True)
class Band:
    """A shaded interval of the x axis, such as the slowdowns that are allowed."""

    start: float
    end: float
    text: str
    tone: Tone = Tone.GREY


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that is drawn."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    notes: tuple[Note, ...] = ()
    rules: tuple[ReferenceLine, ...] = ()
    bands: tuple[Band, ...] = ()
    subtitle: str | None = None

    @property
    def x_bounds(self) -> tuple[float, float]:
        known = [point.x for series in self.series for point in series.points if point.y is not None]
        known += [spread.x for series in self.series for spread in series.spread]
        known += [note.x for note in self.notes]
        return self.x.bounds(known + [rule.at for rule in self.rules if rule.way is Way.UPRIGHT])

    @property
    def y_bounds(self) -> tuple[float, float]:
        known = [point.y for series in self.series for point in series.points if point.y is not None]
        known += [edge for series in self.series for spread in series.spread for edge in (spread.low, spread.high)]
        known += [note.y for note in self.notes]
        return self.y.bounds(known + [rule.at for rule in self.rules if rule.way is Way.ACROSS])
