"""The work that a sweep does at each setting: a simulated workload, a recorded one, or somebody's command."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from wattune.cli.child import run_child
from wattune.core.errors import InputError
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.devices.gpu import Gpu
from wattune.devices.meter import measured

if TYPE_CHECKING:
    from wattune.devices.simulated import SimulatedGpu
    from wattune.devices.table import TableGpu

DEFAULT_WORKLOAD = "resnet50"
DEFAULT_ITERATIONS = 500
"""Half a minute or so of training, over which the refresh of an energy counter (100 ms) hardly matters."""

Measure = Callable[[Setting], Measurement]


def find_work(
    gpu: Gpu, workload: str | None, iterations: int | None, command_line: tuple[str, ...]
) -> tuple[str, int, Measure]:
    """The name of the work, how often it is done at each setting, and how it is done and measured."""
    from wattune.devices.simulated import SimulatedGpu
    from wattune.devices.table import TableGpu

    if isinstance(gpu, SimulatedGpu | TableGpu):
        if command_line:
            raise InputError(
                f"{gpu.spec.label} trains a workload and cannot run a command",
                hint="put simulated GPUs under a command with: wattune simulate -- wattune sweep -- COMMAND",
            )
        repeats = iterations or DEFAULT_ITERATIONS
        if isinstance(gpu, TableGpu):
            return _played(gpu, workload or gpu.workloads[0], repeats)
        return _simulated(gpu, workload or DEFAULT_WORKLOAD, repeats)
    return _commanded(gpu, workload, iterations or 1, command_line)


def _simulated(gpu: SimulatedGpu, workload: str, iterations: int) -> tuple[str, int, Measure]:
    from wattune.workloads.catalog import make_workload

    load = make_workload(workload)

    def measure(setting: Setting) -> Measurement:
        del setting
        # The counter's refresh is learned in the GPU's own time, which costs none of ours.
        with measured(gpu, wait=gpu.idle) as span:
            gpu.run(load, iterations=iterations)
        return span.measurement / iterations

    return load.name, iterations, measure


def _played(gpu: TableGpu, workload: str, iterations: int) -> tuple[str, int, Measure]:
    def measure(setting: Setting) -> Measurement:
        del setting
        before = gpu.count()
        gpu.run(workload, iterations=iterations)
        return Measurement.between(before, gpu.count()) / iterations

    return workload, iterations, measure


def _commanded(gpu: Gpu, workload: str | None, runs: int, command_line: tuple[str, ...]) -> tuple[str, int, Measure]:
    if not command_line:
        raise InputError(
            f"on {gpu.spec.label} a sweep needs a command to run at each setting",
            hint="wattune sweep -- python train.py --steps 100, or --device sim:a100 for a simulated GPU",
        )
    if workload is not None:
        raise InputError("--workload is for simulated GPUs", hint="leave it out: the workload is your command")

    def measure(setting: Setting) -> Measurement:
        with measured(gpu) as span:
            for _ in range(runs):
                _run(command_line, setting)
        return span.measurement / runs

    # File names need not be text; what names the work must be.
    name = shlex.join(command_line).encode("utf-8", "replace").decode()
    return name, runs, measure


def _run(command_line: tuple[str, ...], setting: Setting) -> None:
    """Nothing; the command ended well. Its output goes to standard error, since ours is on standard output."""
    code = run_child(command_line, stdout_to_stderr=True)
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if code != 0:
        raise InputError(
            f"{shlex.join(command_line)} ended with exit code {code} at {setting}",
            hint="run it by itself first; the settings measured so far are in the history",
        )
