"""Opening GPUs by name, and restoring them.

Names: `auto` (every visible NVIDIA GPU, or a simulated A100 where no NVIDIA driver is installed), `nvml` (every visible
one), `nvml:0` (as CUDA counts) or `nvml:GPU-…`, `sim:a100`, `table:sweep.csv`, `replay:run.jsonl`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wattune.core.errors import DeviceError, DeviceNotFound, NoDriver
from wattune.core.reading import Restart
from wattune.devices.gpu import Gpu
from wattune.devices.guarded import GuardedGpu, leaving_by_exception
from wattune.devices.journal import Entry, Journal

if TYPE_CHECKING:
    from wattune.devices.nvml.visible import Visible

SIMULATED_DEFAULT = "sim:a100"
KINDS = ("auto", "nvml", "sim", "table", "replay")


@cache
def say_once(text: str) -> None:
    """Print a line to standard error, the same line once in a process."""
    print(f"wattune: {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings in which GPUs are opened: state folder, visible GPUs, kind of time."""

    state_dir: Path
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES, or None where it is not set."""
    device_order: str | None = None
    """CUDA_DEVICE_ORDER, or None where it is not set."""
    notify: Callable[[str], None] = say_once
    """Takes lines about which GPU was opened, where that is not obvious."""
    wall_clock: bool = False
    """True if simulated GPUs run in wall time; else their time passes when work is run on them."""
    switching: Literal["ideal", "real"] = "ideal"
    """ideal: new clocks of simulated GPUs take effect at once; real: after the delay of the GPU's specification."""


@contextmanager
def open_gpu(name: str, surroundings: Surroundings) -> Iterator[Gpu]:
    """Open one GPU, the first if the name stands for several, and restore it at the end."""
    with open_gpus(expand((name,), surroundings)[:1], surroundings) as gpus:
        yield gpus[0]


@contextmanager
def open_gpus(names: tuple[str, ...], surroundings: Surroundings) -> Iterator[tuple[Gpu, ...]]:
    """Open the GPUs of these names and restore them at the end; first undo settings that dead processes left."""
    restore_abandoned(surroundings)
    with leaving_by_exception(), ExitStack() as stack:
        opened: list[Gpu] = []
        for name in expand(names, surroundings):
            opened.append(stack.enter_context(_open(name, surroundings)))
        yield tuple(opened)


def expand(names: tuple[str, ...], surroundings: Surroundings) -> tuple[str, ...]:
    """Return names of one GPU each: expand `auto` and `nvml`, and remove duplicates."""
    single: list[str] = []
    for name in names:
        if name == "auto":
            try:
                single.extend(_visible_names(surroundings))
            except NoDriver:
                surroundings.notify(f"no NVIDIA driver is installed here: using a simulated GPU ({SIMULATED_DEFAULT})")
                single.append(SIMULATED_DEFAULT)
        elif name == "nvml":
            single.extend(_visible_names(surroundings))
        else:
            single.append(name)
    return tuple(dict.fromkeys(single))


def _visible_names(surroundings: Surroundings) -> list[str]:
    """Return a name with the UUID of every visible NVIDIA GPU; an error names the cause where there is none."""
    from wattune.devices.nvml.open import list_visible

    found = list_visible(surroundings.visible, surroundings.device_order)
    if found.total == 0:
        raise DeviceNotFound(
            "the NVIDIA driver is loaded but finds no GPU",
            hint="see `lspci | grep -i nvidia`, or use --device sim:a100",
        )
    if not found.gpus:
        raise DeviceNotFound(
            f"CUDA_VISIBLE_DEVICES={surroundings.visible!r} hides all {found.total} GPUs of this machine",
            hint="correct or unset it, name one by its UUID (--device nvml:GPU-…), or use --device sim:a100",
        )
    for place, _ in enumerate(found.gpus):
        _name_taken(place, found, surroundings)
    return [f"nvml:{gpu.uuid or place}" for place, gpu in enumerate(found.gpus)]


def _name_taken(place: int, found: Visible, surroundings: Surroundings) -> None:
    """Say which GPU a number means, where CUDA and the driver may count differently."""
    if found.origin != "bus":
        doubt = "; estimated: CUDA_DEVICE_ORDER=PCI_BUS_ID, or a UUID in place of the number, makes it certain"
        taken = f"GPU {place}, fastest first as CUDA counts, is {found.gpus[place].name} ({found.gpus[place].uuid})"
        surroundings.notify(taken + (doubt if found.origin == "estimate" else ""))


def _numbered(number: str, surroundings: Surroundings) -> str:
    """Return the UUID of the GPU with a number as CUDA counts; the driver's own number for one without a UUID."""
    from wattune.devices.nvml.open import list_visible

    found = list_visible(surroundings.visible, surroundings.device_order)
    place = int(number) if len(number) < 10 else found.total
    if place >= len(found.gpus):
        there = f"{len(found.gpus)} of {found.total} GPUs are visible"
        if surroundings.visible is None:
            there = f"this machine has {found.total} GPUs"
        raise DeviceNotFound(f"there is no GPU nvml:{number}: {there}", hint="list them with `wattune devices`")
    _name_taken(place, found, surroundings)
    return found.gpus[place].uuid or str(found.gpus[place].index)


def nvml_names(surroundings: Surroundings) -> list[str]:
    """Return `nvml:0`, `nvml:1`, … for every visible NVIDIA GPU; empty where no driver is installed."""
    from wattune.devices.nvml.open import list_visible

    try:
        found = list_visible(surroundings.visible, surroundings.device_order)
    except NoDriver:
        return []
    return [f"nvml:{place}" for place, _ in enumerate(found.gpus)]


def restart_line(label: str, restart: Restart) -> str:
    """Return what a restart of an energy counter means for figures."""
    return (
        f"the energy counter of {label} started again from zero, after a reset or a reload of the driver; "
        f"up to {restart.after_s - restart.before_s:.3g} s of energy are missing and part of the error"
    )


@contextmanager
def _open(name: str, surroundings: Surroundings) -> Iterator[Gpu]:
    kind, _, rest = name.partition(":")
    match kind if rest else "":
        case "nvml":
            from wattune.devices.nvml.open import opened_nvml

            with opened_nvml(_numbered(rest, surroundings) if rest.isdecimal() else rest) as gpu:
                label, notify = gpu.spec.label, surroundings.notify
                gpu.on_restart(lambda restart: notify(restart_line(label, restart)))
                guarded = GuardedGpu(gpu, Journal(surroundings.state_dir), f"nvml:{gpu.spec.uuid}")
                try:
                    yield guarded
                finally:
                    guarded.restore()
        case "sim":
            from wattune.devices.passing_time import VirtualTime, WallTime
            from wattune.devices.simulated import SimulatedGpu
            from wattune.physics.catalog import load_model
            from wattune.physics.operating_point import IDEAL

            model, time = load_model(rest), WallTime() if surroundings.wall_clock else VirtualTime()
            switching = model.spec().switching if surroundings.switching == "real" else IDEAL
            yield SimulatedGpu(model, time=time, switching=switching)
        case "table":
            from wattune.devices.table import TableGpu

            yield TableGpu.load(Path(rest))
        case "replay":
            from wattune.devices.replay import ReplayGpu

            yield ReplayGpu.load(Path(rest))
        case _:
            near = difflib.get_close_matches(kind, KINDS, n=1)
            guess = f"did you mean {near[0]}:{rest}? " if near and rest and near[0] != kind else ""
            raise DeviceNotFound(
                f"there is no device {name!r}",
                hint=f"{guess}devices are auto, nvml:0, sim:a100, table:FILE.csv, replay:FILE.jsonl",
            )


def restore_abandoned(surroundings: Surroundings) -> tuple[tuple[Entry, DeviceError | None], ...]:
    """Undo what dead processes left set; return each entry with the error if that failed."""
    journal = Journal(surroundings.state_dir)
    outcomes: list[tuple[Entry, DeviceError | None]] = []
    for entry in journal.entries():
        with journal.abandoned(entry.uuid) as found:
            if found is None:
                continue
            claim, entry = found
            try:
                _undo(entry)
            except DeviceError as error:
                outcomes.append((entry, error))
            else:
                claim.erase()
                outcomes.append((entry, None))
    return tuple(outcomes)


def _undo(entry: Entry) -> None:
    from wattune.devices.nvml.open import opened_nvml

    kind, _, which = entry.device.partition(":")
    if kind != "nvml":
        raise DeviceNotFound(
            f"the journal names an unknown device {entry.device!r}", hint="remove it from the state folder"
        )
    with opened_nvml(which) as gpu:
        gpu.undo(entry.touched, entry.found)
