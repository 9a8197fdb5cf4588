"""`wattune attach`: tune a program that runs already, until it ends."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress

import click

from wattune.cli.run import TuningOptions, tuning_options
from wattune.core.errors import DeviceError, InputError

POLL_S = 0.2
"""Between two checks that the program still runs."""


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--device", "devices", multiple=True, help="Its GPUs, where they cannot be found: nvml:0 … (repeatable).")
@tuning_options
def command(options: TuningOptions, pid: int, devices: tuple[str, ...]) -> int:
    """Tune a program that runs already, by its process id, until it ends or Ctrl-C.

    Its GPUs are those on which the driver sees it compute. Ctrl-C ends the tuning and not the program; either way the
    GPUs get back the settings they had.
    """
    from wattune.api import open_gpus
    from wattune.cli.run.tuning import TunedProgram

    tuned = TunedProgram(options, _name(pid))
    with open_gpus(*(devices or _devices_of(pid)), wall_clock=True) as gpus:
        tuned.open(gpus, pid=pid)
        ((program, session),) = tuned.sessions
        with session, tuned.screen(default=sys.stderr.isatty()), suppress(KeyboardInterrupt):
            while program.runs:
                time.sleep(POLL_S)
    return tuned.finish(None)


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
    from wattune.control.process_monitor import descendants
    from wattune.devices.nvml.open import uuids_used_by

    hint = "name them: --device nvml:0"
    try:
        uuids = uuids_used_by(descendants(pid))
    except DeviceError as error:
        raise InputError(f"cannot find the GPUs of process {pid}: {error.message}", hint=hint) from None
    if not uuids:
        raise InputError(f"process {pid} computes on none of the GPUs that the driver lists", hint=hint)
    return tuple(f"nvml:{uuid}" for uuid in uuids)
