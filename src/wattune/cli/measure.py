"""`wattune measure`: measure the joules, watts and seconds of any command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from wattune.cli.child import check_command, program_options
from wattune.cli.gpus import require_gpu_option
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
from wattune.cli.step_options import step_options
from wattune.config import Config, load_config
from wattune.core.codec import to_json
from wattune.core.errors import DeviceError, StoreError
from wattune.core.measurement import Measurement
from wattune.core.reading import Trace
from wattune.core.tariff import Tariff

if TYPE_CHECKING:
    from wattune.cli.counted_program import CountedRun
    from wattune.control.counted_work import CountedWork
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.workload import Workload
    from wattune.devices.gpu import Gpu


NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
LOST_S = 1.0
"""A GPU whose readings end so much earlier than those of another was lost."""
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


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """What a command spent on a GPU."""

    spec: GpuSpec
    cost: Measurement
    trace: Trace
    restarts: int
    """How often its energy counter started again from zero."""


@dataclass(frozen=True, slots=True)
class MeasuredCommand:
    """The exit code of a command, what it spent on each GPU, and the CPU's joules."""

    exit_code: int
    started_at: datetime
    gpus: tuple[MeasuredGpu, ...]
    cpu_j: float | None
    steps: CountedWork | None = None
    """The work between the first and the last step of the command; None where none were counted."""
    idle_s: float | None = None
    """How long no GPU had worked yet; None where that is unknown."""
    excluded: str | None = None
    """Why times of the command show nothing of the clock of its GPUs, where that is known."""

    @property
    def total(self) -> Measurement:
        return Measurement.together(tuple(gpu.cost for gpu in self.gpus))

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(gpu.trace for gpu in self.gpus)

    @property
    def simulated(self) -> bool:
        return bool(self.simulated_gpus)

    @property
    def simulated_gpus(self) -> tuple[str, ...]:
        return tuple(gpu.spec.name for gpu in self.gpus if gpu.spec.simulated)


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
@step_options
@require_gpu_option
@program_options
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def command(
    devices: tuple[str, ...],
    workload: str,
    name: str | None,
    interval_s: float,
    trace_file: Path | None,
    no_store: bool,
    step_pattern: str | None,
    no_inject: bool,
    grace_s: float,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Run a command and print its joules, watts and seconds.

    The command keeps its input, output and exit code. The figures are printed to standard error, or with --json as one
    document to standard output (the command's own output then goes to standard error). CUDA_VISIBLE_DEVICES is
    respected. Where steps of the command are counted, as in `wattune run`, a step's joules and seconds are printed too.

    Without an NVIDIA driver a simulated GPU plays --workload while the command runs, and every figure is marked so.
    """
    from wattune.cli.counted_program import counted_command
    from wattune.workloads.catalog import make_workload

    config = load_config()
    tariff = config.tariff
    check_writable(trace_file)
    check_command(command_line)
    load = make_workload(workload)
    program = counted_command(command_line, step_pattern, injects=not no_inject, grace_s=grace_s, to_stderr=as_json)
    outcome = measure_work(program.run, devices, workload=load, interval_s=interval_s)
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


def measure_work(
    work: Callable[[tuple[Gpu, ...]], CountedRun | int],
    devices: tuple[str, ...],
    *,
    workload: Workload,
    interval_s: float,
    holding: Callable[[tuple[Gpu, ...]], AbstractContextManager[object]] = nullcontext,
) -> MeasuredCommand:
    """Measure these GPUs while `work` runs a command, or returns an exit code; a setting may be held meanwhile."""
    from wattune.cli.gpus import open_gpus
    from wattune.devices.gpu import play_on_simulated
    from wattune.devices.meter import measured
    from wattune.devices.rapl import cpu_energy_j, find_packages, read_packages_j
    from wattune.devices.sampler import Sampler

    packages = find_packages()
    with open_gpus(*devices, wall_clock=True) as gpus, holding(gpus):
        play_on_simulated(gpus, workload)
        started_at, cpu_before = datetime.now(UTC), read_packages_j(packages)
        done = None
        try:
            with measured(*gpus) as span, Sampler(gpus, interval_s=interval_s) as sampler:
                done = work(gpus)
            parts = span.parts
        except DeviceError as error:
            if done is None:
                raise
            parts = _until_lost(sampler.traces, error)
        cpu_j = cpu_energy_j(packages, cpu_before, read_packages_j(packages))
        traces = sampler.traces
        found = tuple(
            MeasuredGpu(gpu.spec, cost, trace, len(restarts))
            for gpu, cost, trace, restarts in zip(gpus, parts, traces, span.restarts, strict=True)
        )
        if isinstance(done, int):
            return MeasuredCommand(done, started_at, found, cpu_j)
        steps, idle_s = done.work(gpus, traces), done.idle_s(traces)
        return MeasuredCommand(done.end.exit_code, started_at, found, cpu_j, steps, idle_s, done.excluded)


def _until_lost(traces: tuple[Trace, ...], error: DeviceError) -> tuple[Measurement, ...]:
    """Return the cost of each GPU between its first and last reading, where a GPU was lost during the command."""
    ends = [(trace.readings[0], trace.readings[-1]) for trace in traces if trace.readings]
    if len(ends) < len(traces) or any(reading.energy_j is None for pair in ends for reading in pair):
        raise error
    print_error(DeviceError(f"{error.message}; {_covered(traces)}", hint=error.hint), kind="warning")
    return tuple(Measurement.between(first, last) for first, last in ends)


def _covered(traces: tuple[Trace, ...]) -> str:
    """Return in words what the figures cover, with the numbers of the GPUs that were lost among several."""
    ends_s = [trace.readings[-1].time_s for trace in traces]
    lost = [f"GPU {place}" for place, end_s in enumerate(ends_s) if max(ends_s) - end_s > LOST_S]
    if not lost:
        return "the figures are those until its last reading"
    return f"the figures of {', '.join(lost)} are those until its last reading, and the others were measured on"


def document(command_line: tuple[str, ...], outcome: MeasuredCommand, tariff: Tariff) -> dict[str, Any]:
    """Return the outcome as a JSON document."""

    def figures(part: Measurement) -> dict[str, Any]:
        footprint = tariff.footprint(part.energy_j, started_at=outcome.started_at, time_s=part.time_s)
        own = {"time_s": part.time_s, "energy_j": part.energy_j, "energy_error_j": part.energy_error_j}
        return {**own, "power_w": part.power_w, **asdict(footprint)}

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
        "total": figures(outcome.total),
        "steps": None if outcome.steps is None else steps_document(outcome.steps),
        "idle_before_s": outcome.idle_s,
        "cpu_energy_j": outcome.cpu_j,
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


def show(outcome: MeasuredCommand, tariff: Tariff) -> None:
    """Print what each GPU spent."""
    from wattune.render.quantity import footprint_words
    from wattune.render.table import Table

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
    """Add the run to the history; a store that fails is only remarked on."""
    from wattune.store.fallback import keep_run, new_run
    from wattune.store.records import FullRun, RunGpu, summarise

    gpus = [RunGpu.of(gpu.spec, gpu.cost) for gpu in outcome.gpus]
    steps = None if outcome.steps is None else steps_document(outcome.steps)
    every = {"exit_code": outcome.exit_code, "cpu_energy_j": outcome.cpu_j, "steps": steps, **details}
    run = new_run(kind, name, started_at=outcome.started_at, gpus=gpus, details=every)
    traces = tuple(summarise(gpu.trace, uuid=gpu.spec.uuid, simulated=gpu.spec.simulated) for gpu in outcome.gpus)
    try:
        keep_run(FullRun(run, traces=traces), store_url=config.store_url, state_dir=config.state_dir)
    except StoreError as error:
        # The command has run and its figures are known; a store that fails must not hide them or its exit code.
        print_error(error, kind="warning")
