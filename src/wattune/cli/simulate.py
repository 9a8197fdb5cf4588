"""`wattune simulate`: run any command with simulated GPUs, served as an NVML library."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from wattune.cli.output import (
    FILE,
    check_writable,
    json_option,
    marked,
    print_json,
    stderr_console,
    trust_lines,
    try_to_write,
)
from wattune.cli.program_options import ProgramOptions, program_options
from wattune.config import load_config
from wattune.core.codec import to_json
from wattune.core.errors import InputError
from wattune.process.program import Program
from wattune.process.user import CallingUser

if TYPE_CHECKING:
    from wattune.emulator.launch import Scenario, Truth


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--gpu", "gpus", default="a100", show_default=True, help="The GPUs, comma-separated: a100,v100 …")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many of each.")
@click.option("--workload", default="resnet50", show_default=True, help="What they play: NAME[:BATCH], or none.")
@click.option("--unprivileged", is_flag=True, help="Refuse to change settings, as for a user who is not root.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="SPEC",
    help="A fault: 0:lost@30s, nvmlInit:mismatch, all:300ms … (repeatable).",
)
@click.option("--virtual-time", is_flag=True, help="Let time pass only when the command advances the node.")
@click.option("--call-latency-us", type=click.FloatRange(0, 60e6), default=0, help="Duration of every NVML call.")
@click.option(
    "--switching",
    type=click.Choice(["ideal", "real"]),
    default="ideal",
    show_default=True,
    help="New clocks take effect at once, or after the delay of each GPU.",
)
@click.option("--no-persistence", is_flag=True, help="Lose settings with the last client, as without persistence mode.")
@click.option("--part-time-counter", is_flag=True, help="Let the energy counter miss what the power sensor misses.")
@click.option("--follow", is_flag=True, help="Make optimizer steps of PyTorch as fast as the simulated GPU's.")
@click.option("--truth", "truth_file", type=FILE, help="Write the true time and energy as JSON.")
@program_options("grace_s")
@json_option
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND…")
def command(
    gpus: str,
    count: int,
    workload: str,
    unprivileged: bool,
    faults: tuple[str, ...],
    virtual_time: bool,
    call_latency_us: float,
    switching: Literal["ideal", "real"],
    no_persistence: bool,
    part_time_counter: bool,
    follow: bool,
    truth_file: Path | None,
    starting: ProgramOptions,
    as_json: bool,
    command_line: tuple[str, ...],
) -> int:
    """Run a command against simulated GPUs served as an NVML library.

    The command and its child processes find the simulated GPUs through libnvidia-ml.so.1 and a replacement for
    nvidia-smi. The command keeps its input, output and exit code. The true time and energy of the GPUs are printed to
    standard error, or with --json as one document to standard output (the command's own output then goes to standard
    error).

    The program itself computes on the CPU and knows nothing of the clocks of the simulated GPUs. With --follow each
    optimizer step of PyTorch waits until the GPU has done an iteration of the workload at the clock that holds.
    """
    from wattune.emulator.launch import Fault, Scenario
    from wattune.emulator.node import Privilege
    from wattune.workloads.catalog import make_workload

    scenario = Scenario(
        gpus=tuple(name.strip() for name in gpus.split(",") if name.strip()) * count,
        workload=None if workload.strip().lower() == "none" else make_workload(workload),
        virtual_time=virtual_time,
        privilege=Privilege.DENIED if unprivileged else Privilege.GRANTED,
        faults=tuple(Fault.parse(text) for text in faults),
        call_latency_s=call_latency_us / 1e6,
        part_time_counter=part_time_counter,
        switching=switching,
        is_persistent=not no_persistence,
    )
    if follow and scenario.workload is None:
        raise click.UsageError("--follow needs a workload whose iterations a program can wait for")
    check_writable(truth_file)
    program = Program(command=command_line, places=(2, 2) if as_json else None, user=None, grace_s=starting.grace_s)
    exit_code, truths, calls = _simulate(scenario, program, follow=follow)
    found = {
        **marked(True, *(truth.name for truth in truths)),
        "command": list(command_line),
        "exit_code": exit_code,
        "gpus": [to_json(truth) | {"power_w": truth.power_w} for truth in truths],
        "nvml_calls": calls,
    }
    written = truth_file is not None and try_to_write(truth_file, json.dumps(found, indent=2) + "\n")
    if as_json:
        print_json(found)
    elif not written:
        _show(truths)
    return exit_code or int(truth_file is not None and not written)


def _simulate(scenario: Scenario, program: Program, *, follow: bool) -> tuple[int, tuple[Truth, ...], dict[str, int]]:
    """Return the exit code of the command, the true time and energy of each GPU, and the number of NVML calls."""
    from wattune.emulator.launch import assign_load, environment_for, open_scenario, truths
    from wattune.emulator.library import build_library
    from wattune.process.step_file import following_environment, unfollowing_environment
    from wattune.store.fallback import fallback_folders, move_unsaved

    config = load_config()
    library = build_library(config.cache_dir)
    with _temporary_folder() as folder, open_scenario(scenario, folder, library=library) as node:
        with _telling_no_room(folder):
            environment = environment_for(node, folder, before=os.environ)
        _open_to_calling_user(folder, node.path)
        if follow:
            environment = following_environment(environment, node.library)
        elif scenario.workload is not None:
            environment = unfollowing_environment(environment)
        before = truths(node, scenario.gpus)
        try:
            on_start = partial(assign_load, node, scenario)
            exit_code = replace(program, environment=environment, on_start=on_start).run().exit_code
        finally:  # the state folder of the node goes; runs that its store could not take must not
            move_unsaved(Path(environment["WATTUNE_STATE"]), fallback_folders(config.state_dir))
        spent = tuple(end.since(start) for start, end in zip(before, truths(node, scenario.gpus), strict=True))
        return exit_code, spent, {"getters": node.getter_calls(), "setters": node.setter_calls()}


def _open_to_calling_user(folder: Path, node: Path) -> None:
    """Let programs of the user who called sudo use the node: a `wattune run` in it starts its program as that user."""
    user = CallingUser.of_sudo(os.environ)
    if user is not None:
        folder.chmod(0o711)
        os.chown(node, user.uid, user.gid)


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Make a folder for the files of the simulated GPUs, or raise an error of one line."""
    with ExitStack() as stack:
        with _telling_no_room(None):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wattune-simulate-"))
        yield Path(folder)


@contextmanager
def _telling_no_room(folder: Path | None) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = folder or error.filename or "a temporary folder"
        raise InputError(
            f"cannot write to {place}: {error.strerror}", hint="make room there, or name another folder: TMPDIR=FOLDER"
        ) from None


def _show(truths: tuple[Truth, ...]) -> None:
    from rich.table import Table

    table = Table("GPU", "truth J", "mean W", "seconds", "iterations", box=None, pad_edge=False)
    for truth in truths:
        power = "–" if truth.power_w is None else f"{truth.power_w:.1f}"
        name = f"{truth.index}: {truth.name}"
        table.add_row(name, f"{truth.energy_j:.1f}", power, f"{truth.time_s:.3f}", f"{truth.iterations:.1f}")
    screen = stderr_console()
    screen.print()
    screen.print(table)
    for line in trust_lines(True, *(truth.name for truth in truths)):
        screen.print(line, markup=False, soft_wrap=True)
