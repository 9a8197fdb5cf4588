"""Opening GPUs by name, and restoring them.

Names: `auto` (every visible NVIDIA GPU, else a simulated A100), `nvml` (every visible one), `nvml:0` or `nvml:GPU-…`,
`sim:a100`, `table:sweep.csv`, `replay:run.jsonl`.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wattune.core.errors import ConfigError, DeviceError, DeviceNotFound
from wattune.devices.entry import Entry
from wattune.devices.gpu import Gpu
from wattune.devices.guarded import GuardedGpu, leaving_by_exception, watched
from wattune.devices.journal import Journal
from wattune.devices.watchdog import Outcome, restore_left

_LOG = logging.getLogger("wattune")

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
    lock_dir: Path | None = None
    """The folder of the locks of all users; None: the state folder."""

    @property
    def journal(self) -> Journal:
        return Journal(self.state_dir, self.lock_dir)


@contextmanager
def open_gpu(name: str, surroundings: Surroundings) -> Iterator[Gpu]:
    """Open one GPU, the first if the name stands for several, and restore it at the end."""
    with open_gpus(expand((name,), surroundings)[:1], surroundings) as gpus:
        yield gpus[0]


@contextmanager
def open_gpus(names: tuple[str, ...], surroundings: Surroundings) -> Iterator[tuple[Gpu, ...]]:
    """Open the GPUs of these names and restore them at the end; first undo settings that dead processes left."""
    _restore_at_start(surroundings)
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
            from wattune.devices.nvml.library import loaded_path
            from wattune.devices.nvml.open import opened_nvml

            journal = surroundings.journal
            with opened_nvml(rest, surroundings.visible) as gpu, watched(journal, loaded_path) as watchdog:
                guarded = GuardedGpu(gpu, journal, f"nvml:{gpu.spec.uuid}", watchdog=watchdog)
                try:
                    yield guarded
                finally:
                    guarded.close()
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


def restore_abandoned(surroundings: Surroundings) -> tuple[Outcome, ...]:
    """Undo what dead processes left set, each GPU by itself; return what came of each."""
    return restore_left(surroundings.journal, _undo)


def _restore_at_start(surroundings: Surroundings) -> None:
    """Undo what dead processes left set, as far as this user may; failures are for `wattune restore` to report."""
    try:
        outcomes = restore_abandoned(surroundings)
    except ConfigError:
        return  # not our folder: whoever sets a GPU gets this error then, and whoever only reads need not know
    for outcome in outcomes:
        for line in outcome.left:
            _LOG.warning("%s: %s; it is left as it is", outcome.device, line)
        if outcome.entry is None:
            _LOG.warning("%s", outcome.error)


def _undo(entry: Entry, since_s: float) -> tuple[str, ...]:
    from wattune.devices.nvml.open import undo_left

    return undo_left(entry, since_s=since_s)
