"""The plot of a power trace and its period, as a page or a single SVG chart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Spread, Tone, Way
from wattune.render.page import LargeChart, Page, SmallCharts, Table, render_page
from wattune.render.svg import standalone
from wattune.signals.period import PeriodAnswer
from wattune.signals.samples import Floats, PowerSamples

_MOST_POINTS = 1500
# Cycles that can be distinguished in a chart as wide as a page.
_SHOWN_CYCLES = 12
_POWER = Axis(title="power", unit="W")


def plot_text(suffix: str, samples: PowerSamples, answer: PeriodAnswer, *, name: str, verdict: str) -> str:
    """Draw the trace and its cycles as a page for the suffix .html, or one chart of them for .svg."""
    known = samples.in_order()
    whole = _power_chart(known, title=name, subtitle=verdict)
    cycles: tuple[Chart, ...] = ()
    fold = folded_cycle(samples, answer.period_s) if answer.period_s else None
    if fold is not None:
        starts_s = fold.start_s + fold.period_s * np.arange(_SHOWN_CYCLES + 1)
        shown = known.where((known.time_s >= starts_s[0]) & (known.time_s <= starts_s[-1]))
        rules = tuple(ReferenceLine(float(start_s), "", Way.UPRIGHT) for start_s in starts_s)
        cycles = (_power_chart(shown, title="Some cycles", rules=rules), _fold_chart(fold))
    if suffix == ".svg":
        return standalone(cycles[0] if cycles else whole)
    rows = tuple(
        (cycle.kind.value, f"{cycle.period_s:.5g} s", f"{cycle.error_s:.2g} s", f"{cycle.strength:.2f}")
        for cycle in answer.cycles
    )
    page = Page(
        title=f"What repeats in {name}",
        lead=" ".join(filter(None, (verdict.capitalize() + ".", answer.reason))),
        simulated=False,
        sections=(
            LargeChart(whole),
            *((SmallCharts(cycles),) if cycles else ()),
            *((Table("What repeats", ("level", "period", "± (95 %)", "strength"), rows),) if rows else ()),
        ),
        foot="Strength is the share of the variance of power that repeats with a level.",
    )
    return render_page(page)


def _power_chart(
    samples: PowerSamples, *, title: str, subtitle: str | None = None, rules: tuple[ReferenceLine, ...] = ()
) -> Chart:
    series = Series(name="power", points=_thinned(samples), mark=Mark.LINE, tone=Tone.BLUE)
    return Chart(
        title=title, subtitle=subtitle, x=Axis(title="time", unit="s"), y=_POWER, series=(series,), rules=rules
    )


def _thinned(samples: PowerSamples) -> tuple[Point, ...]:
    """Return the lowest and the highest point of each short interval, in order of time, so that spikes remain."""
    every = max(len(samples) * 2 // _MOST_POINTS, 1)
    points: list[Point] = []
    for first in range(0, len(samples), every):
        power_w = samples.power_w[first : first + every]
        places = sorted({first + int(np.argmin(power_w)), first + int(np.argmax(power_w))})
        points += [Point(float(samples.time_s[place]), float(samples.power_w[place])) for place in places]
    return tuple(points)


_MOST_BINS = 48
# Shares of the cycles between which the spread is drawn.
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class FoldedCycle:
    """Power over one cycle, from where it is lowest: its median at each phase, and the range of most cycles."""

    period_s: float
    start_s: float
    """A time at which a cycle begins."""
    time_s: Floats
    power_w: Floats
    low_w: Floats
    high_w: Floats


def folded_cycle(samples: PowerSamples, period_s: float) -> FoldedCycle | None:
    """Fold the cycles of the second half of the samples onto one; None where there are too few samples."""
    samples = samples.in_order()
    late = samples.since(float(samples.time_s[0]) + samples.duration_s / 2) if len(samples) else samples
    bins = min(_MOST_BINS, max(int(period_s / max(late.duration_s / max(len(late), 1), 1e-9)), 4))
    if len(late) < 4 * bins:
        return None
    place = np.minimum((late.time_s / period_s % 1.0 * bins).astype(np.int64), bins - 1)
    parts = [late.power_w[place == number] for number in range(bins)]
    if not all(len(part) for part in parts):
        return None
    low_w, middle_w, high_w = np.array([np.quantile(part, (_LOW, 0.5, _HIGH)) for part in parts]).T
    first = int(np.argmin(middle_w))
    start_s = (np.floor(late.time_s[0] / period_s) + first / bins) * period_s
    time_s = (np.arange(bins) + 0.5) / bins * period_s
    power_w, low_w, high_w = (np.roll(values, -first) for values in (middle_w, low_w, high_w))
    return FoldedCycle(period_s, float(start_s), time_s, power_w, low_w, high_w)


def _fold_chart(fold: FoldedCycle) -> Chart:
    """Draw one cycle: the median of all, and the band that holds four of five."""
    time_s = fold.time_s.tolist()
    spread = tuple(Spread(*ends) for ends in zip(time_s, fold.low_w.tolist(), fold.high_w.tolist(), strict=True))
    points = tuple(Point(when, power) for when, power in zip(time_s, fold.power_w.tolist(), strict=True))
    series = Series(name="median, and where 4 of 5 cycles lie", points=points, tone=Tone.BLUE, spread=spread)
    return Chart(title="All cycles as one", x=Axis(title="time in the cycle", unit="s"), y=_POWER, series=(series,))
