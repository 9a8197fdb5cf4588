"""`wattune attach`: a program that runs already, tuned until it ends."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from wattune.api import open_gpus
from wattune.cli.output import check_writable, json_option
from wattune.cli.run.closing import Closing, finish, recall, watching
from wattune.cli.run.options import KNOB_NAMES, is_played, knobs_named, live_policy, objective_text, wanted_objective
from wattune.config import load_config
from wattune.control.process_monitor import ProcessWatch, users_of
from wattune.core.errors import DeviceError, InputError
from wattune.devices.gpu import play_on_simulated
from wattune.levels.run.policies import POLICIES
from wattune.levels.run.session import RunSession

POLL_S = 0.2
"""How often it is looked whether the program still runs."""


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--max-slowdown", metavar="SHARE", help="How much longer the program may take.  [default: 5%]")
@click.option("--objective", metavar="FORM", help="What to save instead: edp, cost:0.5, power:250 …")
@click.option("--device", "devices", multiple=True, help="Its GPUs, where they cannot be found: nvml:0 … (repeatable).")
@click.option("--workload", default="resnet50", show_default=True, help="What a simulated GPU plays meanwhile.")
@click.option("--knobs", metavar="NAMES", help=f"What may be set, of {','.join(KNOB_NAMES)}.  [default: all]")
@click.option(
    "--policy", type=click.Choice(POLICIES), default="wattune", show_default=True, help="Policy that chooses settings."
)
@click.option("--report", "report_file", type=click.Path(path_type=Path, dir_okay=False), help="Write a report here.")
@click.option("--screen/--no-screen", default=None, help="Show live what is done, on standard error.")
@click.option("--no-store", is_flag=True, help="Do not keep this run in the history, nor use what is there.")
@json_option
def command(
    pid: int,
    max_slowdown: str | None,
    objective: str | None,
    devices: tuple[str, ...],
    workload: str,
    knobs: str | None,
    policy: str,
    report_file: Path | None,
    screen: bool | None,
    no_store: bool,
    as_json: bool,
) -> int:
    """Tune a program that runs already, by its process number, until it ends or Ctrl-C.

    Its GPUs are those on which the driver sees it compute. Ctrl-C ends the tuning and not the program; either way the
    GPUs are as they were found.
    """
    check_writable(report_file)
    config = None if no_store else load_config()
    allowed = knobs_named(knobs)
    name = _name(pid)
    with open_gpus(*(devices or _devices_of(pid)), wall_clock=True) as gpus:
        wanted = wanted_objective(max_slowdown, objective, gpus)
        program = ProcessWatch(users_of(gpus), played=is_played(gpus), pid=pid)
        decides, notes = live_policy(policy, wanted, gpus[0].spec)
        session = RunSession(
            gpus,
            objective=wanted,
            policy=decides,
            knobs=allowed,
            program=program,
            memory=recall(name, gpus[0], policy=decides, config=config),
            notes=notes,
        )
        play_on_simulated(gpus, workload)
        aim = objective_text(max_slowdown, objective)
        wanted_screen = sys.stderr.isatty() if screen is None else screen
        started_at = datetime.now(UTC)
        with session, watching(session, program=name, objective=aim, wanted=wanted_screen):
            _wait(program)
    closing = Closing(name, started_at, None, session, aim)
    return finish((closing,), as_json=as_json, report_file=report_file, config=config)


def _wait(program: ProcessWatch) -> None:
    """Nothing; the program has ended, or somebody had enough of its tuning."""
    try:
        while program.runs:
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return


def _name(pid: int) -> str:
    """The command line of a process, or an error of one line."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        return shlex.join(process.cmdline()) or process.name()
    except psutil.NoSuchProcess:
        raise InputError(f"there is no process {pid}", hint="look for it with `ps`, or by `nvidia-smi`") from None
    except psutil.AccessDenied:
        return f"process {pid}"


def _devices_of(pid: int) -> tuple[str, ...]:
    """The GPUs on which a process, or one that it started, computes."""
    import psutil

    from wattune.devices.nvml.open import uuids_used_by

    hint = "name them: --device nvml:0"
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        children = []
    family = frozenset({pid, *(child.pid for child in children)})
    try:
        uuids = uuids_used_by(family)
    except DeviceError as error:
        raise InputError(f"cannot find the GPUs of process {pid}: {error.message}", hint=hint) from None
    if not uuids:
        raise InputError(f"process {pid} computes on none of the GPUs that the driver lists", hint=hint)
    return tuple(f"nvml:{uuid}" for uuid in uuids)
