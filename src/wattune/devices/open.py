"""Opening GPUs by name, and restoring them.

Names: `auto` (every visible NVIDIA GPU, or a simulated A100 where no NVIDIA driver is installed), `nvml` (every visible
one), `nvml:0` (as CUDA counts) or `nvml:GPU-…`, `sim:a100`, `sim:./my-a100.toml`, `table:sweep.csv`.
"""

from __future__ import annotations

import difflib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wattune.core.errors import ConfigError, DeviceNotFound, InputError, NoDriver, NoPermission
from wattune.core.reading import Restart
from wattune.devices.entry import Entry
from wattune.devices.gpu import Gpu
from wattune.devices.guarded import GuardedGpu, leaving_by_exception, watched
from wattune.devices.journal import Journal
from wattune.devices.watchdog import Restoration, restore_left

_LOG = logging.getLogger("wattune")

if TYPE_CHECKING:
    from wattune.devices.nvml.visible import Present, Visible

SIMULATED_DEFAULT = "sim:a100"
PLAYED = "table:"
KINDS = ("auto", "nvml", "sim", "table")


@cache
def say_once(text: str) -> None:
    """Print a line to standard error, the same line once in a process."""
    print(f"wattune: {text}", file=sys.stderr, flush=True)


@cache
def warn_once(text: str) -> None:
    """Print a warning and how to turn it into an error to standard error, the same once in a process."""
    print(f"warning: {text}\nhint: --require-gpu makes this an error", file=sys.stderr, flush=True)


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
    lock_dir: Path | None = None
    """The folder of the locks of all users; None: the state folder."""
    require_gpu: bool = False
    """True if `auto` must not stand for a simulated GPU."""
    on_fallback: Callable[[str], None] = warn_once
    """Takes the line about a simulated GPU that `auto` stands for."""

    @property
    def journal(self) -> Journal:
        return Journal(self.state_dir, self.lock_dir)

    def fall_back(self) -> None:
        """Say that a simulated GPU is used in place of a real one; an error where a real one is required."""
        missing = "no NVIDIA driver is installed here"
        if self.require_gpu:
            raise DeviceNotFound(
                f"{missing}, and a GPU is required",
                hint=f"install it, or leave out --require-gpu and WATTUNE_REQUIRE_GPU to use {SIMULATED_DEFAULT}",
            )
        self.on_fallback(f"{missing}: a simulated GPU ({SIMULATED_DEFAULT}) is used, and every figure is simulated")


@contextmanager
def open_gpu(name: str, surroundings: Surroundings) -> Iterator[Gpu]:
    """Open one GPU, the first if the name stands for several, and restore it at the end."""
    with open_gpus(expand((name,), surroundings)[:1], surroundings) as gpus:
        yield gpus[0]


@contextmanager
def open_gpus(names: tuple[str, ...], surroundings: Surroundings) -> Iterator[tuple[Gpu, ...]]:
    """Open the GPUs of these names and restore them at the end; first undo settings that dead processes left."""
    if surroundings.wall_clock:
        _refuse_played(names)
    _restore_at_start(surroundings)
    with leaving_by_exception(), ExitStack() as stack:
        opened: list[Gpu] = []
        for name in expand(names, surroundings):
            opened.append(stack.enter_context(_open(name, surroundings)))
        yield tuple(opened)


def _refuse_played(names: tuple[str, ...]) -> None:
    """Raise where a name is that of a file: nothing can be measured where no time passes."""
    for name in names:
        if name.startswith(PLAYED):
            raise InputError(
                f"{name} is played from a file, and no time passes on it while a program runs",
                hint="choose a GPU: nvml:0 or sim:a100; such files are for `wattune sweep` and `wattune monitor`",
            )


def expand(names: tuple[str, ...], surroundings: Surroundings) -> tuple[str, ...]:
    """Return names of one GPU each: expand `auto` and `nvml`, and remove duplicates."""
    single: list[str] = []
    for name in names:
        if name == "auto":
            try:
                single.extend(_visible_names(surroundings))
            except NoDriver:
                surroundings.fall_back()
                single.append(SIMULATED_DEFAULT)
        elif name == "nvml":
            single.extend(_visible_names(surroundings))
        else:
            single.append(_catalogued(name))
    return tuple(dict.fromkeys(single))


def _catalogued(name: str) -> str:
    """Return the name of a simulated GPU as the catalogue has it, and any other as it is."""
    from wattune.physics.catalog import catalog_key, is_file_name

    kind, _, rest = name.partition(":")
    if kind.strip().lower() != "sim" or not rest or is_file_name(rest):
        return name
    return f"sim:{catalog_key(rest)}"


def _near(kind: str, rest: str) -> str:
    """Return what a name of no device may have meant, as the start of a hint."""
    from wattune.physics.catalog import catalog_key

    if not rest:
        try:
            return f"did you mean sim:{catalog_key(kind)}? "
        except DeviceNotFound:
            return ""
    near = difflib.get_close_matches(kind, KINDS, n=1)
    return f"did you mean {near[0]}:{rest}? " if near and near[0] != kind else ""


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
    return [f"nvml:{gpu.uuid or place}" for place, gpu in _answering(found, surroundings)]


def _answering(found: Visible, surroundings: Surroundings) -> list[tuple[int, Present]]:
    """Return the GPUs that answer and name the others; all of them where none does, so that opening one says why."""
    gpus = list(enumerate(found.gpus))
    answering = [(place, gpu) for place, gpu in gpus if gpu.uuid]
    if not answering:
        return gpus
    for place, gpu in gpus:
        if not gpu.uuid:
            surroundings.notify(f"GPU {place} does not answer and is left out (see `wattune doctor`)")
    return answering


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
            from wattune.devices.nvml.library import loaded_path
            from wattune.devices.nvml.open import opened_nvml

            journal = surroundings.journal
            which = _numbered(rest, surroundings) if rest.isdecimal() else rest
            with opened_nvml(which) as gpu, watched(journal, loaded_path) as watchdog:
                label, notify = gpu.spec.label, surroundings.notify
                gpu.on_restart(lambda restart: notify(restart_line(label, restart)))
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
        case _:
            raise DeviceNotFound(
                f"there is no device {name!r}",
                hint=f"{_near(kind, rest)}devices are auto, nvml:0, sim:a100, table:FILE.csv",
            )


def restore_abandoned(surroundings: Surroundings) -> tuple[Restoration, ...]:
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
        if outcome.entry is None and not isinstance(outcome.error, NoPermission):  # that is for whoever sets the GPU
            _LOG.warning("%s", outcome.error)


def _undo(entry: Entry, since_s: float) -> tuple[str, ...]:
    from wattune.devices.nvml.open import undo_left

    return undo_left(entry, since_s=since_s)
