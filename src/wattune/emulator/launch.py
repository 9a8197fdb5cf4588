"""Runs a command with the emulated library: its node, its environment, and the true energy."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from wattune.core.errors import InputError
from wattune.core.workload import Workload
from wattune.emulator.emulated_gpu import EmulatedGpu
from wattune.emulator.library import clock_library
from wattune.emulator.node import NO_PROCESS, NODE_VARIABLE, Node, Privilege
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate

CODES = {
    "not-supported": 3,
    "no-permission": 4,
    "not-loaded": 9,
    "timeout": 10,
    "function-not-found": 13,
    "lost": 15,
    "reset-required": 16,
    "mismatch": 18,
    "in-use": 19,
    "deprecated": 26,
    "not-ready": 27,
    "unknown": 999,
}
"""The NVML errors that have a name here."""
RESET = "reset"

_FORM = re.compile(r"(?P<index>[0-9]{1,4}):(?P<kind>[a-z-]+)(?:@(?P<at>[0-9]{1,9}(?:\.[0-9]+)?)s?)?")
_CALL_FORM = re.compile(
    r"(?P<function>nvml\w+|all):(?:(?P<kind>[a-z-]+)|(?P<blocking>[0-9]{1,9}(?:\.[0-9]+)?)ms)", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A GPU that is lost or reset at a time, or that answers every call with an error."""

    index: int
    kind: str
    at_s: float | None = None

    @classmethod
    def parse(cls, text: str) -> Fault | CallFault:
        """Parse a fault such as "0:lost@30s", "0:reset@5s", "1:timeout", or one of a function."""
        call = _CALL_FORM.fullmatch(text.strip())
        if call and (call["blocking"] or call["kind"] in CODES):
            code = 0 if call["blocking"] else CODES[call["kind"]]
            return CallFault(call["function"], code, float(call["blocking"] or 0) / 1000)
        match = _FORM.fullmatch(text.strip().lower())
        if not match or match["kind"] not in (*CODES, RESET):
            raise InputError(
                f"{text!r} is not a fault",
                hint=f'write "0:lost@30s", "0:reset@5s", FUNCTION:300ms, or INDEX:KIND or FUNCTION:KIND with one of '
                f"{', '.join(CODES)}",
            )
        if match["at"] and match["kind"] not in ("lost", RESET):
            hint = f'write "{match["index"]}:{match["kind"]}"'
            raise InputError(f"{text!r}: only a loss or a reset can come later", hint=hint)
        return cls(int(match["index"]), match["kind"], float(match["at"]) if match["at"] else None)

    def apply_to(self, node: Node) -> None:
        if self.kind == "lost":
            node.lose(self.index, at_s=self.at_s)
        elif self.kind == RESET:
            node.reset(self.index, at_s=self.at_s)
        else:
            node.fail(self.index, CODES[self.kind])


@dataclass(frozen=True, slots=True)
class CallFault:
    """A function of NVML, or `all`, that blocks and then fails where the code is not 0."""

    function: str
    code: int
    blocking_s: float = 0.0

    def apply_to(self, node: Node) -> None:
        node.inject(self.function, code=self.code, blocking_s=self.blocking_s)


NODE_FILE = "node"
MOST_GPUS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The GPUs of a command and their behaviour."""

    gpus: tuple[str, ...]
    workload: Workload | None = None
    """The load that every GPU plays meanwhile; None: idle without a context."""
    virtual_time: bool = False
    privilege: Privilege = Privilege.GRANTED
    faults: tuple[Fault | CallFault, ...] = ()
    call_latency_s: float = 0.0
    part_time_counter: bool = False
    """The energy counter measures only the window of each period that the power sensor measures."""
    switching: Literal["ideal", "real"] = "ideal"
    """ideal: new clocks take effect at once; real: after each GPU's delay."""
    is_persistent: bool = True
    """Persistence mode; without it settings are lost with the last client."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.gpus) <= MOST_GPUS:
            raise InputError(f"{len(self.gpus)} GPUs cannot be simulated at once", hint=f"choose 1 to {MOST_GPUS}")
        for fault in self.faults:
            if isinstance(fault, Fault) and fault.index >= len(self.gpus):
                raise InputError(f"there is no GPU {fault.index} to fail", hint=f"0 to {len(self.gpus) - 1} exist")


@dataclass(frozen=True, slots=True)
class Truth:
    """The true energy of a simulated GPU, without sensor errors."""

    index: int
    name: str
    time_s: float
    energy_j: float
    iterations: float

    @property
    def power_w(self) -> float | None:
        """Mean power; None where no time passed."""
        return self.energy_j / self.time_s if self.time_s > 0 else None

    def since(self, before: Truth) -> Truth:
        """Return the truth of the time since an earlier one."""
        return replace(
            self,
            time_s=self.time_s - before.time_s,
            energy_j=self.energy_j - before.energy_j,
            iterations=self.iterations - before.iterations,
        )


def open_scenario(scenario: Scenario, folder: Path, *, library: Path) -> Node:
    """Create the node of a scenario; its workload plays and belongs to no process yet."""
    models = [load_model(name) for name in scenario.gpus]
    gpus = [EmulatedGpu.of(model, index) for index, model in enumerate(models)]
    if scenario.part_time_counter:
        gpus = [replace(gpu, counter_window_s=_counter_window_s(gpu)) for gpu in gpus]
    if scenario.switching == "real":
        gpus = [replace(gpu, switching=gpu.spec.switching) for gpu in gpus]
    gpus = [replace(gpu, is_persistent=scenario.is_persistent) for gpu in gpus]
    node = Node.create(
        folder / NODE_FILE,
        gpus,
        library=library,
        clock="virtual" if scenario.virtual_time else "wall",
        privilege=scenario.privilege,
        call_latency_s=scenario.call_latency_s,
    )
    for index, model in enumerate(models):
        if scenario.workload is not None:
            node.play(index, tabulate(model, scenario.workload), pid=NO_PROCESS)
    for fault in scenario.faults:
        fault.apply_to(node)
    return node


def _counter_window_s(gpu: EmulatedGpu) -> float | None:
    """The window of a counter period that the sensor measures; None where that is all of it."""
    period_s, window_s = gpu.spec.sensors.counter_period_s, gpu.spec.sensors.power_window_s
    return window_s if period_s and window_s and window_s < period_s else None


def assign_load(node: Node, scenario: Scenario, pid: int) -> None:
    """Make a process the user of every GPU that plays a workload."""
    for index, name in enumerate(scenario.gpus):
        if scenario.workload is not None:
            # Half of the memory, as a typical training job.
            node.join(index, pid=pid, memory_bytes=load_model(name).memory_bytes // 2)


def environment_for(node: Node, folder: Path, *, before: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which programs use the node: NVML, nvidia-smi and, for virtual time, the clock."""
    _write_nvidia_smi(folder)
    found = {
        NODE_VARIABLE: str(node.path),
        "LD_LIBRARY_PATH": _prepended(node.library.parent, before.get("LD_LIBRARY_PATH")),
        "PATH": _prepended(folder, before.get("PATH")),
        # Two nodes may have GPUs of the same name and UUID, whose locks and journals must not collide.
        "WATTUNE_STATE": str(folder / "state"),
        "WATTUNE_LOCKS": str(folder / "state"),
    }
    if node.is_virtual:
        found["LD_PRELOAD"] = _prepended(clock_library(node.library), before.get("LD_PRELOAD"))
    return {**before, **found}


def _prepended(path: Path, rest: str | None) -> str:
    return f"{path}:{rest}" if rest else str(path)


def _write_nvidia_smi(folder: Path) -> None:
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m wattune.emulator.smi "$@"\n')
    script.chmod(0o755)


def truths(node: Node, names: tuple[str, ...]) -> tuple[Truth, ...]:
    """Return the true energy of each GPU since the node was made."""
    time_s = node.now_s()
    return tuple(
        Truth(index, f"{load_model(name).name} (simulated)", time_s, node.truth_j(index), node.iterations(index))
        for index, name in enumerate(names)
    )
