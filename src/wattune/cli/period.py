"""`wattune period`: find the period of a power trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import FILE, check_writable, json_option, print_json, print_line, write_text
from wattune.core.codec import to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.signals.period import PeriodAnswer
    from wattune.signals.samples import PowerSamples

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
        from wattune.cli.period_plot import plot_text

        write_text(plot, plot_text(plot.suffix, samples, answer, name=trace.name, verdict=_verdict(answer)))
    if as_json:
        document = _document(samples, answer)
        print_json({"file": str(trace), "gpus": len(traces), "gpu": number, **document, "plot": plot})
    else:
        which = f", GPU {number} of {len(traces)}" if len(traces) > 1 else ""
        print_line(f"{trace.name}{which}: {_verdict(answer)}")
        _show(samples, answer)


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
