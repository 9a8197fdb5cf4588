"""A running program seen in windows: what is asked of the next one, and what one showed.

A *window* is a stretch of a program's run at one setting. A policy looks at the windows so far and gives the *order*
for the next: a setting, what it is for, and how long to look. The *pace* is the time that the program takes for one
unit of its work: a step that it reports, or a period that was seen in its power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting


class Purpose(StrEnum):
    """What a window is for."""

    BASELINE = "baseline"
    """What everything is compared with: the setting that was found, normally the driver's own choice."""
    REFERENCE = "reference"
    """A look at counters at a fixed clock, as models that were trained there want it."""
    TRIAL = "trial"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the next window should be."""

    setting: Setting
    purpose: Purpose
    least_s: float
    """How long to look at least, once the setting has settled."""
    most_s: float
    """How long to look at most."""
    precision: float | None = None
    """The relative 95 % half-width of the pace at which the window may end before `most_s`."""
    settle_s: float | None = None
    """How long to wait before looking; None leaves it to what the part needs."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a stretch showed."""

    setting: Setting
    purpose: Purpose
    start_s: float
    """Since the tuning began, settling over."""
    cost: Measurement
    """Time and energy of the stretch itself."""
    settling: Measurement
    """What passed between the order and the stretch."""
    step_time_s: float | None = None
    """None where the program showed no progress that could be measured."""
    step_time_error_s: float | None = None
    """Half-width of the 95 % interval."""
    counted: bool = False
    """Whether the units of the pace were counted, so that no multiple of one can have been taken for it."""
    held: bool = True
    """Whether the clocks that were read back were those asked for, or lower for a reason that the GPU names."""
    sm_mhz: float | None = None
    """Mean core clock that was read; under a power limit lower than what was asked for."""
    sm_util: float | None = None
    mem_util: float | None = None
    sm_util_error: float | None = None
    """Half-width of the 95 % interval, by how much it varied meanwhile; None where that is not known."""
    mem_util_error: float | None = None
    features: Mapping[str, float] = field(default_factory=dict)
    """Counters, where something reads them: tensor, fp32, dram, sm; each 0 to 1."""
    changed: bool = False
    """Whether the program began to do something else in it."""

    @property
    def power_w(self) -> float:
        """Mean power of the stretch."""
        return self.cost.power_w

    @property
    def unit(self) -> Measurement | None:
        """What one unit of work takes, or None without a pace."""
        if self.step_time_s is None:
            return None
        energy_j = self.power_w * self.step_time_s
        share = None
        if self.step_time_error_s is not None and self.cost.energy_error_j is not None and self.cost.energy_j > 0:
            share = (
                (self.step_time_error_s / self.step_time_s) ** 2 + (self.cost.energy_error_j / self.cost.energy_j) ** 2
            ) ** 0.5
        return Measurement(
            self.step_time_s, energy_j, self.step_time_error_s, None if share is None else energy_j * share
        )


def phases_of(windows: Sequence[Window]) -> tuple[tuple[Window, ...], ...]:
    """Split windows where the program began to do something else; the last phase may be empty."""
    ends = [place + 1 for place, window in enumerate(windows) if window.changed]
    return tuple(tuple(windows[start:end]) for start, end in zip((0, *ends), (*ends, len(windows)), strict=True))


def since_change(windows: Sequence[Window]) -> tuple[Window, ...]:
    """Return the windows of the present phase of the program."""
    return phases_of(windows)[-1]


class RunPolicy(Protocol):
    """Decides from the windows so far what the next one should be: pure, so that ranks decide alike."""

    @property
    def name(self) -> str:
        """What tables call it: wattune, gpoeo, odpp."""
        ...

    @property
    def tunes(self) -> bool:
        """Whether it ever sets anything; a policy that does not needs no counters."""
        ...

    @property
    def uses_history(self) -> bool:
        """Whether it is given windows of earlier runs and phases; published policies start afresh each time."""
        ...

    @property
    def needs_counters(self) -> bool:
        """Whether it predicts from hardware counters, so that their absence is worth a note."""
        ...

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """Return the order for the next window; `seen` is empty at first."""
        ...
