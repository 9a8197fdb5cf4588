"""What repeats in a power trace, as charts: the trace, some cycles of it, and all cycles laid over each other."""

from __future__ import annotations

from collections.abc import Sequence

from wattune.render.chart import Axis, Chart, Mark, Point, Rule, Series, Spread, Tone, Way
from wattune.render.page import LargeChart, Page, SmallCharts, Table

_MOST_POINTS = 1500
# Cycles that can be told apart in a chart as wide as a page.
_SHOWN_CYCLES = 12


def whole_chart(time_s: Sequence[float], power_w: Sequence[float], *, title: str, subtitle: str) -> Chart:
    """All of a trace, thinned so that its spikes stay."""
    return _chart(_thinned(time_s, power_w), title=title, subtitle=subtitle)


def cycles_chart(
    time_s: Sequence[float], power_w: Sequence[float], *, period_s: float, start_s: float, title: str
) -> Chart:
    """Some cycles in the second half of a trace, each marked where it begins."""
    end_s = start_s + _SHOWN_CYCLES * period_s
    shown = [(when, power) for when, power in zip(time_s, power_w, strict=True) if start_s <= when <= end_s]
    rules = tuple(Rule(start_s + number * period_s, "", Way.UPRIGHT) for number in range(_SHOWN_CYCLES + 1))
    points = _thinned([when for when, _ in shown], [power for _, power in shown])
    return _chart(points, title=title, subtitle=None, rules=rules)


def fold_chart(
    time_s: Sequence[float],
    power_w: Sequence[float],
    low_w: Sequence[float],
    high_w: Sequence[float],
    *,
    title: str,
) -> Chart:
    """One cycle: the median of all, and the band between which four of five lie."""
    spread = tuple(Spread(*values) for values in zip(time_s, low_w, high_w, strict=True))
    points = tuple(Point(when, power) for when, power in zip(time_s, power_w, strict=True))
    series = Series(name="median, and where 4 of 5 cycles lie", points=points, tone=Tone.BLUE, spread=spread)
    return Chart(title=title, x=Axis(title="time in the cycle", unit="s"), y=_power_axis(), series=(series,))


def period_page(
    *, title: str, lead: str, simulated: bool, whole: Chart, cycles: Sequence[Chart], rows: tuple[tuple[str, ...], ...]
) -> Page:
    """The answer, the trace, the cycles and a table of levels."""
    table = (Table("What repeats", ("level", "period", "± (95 %)", "strength"), rows),) if rows else ()
    small = (SmallCharts(tuple(cycles)),) if cycles else ()
    foot = "Strength is the share of the variance of power that repeats with a level."
    return Page(title=title, lead=lead, simulated=simulated, sections=(LargeChart(whole), *small, *table), foot=foot)


def _chart(points: tuple[Point, ...], *, title: str, subtitle: str | None, rules: tuple[Rule, ...] = ()) -> Chart:
    series = Series(name="power", points=points, mark=Mark.LINE, tone=Tone.BLUE)
    axis = Axis(title="time", unit="s")
    return Chart(title=title, subtitle=subtitle, x=axis, y=_power_axis(), series=(series,), rules=rules)


def _power_axis() -> Axis:
    return Axis(title="power", unit="W")


def _thinned(time_s: Sequence[float], power_w: Sequence[float]) -> tuple[Point, ...]:
    """The lowest and the highest of each short stretch, in the order in which they came."""
    every = max(len(time_s) * 2 // _MOST_POINTS, 1)
    points: list[Point] = []
    for first in range(0, len(time_s), every):
        part = range(first, min(first + every, len(time_s)))
        ends = sorted({min(part, key=power_w.__getitem__), max(part, key=power_w.__getitem__)})
        points += [Point(float(time_s[place]), float(power_w[place])) for place in ends]
    return tuple(points)
