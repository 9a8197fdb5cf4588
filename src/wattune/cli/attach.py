"""`wattune attach`: tune a program that runs already, until it ends."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wattune.cli.output import check_writable
from wattune.cli.run import tuning_options
from wattune.core.errors import DeviceError, InputError

if TYPE_CHECKING:
    from wattune.control.process_monitor import ProcessWatch

POLL_S = 0.2
"""How often it is checked whether the program still runs."""


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--device", "devices", multiple=True, help="Its GPUs, where they cannot be found: nvml:0 … (repeatable).")
@tuning_options
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
    """Tune a program that runs already, by its process id, until it ends or Ctrl-C.

    Its GPUs are those on which the driver sees it compute. Ctrl-C ends the tuning and not the program; either way the
    GPUs get back the settings they had.
    """
    from wattune.api import open_gpus
    from wattune.cli.run.tuning import (
        Closing,
        finish,
        knobs_named,
        live_screen,
        new_session,
        objective_text,
        wanted_objective,
        watched_program,
    )
    from wattune.config import load_config
    from wattune.devices.gpu import play_on_simulated

    check_writable(report_file)
    config = None if no_store else load_config()
    allowed, aim = knobs_named(knobs), objective_text(max_slowdown, objective)
    name = _name(pid)
    with open_gpus(*(devices or _devices_of(pid)), wall_clock=True) as gpus:
        wanted = wanted_objective(max_slowdown, objective, gpus)
        program = watched_program(gpus, pid=pid)
        session = new_session(
            gpus, name=name, objective=wanted, policy=policy, knobs=allowed, program=program, config=config
        )
        play_on_simulated(gpus, workload)
        wanted_screen = sys.stderr.isatty() if screen is None else screen
        started_at = datetime.now(UTC)
        with session, live_screen(session, program=name, objective=aim, wanted=wanted_screen):
            _wait(program)
    closing = Closing(name, started_at, None, session, aim)
    return finish((closing,), as_json=as_json, report_file=report_file, config=config)


def _wait(program: ProcessWatch) -> None:
    """Wait until the program ends or the user interrupts its tuning."""
    try:
        while program.runs:
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        return


def _name(pid: int) -> str:
    """Return the command line of a process, or raise an error of one line."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        return shlex.join(process.cmdline()) or process.name()
    except psutil.NoSuchProcess:
        raise InputError(f"there is no process {pid}", hint="find its process id with `ps` or `nvidia-smi`") from None
    except psutil.AccessDenied:
        return f"process {pid}"


def _devices_of(pid: int) -> tuple[str, ...]:
    """Find the GPUs on which a process, or one that it started, computes."""
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
