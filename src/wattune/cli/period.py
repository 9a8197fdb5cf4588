"""`wattune period`: find the period of a power trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import FILE, check_writable, json_option, made_line, print_json, print_line, write_text
from wattune.core.codec import to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wattune.render.chart import Chart, Point
    from wattune.signals.period import PeriodAnswer
    from wattune.signals.samples import PowerSamples

_MOST_POINTS = 1500
_SHOWN_CYCLES = 12
"""Cycles that can be distinguished in a chart as wide as a page."""
_MEANING = {"periodic": "repeats", "aperiodic": "does not repeat", "not_observable": "not observable with this sensor"}


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
@click.option("--plot", type=FILE, metavar="FILE", help="Plot to .html or .svg.")
@json_option
def command(trace: Path, gpu: int | None, sensor_refresh: float | None, plot: Path | None, as_json: bool) -> None:
    """Find the period of a power trace with its error, or report that it has none, or that the sensor cannot show one.

    TRACE is a CSV file with the columns time_s and power_w (sm_util and mem_util help), or what nvidia-smi logs with
    --query-gpu=timestamp,power.draw,utilization.gpu,utilization.memory --format=csv.
    """
    from wattune.cli.threads import one_thread_each
    from wattune.core.gpu_spec import Sensors

    with one_thread_each():
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
    answer = find_period(samples, sensor=sensor, others=traces[:number] + traces[number + 1 :])
    if plot is not None:
        write_text(plot, _plot(plot.suffix, samples, answer, name=trace.name))
    if as_json:
        document = _document(samples, answer)
        print_json({"file": str(trace), "gpus": len(traces), "gpu": number, **document, "plot": plot})
    else:
        which = f", GPU {number} of {len(traces)}" if len(traces) > 1 else ""
        print_line(f"{trace.name}{which}: {_verdict(answer)}")
        _show(samples, answer)


def _plot(suffix: str, samples: PowerSamples, answer: PeriodAnswer, *, name: str) -> str:
    """Draw the trace and some of its cycles as a page for the suffix .html, or only the last of these for .svg."""
    from wattune.render.page import LargeChart, Page, Table, render_page
    from wattune.render.svg import standalone

    known = samples.in_order()
    charts = [_power_chart(known, title=name, subtitle=_verdict(answer))]
    if answer.period_s:
        start_s, last_s = float(known.time_s[0]) + known.duration_s / 2, float(known.time_s[-1])
        ends_s = [start_s + answer.period_s * cycle for cycle in range(_SHOWN_CYCLES + 1)]
        ends_s = [end_s for end_s in ends_s if end_s <= last_s]
        shown = known.where((known.time_s >= start_s) & (known.time_s <= ends_s[-1]))
        if len(ends_s) > 1:
            charts.append(_power_chart(shown, title=f"Some cycles of {name}", subtitle=_verdict(answer), ends_s=ends_s))
    if suffix == ".svg":
        return standalone(charts[-1])
    rows = tuple(
        (cycle.kind.value, f"{cycle.period_s:.5g} s", f"{cycle.error_s:.2g} s", f"{cycle.strength:.2f}")
        for cycle in answer.cycles
    )
    title = "What repeats; its strength is its share of the variance of power"
    table = Table(title, ("level", "period", "± (95 %)", "strength"), rows)
    page = Page(
        title=f"What repeats in {name}",
        lead=" ".join(filter(None, (_verdict(answer).capitalize() + ".", answer.reason))),
        simulated=False,
        sections=(*map(LargeChart, charts), *((table,) if rows else ())),
        foot=made_line(),
    )
    return render_page(page)


def _power_chart(samples: PowerSamples, *, title: str, subtitle: str, ends_s: Sequence[float] = ()) -> Chart:
    """Draw power over time, with a line at the end of each cycle."""
    from wattune.render.chart import Axis, Chart, ReferenceLine, Series, Way

    return Chart(
        title=title,
        subtitle=subtitle,
        x=Axis(title="time", unit="s"),
        y=Axis(title="power", unit="W"),
        series=(Series(name="power", points=_thinned(samples)),),
        rules=tuple(ReferenceLine(end_s, "", Way.UPRIGHT) for end_s in ends_s),
    )


def _thinned(samples: PowerSamples) -> tuple[Point, ...]:
    """Return the lowest and the highest point of each short interval, in order of time, so that spikes remain."""
    from wattune.render.chart import Point

    every = max(len(samples) * 2 // _MOST_POINTS, 1)
    points: list[Point] = []
    for first in range(0, len(samples), every):
        power_w = samples.power_w[first : first + every]
        places = sorted({first + int(power_w.argmin()), first + int(power_w.argmax())})
        points += [Point(float(samples.time_s[place]), float(samples.power_w[place])) for place in places]
    return tuple(points)


def _document(samples: PowerSamples, answer: PeriodAnswer) -> dict[str, Any]:
    duration_s = samples.in_order().duration_s
    known = {"samples": len(samples), "duration_s": duration_s, "refresh_s": answer.refresh_s}
    return {**known, **to_json(answer), "reason": answer.reason or None}


def _show(samples: PowerSamples, answer: PeriodAnswer) -> None:
    for cycle in answer.cycles:
        share = f"{100 * cycle.strength:.0f} % of the variance of power"
        print_line(f"  {cycle.kind.value:<10} {_seconds(cycle.period_s, cycle.error_s)}, {share}")
    if answer.spread is not None:
        print_line(f"  steps vary by {100 * answer.spread:.0f} % (standard deviation); the period is their mean")
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
