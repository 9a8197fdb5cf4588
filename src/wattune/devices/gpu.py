"""The protocols behind which every GPU stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.reading import Count, Reading, Restart
from wattune.core.refresh import Refresh
from wattune.core.setting import Setting
from wattune.core.workload import Workload


class Gpu(Protocol):
    """A GPU that can be read and set. `wattune.devices.open.open_gpu` opens one and always restores it."""

    @property
    def spec(self) -> GpuSpec:
        """Name, clocks, limits and sensors; always the same."""

    refresh: Refresh | None
    """The times at which the energy counter moves, or None; code that watches the counter stores them here."""

    def read(self) -> Reading:
        """Read everything that the GPU reports now."""

    def count(self) -> Count:
        """Read the energy counter and nothing else: cheap enough for the inside of a training loop."""

    def apply(self, setting: Setting) -> None:
        """Set the GPU; each None in the setting gives that knob back to the driver."""

    def restore(self) -> None:
        """Set the GPU back to how it was found. Calling it twice does no harm."""


@runtime_checkable
class KeepsTime(Protocol):
    """A GPU whose time can be read without asking the driver."""

    def gpu_time_s(self) -> float:
        """Return the time that its counts and readings carry."""


class Counts(Protocol):
    """Anything with an energy counter."""

    @property
    def count(self) -> Callable[[], Count]: ...


def time_of(gpu: Counts) -> Callable[[], float]:
    """Return how to read the time of a GPU: cheaply where it can, since programs ask at every step."""
    return gpu.gpu_time_s if isinstance(gpu, KeepsTime) else lambda: gpu.count().time_s


def restarts_within(gpu: Gpu, start_s: float, end_s: float) -> tuple[Restart, ...]:
    """Return the restarts of a GPU's counter that may lie between two times.

    A GPU whose counter can start again from zero lists them as `restarts`; others have none.
    """
    every: tuple[Restart, ...] = getattr(gpu, "restarts", ())  # on the path of every span, too quick for isinstance
    return tuple(one for one in every if one.after_s > start_s and one.before_s < end_s)


@runtime_checkable
class RunsWorkloads(Protocol):
    """A GPU that runs workloads by itself, in its own time: a simulated one, or one played from a table."""

    def prepare_workload(self, name: str | None) -> tuple[str, Callable[[int], Measurement]]:
        """Return the name of a workload (None: the GPU's default) and a function that measures iterations of it."""


@runtime_checkable
class PlaysWorkloads(Protocol):
    """A GPU of this process that keeps running a workload while time passes: a simulated one."""

    @property
    def iterations(self) -> float:
        """Iterations of the running workload until now, with the part of the one in progress that is done."""

    def play(self, workload: Workload) -> None:
        """Run a workload, iteration after iteration, until something else is asked for."""

    def wait(self, seconds: float) -> None:
        """Let time pass; the workload runs on."""


def play_on_simulated(gpus: Iterable[Gpu], workload: Workload) -> None:
    """Let every GPU that is simulated in this process play a workload."""
    for gpu in gpus:
        if isinstance(gpu, PlaysWorkloads):
            gpu.play(workload)
