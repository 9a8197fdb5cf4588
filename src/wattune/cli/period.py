"""`wattune period`: what repeats in a power trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from wattune.cli.output import check_writable, console, json_option, print_json, write_text
from wattune.core.errors import InputError
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Spread, Tone, Way
from wattune.render.page import LargeChart, Page, SmallCharts, Table
from wattune.signals.samples import Floats, PowerSamples

if TYPE_CHECKING:
    from wattune.signals.period import PeriodAnswer, PeriodCycle
    from wattune.signals.samples import PowerSamples


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
    rules = tuple(ReferenceLine(start_s + number * period_s, "", Way.UPRIGHT) for number in range(_SHOWN_CYCLES + 1))
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


def _chart(
    points: tuple[Point, ...], *, title: str, subtitle: str | None, rules: tuple[ReferenceLine, ...] = ()
) -> Chart:
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


_MOST_BINS = 48
# Shares of the cycles between which the spread is drawn.
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True, eq=False)
class FoldedCycle:
    """Power over one cycle: its median at each phase, and between what most cycles lie; power at its lowest first."""

    start_s: float
    """A time at which a cycle begins."""
    time_s: Floats
    power_w: Floats
    low_w: Floats
    high_w: Floats


def folded_cycle(samples: PowerSamples, period_s: float) -> FoldedCycle | None:
    """The cycles of the second half of the samples folded onto one; None where there are too few samples."""
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


_MEANING = {
    "periodic": "repeats",
    "aperiodic": "does not repeat",
    "not_observable": "not observable with this sensor",
}


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--gpu", type=click.IntRange(min=0), help="Which GPU of a log of several, from 0; the busiest without it."
)
@click.option(
    "--sensor-refresh",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds between two new values of the power sensor; seen in the trace without it.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it: .html or .svg.")
@json_option
def command(trace: Path, gpu: int | None, sensor_refresh: float | None, plot: Path | None, as_json: bool) -> None:
    """Say what repeats in a power trace: its period and error, or that there is none, or that none can be seen.

    TRACE is a CSV file with the columns time_s and power_w (sm_util and mem_util help), or what nvidia-smi logs with
    --query-gpu=timestamp,power.draw,utilization.gpu,utilization.memory --format=csv.
    """
    from wattune.core.gpu_spec import Sensors
    from wattune.signals.period import find_period
    from wattune.signals.trace_text import busiest, parse_traces

    if plot is not None and plot.suffix not in (".html", ".svg"):
        raise click.UsageError(f"a plot is FILE.html or FILE.svg, not {plot.name}")
    check_writable(plot)
    traces = parse_traces(_text(trace), file=str(trace))
    number = busiest(traces) if gpu is None else gpu
    if number >= len(traces):
        raise InputError(f"{trace} has no GPU {number}", hint=f"it has {len(traces)}, counted from 0")
    samples = traces[number]
    sensor = Sensors(power_period_s=sensor_refresh) if sensor_refresh else None
    answer = find_period(samples, sensor=sensor)
    if plot is not None:
        _draw(plot, trace, samples, answer)
    if as_json:
        print_json(_document(trace, samples, answer, gpus=len(traces), gpu=number, plot=plot))
    else:
        _show(trace, samples, answer, gpus=len(traces), gpu=number)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read {file}: {reason}", hint="give a power trace as CSV") from None


def _document(
    file: Path, samples: PowerSamples, answer: PeriodAnswer, *, gpus: int, gpu: int, plot: Path | None
) -> dict[str, Any]:
    return {
        "file": str(file),
        "gpus": gpus,
        "gpu": gpu,
        "samples": len(samples),
        "duration_s": samples.in_order().duration_s,
        "refresh_s": answer.refresh_s,
        "verdict": answer.verdict.value,
        "period_s": answer.period_s,
        "error_s": answer.error_s,
        "cycles": [asdict(cycle) | {"kind": cycle.kind.value} for cycle in answer.cycles],
        "stalled": answer.stalled,
        "reason": answer.reason or None,
        "plot": plot,
    }


def _show(file: Path, samples: PowerSamples, answer: PeriodAnswer, *, gpus: int, gpu: int) -> None:
    screen = console()
    which = f", GPU {gpu} of {gpus}" if gpus > 1 else ""
    screen.print(f"{file.name}{which}: {_words(answer)}", markup=False, soft_wrap=True)
    for cycle in answer.cycles:
        screen.print(f"  {_cycle_words(cycle)}", markup=False, soft_wrap=True)
    refresh = "" if answer.refresh_s is None else f", a new value every {answer.refresh_s * 1000:.3g} ms"
    screen.print(
        f"  {len(samples)} samples over {samples.in_order().duration_s:.4g} s{refresh}", style="dim", soft_wrap=True
    )
    if answer.reason:
        screen.print(f"  {answer.reason}", markup=False, style="dim", soft_wrap=True)


def _words(answer: PeriodAnswer) -> str:
    if answer.period_s is None:
        return _MEANING[answer.verdict.value]
    return f"{_MEANING[answer.verdict.value]} every {_seconds(answer.period_s, answer.error_s or 0.0)}"


def _cycle_words(cycle: PeriodCycle) -> str:
    share = f"{100 * cycle.strength:.0f} % of the variance of power"
    return f"{cycle.kind.value:<10} {_seconds(cycle.period_s, cycle.error_s)}, {share}"


def _seconds(period_s: float, error_s: float) -> str:
    """The period to the digit that its error leaves."""
    digits = 4
    while digits < 6 and error_s < 0.5 * 10.0**-digits:
        digits += 1
    return f"{period_s:.{digits}f} s ± {error_s:.{digits}f} s"


def _draw(plot: Path, file: Path, samples: PowerSamples, answer: PeriodAnswer) -> None:
    from wattune.render.page import render_page
    from wattune.render.svg import standalone

    known = samples.in_order()
    time_s, power_w = known.time_s.tolist(), known.power_w.tolist()
    whole = whole_chart(time_s, power_w, title=file.name, subtitle=_words(answer))
    fold = folded_cycle(samples, answer.period_s) if answer.period_s else None
    cycles = []
    if fold is not None and answer.period_s is not None:
        marked = cycles_chart(time_s, power_w, period_s=answer.period_s, start_s=fold.start_s, title="Some cycles")
        values = (fold.time_s, fold.power_w, fold.low_w, fold.high_w)
        cycles = [marked, fold_chart(*(value.tolist() for value in values), title="All cycles as one")]
    if plot.suffix == ".svg":
        write_text(plot, standalone(cycles[0] if cycles else whole))
        return
    rows = tuple(
        (cycle.kind.value, f"{cycle.period_s:.5g} s", f"{cycle.error_s:.2g} s", f"{cycle.strength:.2f}")
        for cycle in answer.cycles
    )
    page = period_page(
        title=f"What repeats in {file.name}",
        lead=" ".join(filter(None, (_words(answer).capitalize() + ".", answer.reason))),
        simulated=False,
        whole=whole,
        cycles=cycles,
        rows=rows,
    )
    write_text(plot, render_page(page))
