"""`wattune attach`: tune a program that runs already, until it ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wattune.cli.run import TuningOptions, tuning_options
from wattune.core.errors import DeviceError, InputError

if TYPE_CHECKING:
    from wattune.process.held import HeldProcess

WAIT_S = 0.5
"""Longest time until a signal that did not interrupt the wait for the program is handled."""


@click.command()
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--device", "devices", multiple=True, help="Its GPUs, where they cannot be found: nvml:0 … (repeatable).")
@tuning_options
def command(options: TuningOptions, pid: int, devices: tuple[str, ...]) -> int:
    """Tune a program that runs already, by its process id, until it ends or Ctrl-C.

    Its GPUs are those on which the driver sees it compute. Ctrl-C ends the tuning and not the program; either way the
    GPUs get back the settings they had.
    """
    from wattune.cli.run.processor_time import load_matrices

    load_matrices()
    from wattune.cli.gpus import open_gpus
    from wattune.cli.run.screen import ATTACH_KEYS
    from wattune.cli.run.tuning import TunedProgram
    from wattune.process.held import HeldProcess

    with HeldProcess.open(pid) as process:
        tuned = TunedProgram(options, *_command_line(process))
        with open_gpus(*(devices or _devices_of(pid)), wall_clock=True) as gpus:
            tuned.open(gpus, process=process)
            ((_, session),) = tuned.sessions
            tuned.open_lines(steps="the period of its power, or counters of the GPU")
            wants_screen = tuned.wants_screen(default=sys.stderr.isatty())
            with session, tuned.shown(wants_screen=wants_screen, keys=ATTACH_KEYS):
                ended_by = _wait(process)
    return tuned.finish(None) or ended_by


def _wait(process: HeldProcess) -> int:
    """Wait for the end of the process and return 0, also after Ctrl-C; 128 + n where a signal n ends the tuning."""
    try:
        while not process.wait(WAIT_S):
            pass
    except KeyboardInterrupt:
        return 0
    except SystemExit as end:  # the tuning ends in good order, and its result is kept
        return end.code if isinstance(end.code, int) else 1
    return 0


def _command_line(held: HeldProcess) -> tuple[Sequence[str], str | None]:
    """Return the command line of a process, and a name where it is unknown, or raise an error of one line."""
    import psutil

    from wattune.process.held import no_process

    try:
        process = psutil.Process(held.pid)
        command_line, name = process.cmdline(), process.name()
    except psutil.NoSuchProcess:
        raise no_process(held.pid) from None
    except psutil.AccessDenied:
        command_line, name = [], f"process {held.pid}"
    if not held.runs:  # asked last: what runs now had this process id all the time
        raise no_process(held.pid)
    return command_line, None if command_line else name


def _devices_of(pid: int) -> tuple[str, ...]:
    """Find the GPUs on which a process, or one that it started, computes."""
    from wattune.devices.nvml.open import uuids_used_by
    from wattune.process.held import descendants

    hint = "name them: --device nvml:0"
    try:
        uuids = uuids_used_by(descendants(pid))
    except DeviceError as error:
        raise InputError(f"cannot find the GPUs of process {pid}: {error.message}", hint=hint) from None
    if not uuids:
        raise InputError(f"process {pid} computes on none of the GPUs that the driver lists", hint=hint)
    return tuple(f"nvml:{uuid}" for uuid in uuids)
