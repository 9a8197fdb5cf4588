"""The plot of a power trace and its period, as a page or a single SVG chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattune.cli.output import write_text
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Spread, Tone, Way
from wattune.render.page import LargeChart, Page, SmallCharts, Table, render_page
from wattune.render.svg import standalone
from wattune.signals.period import PeriodAnswer
from wattune.signals.samples import Floats, PowerSamples

_MOST_POINTS = 1500
# Cycles that can be distinguished in a chart as wide as a page.
_SHOWN_CYCLES = 12


_POWER = Axis(title="power", unit="W")


def write_plot(file: Path, samples: PowerSamples, answer: PeriodAnswer, *, name: str, verdict: str) -> None:
    """Write the trace and its cycles to FILE.html, or one chart of them to FILE.svg."""
    known = samples.in_order()
    time_s, power_w = known.time_s.tolist(), known.power_w.tolist()
    whole = _power_chart(_thinned(time_s, power_w), title=name, subtitle=verdict)
    cycles: tuple[Chart, ...] = ()
    fold = folded_cycle(samples, answer.period_s) if answer.period_s else None
    if fold is not None and answer.period_s is not None:
        some = _cycles_chart(time_s, power_w, period_s=answer.period_s, start_s=fold.start_s)
        cycles = (some, _fold_chart(fold))
    if file.suffix == ".svg":
        write_text(file, standalone(cycles[0] if cycles else whole))
        return
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
    write_text(file, render_page(page))


def _cycles_chart(time_s: Sequence[float], power_w: Sequence[float], *, period_s: float, start_s: float) -> Chart:
    """Draw some cycles of the second half of a trace, with a line where each begins."""
    end_s = start_s + _SHOWN_CYCLES * period_s
    shown = [(when, power) for when, power in zip(time_s, power_w, strict=True) if start_s <= when <= end_s]
    starts = tuple(ReferenceLine(start_s + number * period_s, "", Way.UPRIGHT) for number in range(_SHOWN_CYCLES + 1))
    points = _thinned([when for when, _ in shown], [power for _, power in shown])
    return _power_chart(points, title="Some cycles", rules=starts)


def _fold_chart(fold: FoldedCycle) -> Chart:
    """Draw one cycle: the median of all, and the band that holds four of five."""
    time_s, power_w = fold.time_s.tolist(), fold.power_w.tolist()
    spread = tuple(Spread(*ends) for ends in zip(time_s, fold.low_w.tolist(), fold.high_w.tolist(), strict=True))
    points = tuple(Point(when, power) for when, power in zip(time_s, power_w, strict=True))
    series = Series(name="median, and where 4 of 5 cycles lie", points=points, tone=Tone.BLUE, spread=spread)
    return Chart(title="All cycles as one", x=Axis(title="time in the cycle", unit="s"), y=_POWER, series=(series,))


def _power_chart(
    points: tuple[Point, ...], *, title: str, subtitle: str | None = None, rules: tuple[ReferenceLine, ...] = ()
) -> Chart:
    series = Series(name="power", points=points, mark=Mark.LINE, tone=Tone.BLUE)
    return Chart(
        title=title, subtitle=subtitle, x=Axis(title="time", unit="s"), y=_POWER, series=(series,), rules=rules
    )


def _thinned(time_s: Sequence[float], power_w: Sequence[float]) -> tuple[Point, ...]:
    """Return the lowest and the highest point of each short interval, in order of time, so that spikes remain."""
    every = max(len(time_s) * 2 // _MOST_POINTS, 1)
    points: list[Point] = []
    for first in range(0, len(time_s), every):
        part = range(first, min(first + every, len(time_s)))
        ends = sorted({min(part, key=power_w.__getitem__), max(part, key=power_w.__getitem__)})
        points += [Point(float(time_s[place]), float(power_w[place])) for place in ends]
    return tuple(points)


_MOST_BINS = 48
# Shares of the cycles between which the spread is drawn.
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class FoldedCycle:
    """Power over one cycle, from where it is lowest: its median at each phase, and the range of most cycles."""

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
    phase = late.time_s / period_s % 1.0
    place = np.minimum((phase * bins).astype(np.int64), bins - 1)
    parts = [late.power_w[place == number] for number in range(bins)]
    if not all(len(part) for part in parts):
        return None
    middle = np.array([np.median(part) for part in parts])
    first = int(np.argmin(middle))
    order = np.roll(np.arange(bins), -first)
    start_s = (np.floor(late.time_s[0] / period_s) + (first / bins)) * period_s
    return FoldedCycle(
        float(start_s),
        (np.arange(bins) + 0.5) / bins * period_s,
        middle[order],
        np.array([np.quantile(parts[number], _LOW) for number in order]),
        np.array([np.quantile(parts[number], _HIGH) for number in order]),
    )
