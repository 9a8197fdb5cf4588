"""`wattune physics fit`: fit the parameters of a simulated GPU to a measured sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import (
    FILE,
    console,
    json_option,
    marked,
    print_json,
    print_line,
    print_table,
    trust_lines,
    write_text,
)
from wattune.core.codec import to_json
from wattune.core.csv_input import read_text
from wattune.core.errors import DeviceNotFound, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wattune.core.workload import Workload
    from wattune.physics.catalog.sheet import Sheet
    from wattune.physics.fit.model_fit import ModelFit, SweepPoint
    from wattune.render.chart import Chart

_HINT = "give a sweep CSV, as `wattune sweep --csv` writes"
_LINE_POINTS = 160
"""Enough to draw a line in any terminal."""


@click.group()
def command() -> None:
    """Fit the simulated GPUs to measurements."""


@command.command(short_help="Fit the parameters of a GPU to a sweep.")
@click.argument("sweep", type=FILE)
@click.option("--gpu", required=True, metavar="NAME", help="A GPU of the catalogue, or a catalogue file (.toml).")
@click.option("--workload", help="Use only the rows of this workload.")
@click.option("--out", type=FILE, help="Write the fitted GPU as a catalogue file.")
@json_option
def fit(sweep: Path, gpu: str, workload: str | None, out: Path | None, as_json: bool) -> None:
    """Fit the parameters of a GPU to a sweep (SWEEP.csv), with their uncertainty.

    The sweep has the columns workload, sm_mhz, mem_mhz, power_limit_w, time_s, energy_j, as `wattune sweep --csv`
    writes them. Workloads that wattune knows by name determine speed and power of the GPU, others its power only.
    """
    from wattune.physics.catalog.parse import parse_model
    from wattune.physics.fit.model_fit import fit_model, parse_points

    sheet = _sheet(gpu)
    model = parse_model(sheet)
    points = parse_points(read_text(sweep, hint=_HINT), file=str(sweep), model=model, workload=workload)
    found = fit_model(model, points, _known(points))
    if out is not None:
        _write(found, sheet, sweep=sweep, out=out)
    if as_json:
        print_json(_document(found, sweep=sweep, gpu=gpu, out=out))
    else:
        _show(found, sweep=sweep, out=out)


def _sheet(gpu: str) -> Sheet:
    from wattune.physics.catalog import is_file_name, load_sheet

    try:
        return load_sheet(gpu)
    except DeviceNotFound as error:
        if is_file_name(gpu):
            raise InputError(error.message, hint="name a GPU of the catalogue, or a copy of its file") from None
        near = error.hint or ""
        other = "for a GPU that is not in the catalogue, copy the file of a similar one: --gpu FILE.toml"
        raise DeviceNotFound(error.message, hint=f"{near}{' ' if near.endswith('?') else '; '}{other}") from None


def _known(points: Sequence[SweepPoint]) -> dict[str, Workload]:
    """Return the workloads of the sweep that wattune knows by name."""
    from wattune.workloads.catalog import make_workload

    known = {}
    for name in dict.fromkeys(point.workload for point in points):
        try:
            known[name] = make_workload(name)
        except InputError:
            continue
    return known


def _write(found: ModelFit, sheet: Sheet, *, sweep: Path, out: Path) -> None:
    """Write the fitted GPU as a catalogue file, after the catalogue's reader has accepted it."""
    from wattune.physics.catalog.parse import parse_model

    fitted = sheet.replaced(found.sourced(f"our fit of {len(found.points)} points of {sweep.name}"), file=out)
    parse_model(fitted)
    write_text(out, fitted.toml)


def _percent(predicted: Any, measured: Any) -> float | None:
    """Return the mean absolute error in percent; None where nothing was predicted."""
    import numpy as np

    return None if predicted is None else float(100 * np.mean(np.abs(np.asarray(predicted) / measured - 1)))


def _errors(found: ModelFit) -> dict[str, float | None]:
    import numpy as np

    time_s = np.array([point.time_s for point in found.points])
    power_w = np.array([point.power_w for point in found.points])
    return {
        "time_before_percent": _percent(found.before_time_s, time_s),
        "time_percent": _percent(found.time_s, time_s),
        "power_before_percent": _percent(found.before_power_w, power_w),
        "power_percent": _percent(found.power_w, power_w),
    }


def _document(found: ModelFit, *, sweep: Path, gpu: str, out: Path | None) -> dict[str, Any]:
    return {
        **marked(True, found.model.name),
        "sweep": sweep,
        "gpu": gpu,
        "workloads": list(found.workloads),
        "parameters": [parameter._asdict() for parameter in found.parameters],
        "errors": _errors(found),
        "points": [
            {
                "workload": point.workload,
                **to_json(point.setting),
                "time_s": point.time_s,
                "fitted_time_s": time_s,
                "energy_j": point.energy_j,
                "fitted_energy_j": time_s * power_w,
            }
            for point, time_s, power_w in zip(found.points, found.time_s, found.power_w, strict=True)
        ],
        "out": out,
        "device": None if out is None else _device(out),
    }


def _device(out: Path) -> str:
    """Return the name by which every command takes the fitted GPU."""
    from wattune.physics.catalog import is_file_name

    return f"sim:{out}" if is_file_name(str(out)) else f"sim:./{out}"


def _show(found: ModelFit, *, sweep: Path, out: Path | None) -> None:
    from rich.text import Text

    from wattune.render.table import Table
    from wattune.render.terminal_graph import draw_chart, legend

    screen = console()
    name = f"{found.model.name} (simulated)"
    print_line(f"{name}, fitted to {len(found.points)} points of {sweep.name}")
    for line in trust_lines(True, found.model.name):
        print_line(f"before the fit: {line}")
    rows = tuple((parameter.key, *(f"{value:.4g}" for value in parameter[1:])) for parameter in found.parameters)
    print_table(Table("parameters", ("parameter", "before", "fitted", "±"), rows))
    screen.print()
    chart = _chart(found)
    if chart is not None:
        screen.print(draw_chart(chart, width=min(screen.width, 100), height=14))
        screen.print(Text(f"{chart.title}: ", "dim").append_text(legend(chart)))
    for quantity in ("time", "power"):
        before, after = (_errors(found)[f"{quantity}_{part}percent"] for part in ("before_", ""))
        was = "" if before is None else f", {before:.2f} % before"
        print_line(f"mean error of {quantity}: {after:.2f} %{was}")
    if out is not None:
        print_line(f"catalogue file written to {out}")
        print_line(f"use it: --device {_device(out)}")


def _chart(found: ModelFit) -> Chart | None:
    """Draw power against the core clock, or against the power limit where that was set instead."""
    from wattune.render.chart import Axis, Chart, Mark, Point, Series, Tone

    by_clock = any(point.setting.sm_mhz is not None for point in found.points)
    knob = "sm_mhz" if by_clock else "power_limit_w"
    measured = tuple(
        Point(value, point.power_w) for point in found.points if (value := getattr(point.setting, knob)) is not None
    )
    if not measured:
        return None
    line = tuple(Point(*place) for place in _line(found, [point.x for point in measured], by_clock=by_clock))
    return Chart(
        title="mean power against what was set",
        x=Axis(title="core clock", unit="MHz") if by_clock else Axis(title="power limit", unit="W"),
        y=Axis(title="mean power", unit="W"),
        series=(
            Series(name="measured", points=measured, mark=Mark.POINTS, tone=Tone.GOLD),
            Series(name="fitted", points=line, dashed=True),
        ),
    )


def _line(found: ModelFit, asked: Sequence[float], *, by_clock: bool) -> list[tuple[float, float]]:
    """Return the fitted power of every workload from the lowest to the highest value that was set."""
    import numpy as np

    from wattune.core.setting import Setting
    from wattune.physics.fit.model_fit import SweepPoint, spent

    values = np.unique(np.linspace(min(asked), max(asked), _LINE_POINTS).round())
    settings = [Setting(sm_mhz=int(value)) if by_clock else Setting(power_limit_w=float(value)) for value in values]
    line: list[tuple[float, float]] = []
    for name in found.workloads:
        _, power_w = spent(found.model, found.workloads, [SweepPoint(name, setting, 1.0, 1.0) for setting in settings])
        line += zip(values.tolist(), power_w.tolist(), strict=True)
    return line
