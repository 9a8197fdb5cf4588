"""`wattune layers switch-latency`: how long a change of clocks takes on the GPU at hand."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from wattune.cli.output import json_option, print_error, print_json, print_line, print_table, remark
from wattune.cli.program_options import ProgramOptions, program_options
from wattune.config import Config, load_config
from wattune.core.errors import DeviceError, InputError, StoreError
from wattune.core.reading import Throttle
from wattune.process.program import Program, leave_by

if TYPE_CHECKING:
    from wattune.devices.gpu import Gpu
    from wattune.levels.layer.switch_latency import KnobLatency, SwitchLatency, TargetLatency
    from wattune.levels.layer.switch_samples import ClockSwitch

VIRTUAL_INTERVAL_S = 0.0002
"""Between polls in virtual time, which take no time."""
LOAD_LIMIT_S, BUSY = 60.0, 0.05
"""How long a command may take until the GPU is busy, and from which utilisation on it is."""

_RUN_A_PROGRAM = "run a program meanwhile: wattune layers switch-latency -- COMMAND"


@click.command(
    "switch-latency",
    short_help="Measure how long a change of clocks takes, and its stall.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--device", help="The GPU: auto, nvml:0, sim:a100 …")
@click.option("--clocks", help="Core clocks to change between: 705,1005,1410.  [default: four]")
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=5, show_default=True, help="Changes from each clock to each."
)
@click.option("--workload", help="The workload of a simulated GPU.  [default: short equal kernels]")
@click.option("--no-store", is_flag=True, help="Do not store the result in the history.")
@program_options("grace_s", "as_root")
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND]")
def switch_latency(
    device: str | None,
    clocks: str | None,
    repeats: int,
    workload: str | None,
    no_store: bool,
    starting: ProgramOptions,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Measure the time from the request of a clock until it is effective, and the stall.

    Core clocks are changed from each to each, then memory clocks where they can be locked. COMMAND runs as load until
    all changes are measured, and is then ended; its output goes to standard error. A simulated GPU runs a load of its
    own, in virtual time. The GPU is restored at the end. Plans of `wattune layers` use the newest result.
    """
    from wattune import api
    from wattune.devices.open import open_gpu
    from wattune.levels.layer.switch_samples import planned_switches
    from wattune.workloads.catalog import make_workload

    config, started_at, listed = load_config(), datetime.now(UTC), _listed(clocks)
    program = None
    if command_line:
        starting.check(command_line)
        program = replace(starting.program(command_line), places=(2, 2))
    if workload is not None:
        make_workload(workload)
    name = config.device if device is None else device
    with open_gpu(name, replace(api.surroundings(config), switching="real")) as gpu:
        switches = planned_switches(gpu.spec, repeats=repeats, clocks_mhz=listed)
        start_s = gpu.count().time_s
        found = _measured(gpu, switches, workload=workload, program=program)
        time_s = gpu.count().time_s - start_s
    _check(found)
    if not no_store:
        _keep(config, found, started_at=started_at, time_s=time_s)
    if as_json:
        from wattune.core.codec import to_json

        print_json(to_json(found))
    else:
        _show(found)


def _listed(clocks: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in clocks.split(",")) if clocks is not None else ()
    except ValueError:
        raise InputError(f"{clocks!r} is not a list of clocks", hint="write --clocks 705,1005,1410") from None


def _measured(
    gpu: Gpu,
    switches: tuple[ClockSwitch, ...],
    *,
    workload: str | None,
    program: Program | None,
) -> SwitchLatency:
    """Measure with the load that the GPU can have: its own if it is simulated, else the command."""
    from wattune.control.actuator import passes_by_itself
    from wattune.devices.gpu import PlaysWorkloads
    from wattune.levels.layer.switch_latency import UNIFORM_STEPS, ClockPolling, measure_switching
    from wattune.workloads.catalog import make_workload

    if isinstance(gpu, PlaysWorkloads):
        if program is not None:
            raise InputError(
                f"{gpu.spec.label} runs a load of its own and no command",
                hint="wattune simulate --switching real -- wattune layers switch-latency -- COMMAND",
            )
        load = UNIFORM_STEPS if workload is None else make_workload(workload)
        # The steps of other workloads are not uniform, so that no stall follows from their number.
        steps = (lambda: gpu.iterations) if load is UNIFORM_STEPS else None
        gpu.play(load)
        polling = ClockPolling(wait=gpu.wait, interval_s=VIRTUAL_INTERVAL_S, steps=steps)
        return measure_switching(gpu, switches, polling=polling, load=load.name)
    if workload is not None:
        raise InputError("--workload is for simulated GPUs", hint=f"leave it out; {_RUN_A_PROGRAM}")
    if not passes_by_itself(gpu):
        raise InputError(f"{gpu.spec.label} is played from a file", hint="choose a GPU: nvml:0, sim:a100")
    remark(f"{len(switches)} changes of clocks on {gpu.spec.label}, up to 2 s each")
    polling = ClockPolling(wait=time.sleep)
    if program is None:
        return measure_switching(gpu, switches, polling=polling, load=None)
    with _running(program) as is_over:
        _await_load(gpu, is_over)
        found = measure_switching(gpu, switches, polling=polling, load=shlex.join(program.command), is_over=is_over)
        if is_over():
            done = found.sm.tried + (found.mem.tried if found.mem else 0)
            remark(
                f"{program.command[0]} ended after {done} of {len(switches)} changes; the figures are those until then"
            )
    return found


@contextmanager
def _running(program: Program) -> Iterator[Callable[[], bool]]:
    """Run a command during a block, and end it after that; yield a function that returns whether it has ended.

    A signal ends the measurement too, however the command takes it.
    """
    with program.started() as running:
        try:
            yield lambda: running.has_ended or running.received is not None
        finally:
            running.ask_to_end()
            running.wait()
    if running.received is not None:
        leave_by(running.received)


def _await_load(gpu: Gpu, is_over: Callable[[], bool]) -> None:
    """Wait until the GPU is busy, for a while at most; a GPU that does not report it is taken for busy."""
    end_s = time.monotonic() + LOAD_LIMIT_S
    while not is_over() and time.monotonic() < end_s:
        utilisation = gpu.read().sm_util
        if utilisation is None or utilisation >= BUSY:
            return
        time.sleep(0.1)


def _check(found: SwitchLatency) -> None:
    """Raise where no clock took effect: there is nothing to store or to show."""
    if found.sm.reached or (found.mem and found.mem.reached):
        return
    if found.idle:
        raise DeviceError(f"{found.gpu} was idle, and no clock became effective", hint=_RUN_A_PROGRAM)
    missed = found.sm.targets[0] if found.sm.targets else None
    held = f"; {_missed(missed)}" if missed else ""
    raise DeviceError(
        f"no clock of {found.gpu} became effective in time{held}", hint="choose other clocks, such as --clocks 705,1005"
    )


def _keep(config: Config, found: SwitchLatency, *, started_at: datetime, time_s: float) -> None:
    from wattune.core.codec import to_json
    from wattune.levels.layer.switch_latency import KIND
    from wattune.store.fallback import keep_run, new_run
    from wattune.store.records import FullRun, RunGpu

    gpu = RunGpu(uuid=found.uuid, name=found.gpu, simulated=found.simulated, time_s=time_s)
    run = new_run(KIND, found.load or "no load", started_at=started_at, gpus=[gpu], details=to_json(found))
    try:
        keep_run(FullRun(run), store_url=config.store_url, state_dir=config.state_dir)
    except StoreError as error:
        print_error(error, kind="warning")


def _show(found: SwitchLatency) -> None:
    from wattune.core.gpu_spec import labelled
    from wattune.render.table import Table

    load = found.load or ("none" if found.idle else "not started by this command")
    print_line(f"{labelled(found.gpu, found.simulated)}, load: {load}")
    rows = []
    knobs = [(name, knob) for name, knob in (("core", found.sm), ("memory", found.mem)) if knob is not None]
    for name, knob in knobs:
        for target in knob.targets:
            shares = f"{target.reached} of {target.tried}"
            note = _missed(target) if target.reached < target.tried else ""
            rows.append((name, str(target.mhz), shares, _ms(target.median_s), _ms(target.p95_s), note))
        rows.append((name, "all", f"{knob.reached} of {knob.tried}", _ms(knob.median_s), _ms(knob.p95_s), ""))
    print_table(
        Table(
            "latencies",
            ("clock", "to MHz", "effective", "median ms", "95 % ms", ""),
            tuple(rows),
            words=frozenset((0, 2, 5)),
        )
    )
    for name, knob in knobs:
        print_line(_summary(name, knob))
    if found.idle:
        print_line(f"The GPU was idle, and latencies under load may differ; {_RUN_A_PROGRAM}")


def _summary(name: str, knob: KnobLatency) -> str:
    stall = "stall not measured: no load reports uniform steps"
    if knob.stall_s is not None and knob.stall_error_s is not None:
        stall = f"stall {knob.stall_s * 1e3:.2f} ± {knob.stall_error_s * 1e3:.2f} ms"
    if not knob.reached:
        return f"{name} clock: not measured"
    return f"{name} clock: resolution ± {_ms(knob.error_s)} ms, call {_ms(knob.call_s)} ms, {stall}"


def _missed(target: TargetLatency) -> str:
    reasons = Throttle(target.limited_by) & (Throttle.POWER_CAP | Throttle.THERMAL | Throttle.HARDWARE | Throttle.IDLE)
    words = ", ".join((reason.name or "").lower().replace("_", " ") for reason in reasons)
    held = "unknown" if target.held_mhz is None else f"{target.held_mhz} MHz"
    return f"{target.mhz} MHz missed: {held} held" + (f" ({words})" if words else "")


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.2f}"
