"""`wattune measure`: measure the joules, watts and seconds of any command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.output import (
    FILE,
    check_writable,
    json_option,
    marked,
    print_error,
    print_json,
    print_table,
    remark,
    trust_lines,
    write_each,
)
from wattune.cli.program_options import ProgramOptions, steps_and_program_options
from wattune.config import Config, load_config
from wattune.core.codec import to_json
from wattune.core.errors import StoreError
from wattune.core.measurement import Measurement
from wattune.core.reading import Trace
from wattune.core.tariff import Footprint, Tariff

if TYPE_CHECKING:
    from wattune.cli.measured_program import MeasuredCommand
    from wattune.control.counted_work import CountedWork


NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
LATE_S = 0.5
"""GPUs that are open so much after the start of the command are worth a line."""
COLUMNS = ("time_s", "power_w", "sm_util", "mem_util", "sm_mhz")


def trace_csv(trace: Trace) -> str:
    """Format the trace as CSV; a field is empty where the GPU reported nothing."""
    start_s = trace.readings[0].time_s if trace.readings else 0.0
    lines = [",".join(COLUMNS)]
    for reading in trace.readings:
        values = (reading.power_w, reading.sm_util, reading.mem_util, reading.sm_mhz)
        fields = ("" if value is None else f"{value:g}" for value in values)
        lines.append(",".join((f"{reading.time_s - start_s:.6f}", *fields)))
    return "\n".join(lines) + "\n"


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--device", "devices", multiple=True, help="GPU to measure: auto, nvml, nvml:0, sim:a100 … (repeatable).")
@click.option("--workload", default="resnet50", show_default=True, help="The workload that simulated GPUs play.")
@click.option("--name", help="Name of the run in the history; by default the command line.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.001),
    default=0.02,
    show_default=True,
    help="Seconds between samples.",
)
@click.option("--trace", "trace_file", type=FILE, help="Write the power trace to this CSV.")
@click.option("--no-store", is_flag=True, help="Do not store this run in the history.")
@steps_and_program_options
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def command(
    devices: tuple[str, ...],
    workload: str,
    name: str | None,
    interval_s: float,
    trace_file: Path | None,
    no_store: bool,
    starting: ProgramOptions,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Run a command and print its joules, watts and seconds.

    The command keeps its input, output and exit code. The figures are printed to standard error, or with --json as one
    document to standard output (the command's own output then goes to standard error). CUDA_VISIBLE_DEVICES is
    respected. Where steps of the command are counted, as in `wattune run`, a step's joules and seconds are printed too.

    The command does not wait for a slow driver: what it does before its GPUs are open is not measured, and the result
    says so.

    Without an NVIDIA driver a simulated GPU plays --workload while the command runs, and every figure is marked so.
    """
    from wattune.cli.counted_program import CountedCommand
    from wattune.cli.measured_program import CommandMeter, measure_program
    from wattune.workloads.catalog import make_workload

    config = load_config()
    tariff = config.tariff
    check_writable(trace_file)
    starting.check(command_line)
    measuring = CommandMeter(devices=devices, workload=make_workload(workload), interval_s=interval_s)
    outcome = measure_program(CountedCommand.of(command_line, starting, to_stderr=as_json), measuring)
    try:
        if as_json:
            print_json(document(command_line, outcome, tariff))
        else:
            show(outcome, tariff)
    finally:
        if not no_store:
            keep(config, "measure", name or shlex.join(command_line), outcome)
    if trace_file is not None and not write_each(trace_file, [trace_csv(trace) for trace in outcome.traces]):
        return outcome.exit_code or 1
    return outcome.exit_code


def document(command_line: tuple[str, ...], outcome: MeasuredCommand, tariff: Tariff) -> dict[str, Any]:
    """Return the outcome as a JSON document."""

    def figures(part: Measurement | None) -> dict[str, Any]:
        if part is None:
            return dict.fromkeys((*_FIGURES, *(field.name for field in fields(Footprint))))
        footprint = tariff.footprint(part.energy_j, started_at=outcome.started_at, time_s=part.time_s)
        return {name: getattr(part, name) for name in _FIGURES} | asdict(footprint)

    return {
        **marked(outcome.simulated, *outcome.simulated_gpus),
        "command": list(command_line),
        "exit_code": outcome.exit_code,
        "started_at": outcome.started_at.isoformat(),
        "gpus": [
            {
                "name": gpu.spec.label,
                "uuid": gpu.spec.uuid,
                **marked(gpu.spec.simulated, gpu.spec.name),
                "samples": len(gpu.trace.readings),
                "counter_restarts": gpu.restarts,
                **figures(gpu.cost),
            }
            for gpu in outcome.gpus
        ],
        "total": figures(None if outcome.unmeasured else outcome.total),
        "steps": None if outcome.steps is None else steps_document(outcome.steps),
        "idle_before_s": outcome.idle_s,
        "cpu_energy_j": outcome.cpu_j,
        "measured_from_s": outcome.from_s,
        "unmeasured": outcome.unmeasured,
    }


def steps_document(steps: CountedWork) -> dict[str, Any]:
    """Return the counted steps as a JSON document."""
    each = steps.per_step
    return {
        "counted_by": steps.source,
        "count": steps.steps,
        "before_s": steps.before_s,
        **to_json(steps.cost),
        "per_step": {**to_json(each), "power_w": each.power_w},
    }


_FIGURES = ("time_s", "energy_j", "energy_error_j", "power_w")


def show(outcome: MeasuredCommand, tariff: Tariff) -> None:
    """Print what each GPU spent."""
    from wattune.render.quantity import footprint_words
    from wattune.render.table import Table

    if outcome.unmeasured is not None:
        remark(f"wattune: {outcome.unmeasured}")
        return
    rows = [(gpu.spec.label, gpu.cost) for gpu in outcome.gpus]
    mark = " (simulated)" if outcome.simulated else ""
    if len(rows) > 1:
        rows = [(f"{place}: {label}", part) for place, (label, part) in enumerate(rows)]
        rows.append((f"all {len(rows)} GPUs{mark}", outcome.total))
    remark("")
    print_table(
        Table("energy", ("GPU", "energy J", "±", "mean W", "seconds"), tuple(_cells(*row) for row in rows)), err=True
    )
    for line in trust_lines(outcome.simulated, *outcome.simulated_gpus):
        remark(line)
    total = outcome.total
    footprint = tariff.footprint(total.energy_j, started_at=outcome.started_at, time_s=total.time_s)
    remark(f"GPU energy: {footprint_words(footprint)}{mark}")
    if outcome.steps is not None:
        remark(f"{steps_line(outcome.steps)}{mark}")
    if outcome.from_s >= LATE_S:
        remark(f"the driver is slow: measured from {outcome.from_s:.1f} s after the start of the command on")
    cpu = "not measured (see `wattune doctor`)" if outcome.cpu_j is None else f"{outcome.cpu_j:.1f} J"
    remark(f"CPU packages: {cpu}")


def _cells(label: str, part: Measurement) -> tuple[str, ...]:
    error = "unknown" if part.energy_error_j is None else f"{part.energy_error_j:.1f}"
    return label, f"{part.energy_j:.1f}", error, f"{part.power_w:.1f}", f"{part.time_s:.3f}"


def steps_line(steps: CountedWork) -> str:
    """Return in words what a step took, and what lay before the first of them."""
    from wattune.render.quantity import duration, with_error

    each = steps.per_step
    return (
        f"per step: {with_error(each.time_s, each.time_error_s, 's')}, "
        f"{with_error(each.energy_j, each.energy_error_j, 'J')} (95 %), over {steps.steps} steps, counted by "
        f"{steps.counted_by}; {duration(steps.before_s)} before them are left out"
    )


def keep(
    config: Config, kind: str, name: str, outcome: MeasuredCommand, *, details: Mapping[str, Any] = NO_DETAILS
) -> None:
    """Add the run to the history, if it was measured; a store that fails is only remarked on."""
    if outcome.unmeasured is not None:
        return
    from wattune.store.fallback import keep_run, new_run
    from wattune.store.records import FullRun, RunGpu, summarise

    gpus = [RunGpu.of(gpu.spec, gpu.cost) for gpu in outcome.gpus]
    steps = None if outcome.steps is None else steps_document(outcome.steps)
    every = {"exit_code": outcome.exit_code, "cpu_energy_j": outcome.cpu_j, "steps": steps, **details}
    if outcome.from_s:
        every["measured_from_s"] = outcome.from_s
    run = new_run(kind, name, started_at=outcome.started_at, gpus=gpus, details=every)
    traces = tuple(summarise(gpu.trace, uuid=gpu.spec.uuid, simulated=gpu.spec.simulated) for gpu in outcome.gpus)
    try:
        keep_run(FullRun(run, traces=traces), store_url=config.store_url, state_dir=config.state_dir)
    except StoreError as error:
        # The command has run and its figures are known; a store that fails must not hide them or its exit code.
        print_error(error, kind="warning")
