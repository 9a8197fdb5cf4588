"""Opening GPUs by name, and restoring them.

Names: `auto` (every visible NVIDIA GPU, else a simulated A100), `nvml` (every visible one), `nvml:0` or `nvml:GPU-…`,
`sim:a100`, `table:sweep.csv`, `replay:run.jsonl`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wattune.core.errors import DeviceError, DeviceNotFound
from wattune.devices.gpu import Gpu
from wattune.devices.guarded import GuardedGpu, leaving_by_exception
from wattune.devices.journal import Entry, Journal

SIMULATED_DEFAULT = "sim:a100"
KINDS = ("auto", "nvml", "sim", "table", "replay")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings in which GPUs are opened: state folder, visible GPUs, kind of time."""

    state_dir: Path
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES, or None where it is not set."""
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
            single.extend(nvml_names(surroundings) or [SIMULATED_DEFAULT])
        elif name == "nvml":
            found = nvml_names(surroundings)
            if not found:
                raise DeviceNotFound(
                    "no NVIDIA GPU is visible here", hint="see `wattune doctor`, or use --device sim:a100"
                )
            single.extend(found)
        else:
            single.append(name)
    return tuple(dict.fromkeys(single))


def nvml_names(surroundings: Surroundings) -> list[str]:
    """Return `nvml:0`, `nvml:1`, … for every visible NVIDIA GPU; empty without a driver."""
    from wattune.devices.nvml.open import list_uuids, visible_indices

    try:
        uuids = list_uuids()
    except DeviceError:
        return []
    return [f"nvml:{place}" for place, _ in enumerate(visible_indices(surroundings.visible, uuids))]


@contextmanager
def _open(name: str, surroundings: Surroundings) -> Iterator[Gpu]:
    kind, _, rest = name.partition(":")
    match kind if rest else "":
        case "nvml":
            from wattune.devices.nvml.open import opened_nvml

            with opened_nvml(rest, surroundings.visible) as gpu:
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
    with opened_nvml(which, None) as gpu:
        gpu.undo(entry.touched, entry.found)
