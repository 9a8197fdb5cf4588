"""`wattune period`: find the period of a power trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from wattune.cli.output import check_writable, json_option, print_json, print_line, read_text, write_text
from wattune.core.errors import InputError
from wattune.render.chart import Axis, Chart, Mark, Point, ReferenceLine, Series, Spread, Tone, Way
from wattune.render.page import LargeChart, Page, SmallCharts, Table, render_page
from wattune.render.svg import standalone
from wattune.signals.period import PeriodAnswer
from wattune.signals.samples import Floats, PowerSamples

_MEANING = {
    "periodic": "repeats",
    "aperiodic": "does not repeat",
    "not_observable": "not observable with this sensor",
}


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--gpu", type=click.IntRange(min=0), help="The GPU in a log of several, from 0; by default the one that drew most."
)
@click.option(
    "--sensor-refresh",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Seconds between two updates of the power sensor; by default estimated from the trace.",
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Plot to .html or .svg.")
@json_option
def command(trace: Path, gpu: int | None, sensor_refresh: float | None, plot: Path | None, as_json: bool) -> None:
    """Find the period of a power trace with its error, or report that it has none, or that the sensor cannot show one.

    TRACE is a CSV file with the columns time_s and power_w (sm_util and mem_util help), or what nvidia-smi logs with
    --query-gpu=timestamp,power.draw,utilization.gpu,utilization.memory --format=csv.
    """
    from wattune.core.gpu_spec import Sensors
    from wattune.signals.period import find_period
    from wattune.signals.trace_text import busiest, parse_traces

    if plot is not None and plot.suffix not in (".html", ".svg"):
        raise click.UsageError(f"a plot is FILE.html or FILE.svg, not {plot.name}")
    check_writable(plot)
    traces = parse_traces(read_text(trace, hint="give a power trace as CSV"), file=str(trace))
    number = busiest(traces) if gpu is None else gpu
    if number >= len(traces):
        raise InputError(f"{trace} has no GPU {number}", hint=f"it has {len(traces)}, counted from 0")
    samples = traces[number]
    sensor = Sensors(power_period_s=sensor_refresh) if sensor_refresh else None
    answer = find_period(samples, sensor=sensor)
    if plot is not None:
        write_plot(plot, samples, answer, name=trace.name)
    if as_json:
        document = _document(samples, answer)
        print_json({"file": str(trace), "gpus": len(traces), "gpu": number, **document, "plot": plot})
    else:
        which = f", GPU {number} of {len(traces)}" if len(traces) > 1 else ""
        print_line(f"{trace.name}{which}: {_verdict(answer)}")
        _show(samples, answer)


def _document(samples: PowerSamples, answer: PeriodAnswer) -> dict[str, Any]:
    return {
        "samples": len(samples),
        "duration_s": samples.in_order().duration_s,
        "refresh_s": answer.refresh_s,
        "verdict": answer.verdict.value,
        "period_s": answer.period_s,
        "error_s": answer.error_s,
        "cycles": [asdict(cycle) | {"kind": cycle.kind.value} for cycle in answer.cycles],
        "stalled": answer.stalled,
        "reason": answer.reason or None,
    }


def _show(samples: PowerSamples, answer: PeriodAnswer) -> None:
    for cycle in answer.cycles:
        share = f"{100 * cycle.strength:.0f} % of the variance of power"
        print_line(f"  {cycle.kind.value:<10} {_seconds(cycle.period_s, cycle.error_s)}, {share}")
    refresh = "" if answer.refresh_s is None else f", a new value every {answer.refresh_s * 1000:.3g} ms"
    print_line(f"  {len(samples)} samples over {samples.in_order().duration_s:.4g} s{refresh}", style="dim")
    if answer.reason:
        print_line(f"  {answer.reason}", style="dim")


def _verdict(answer: PeriodAnswer) -> str:
    meaning = _MEANING[answer.verdict.value]
    return meaning if answer.period_s is None else f"{meaning} every {_seconds(answer.period_s, answer.error_s or 0.0)}"


def _seconds(period_s: float, error_s: float) -> str:
    """Format the period with the digits that its error allows."""
    digits = 4
    while digits < 6 and error_s < 0.5 * 10.0**-digits:
        digits += 1
    return f"{period_s:.{digits}f} s ± {error_s:.{digits}f} s"


_MOST_POINTS = 1500
# Cycles that can be distinguished in a chart as wide as a page.
_SHOWN_CYCLES = 12
_POWER = Axis(title="power", unit="W")


def write_plot(file: Path, samples: PowerSamples, answer: PeriodAnswer, *, name: str) -> None:
    """Write the trace and its cycles to FILE.html, or one chart of them to FILE.svg."""
    known, verdict = samples.in_order(), _verdict(answer)
    whole = _power_chart(known, title=name, subtitle=verdict)
    cycles: tuple[Chart, ...] = ()
    fold = folded_cycle(samples, answer.period_s) if answer.period_s else None
    if fold is not None:
        starts_s = fold.start_s + fold.period_s * np.arange(_SHOWN_CYCLES + 1)
        shown = known.where((known.time_s >= starts_s[0]) & (known.time_s <= starts_s[-1]))
        rules = tuple(ReferenceLine(float(start_s), "", Way.UPRIGHT) for start_s in starts_s)
        cycles = (_power_chart(shown, title="Some cycles", rules=rules), _fold_chart(fold))
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
