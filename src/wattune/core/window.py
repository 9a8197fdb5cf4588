"""Windows of a running program, orders for the next one, and the protocol of policies.

A *window* is an interval of a program's run at one setting. A policy gets the windows so far and returns the *order*
for the next: a setting, its purpose, and how long to measure. The *step time* is the time that the program takes for
one unit of its work: a step that it reports, or a period of its power. A program may report the *phases* of its steps,
such as forward, backward and optimizer; an order may then ask for a setting per phase.
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
    """The purpose of a window."""

    BASELINE = "baseline"
    """Everything is compared with it: normally the driver's own choice."""
    REFERENCE = "reference"
    """Counters at a fixed clock, for models that were trained there."""
    TRIAL = "trial"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class PhaseSetting:
    """The setting of one phase of a step, and how long the phase is expected to last at it."""

    name: str
    setting: Setting
    time_s: float


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Time and energy of one phase of a step: the mean over the steps of a window, with its error."""

    name: str
    cost: Measurement
    sm_mhz: float | None = None
    """Mean core clock that was read in the phase."""


def by_phase_words(by_phase: Sequence[PhaseSetting]) -> str:
    """Return settings per phase in words; phases in a row that share one are named together."""
    groups: list[tuple[list[str], Setting]] = []
    for one in by_phase:
        if not groups or groups[-1][1] != one.setting:
            groups.append(([], one.setting))
        groups[-1][0].append(one.name)
    return "; ".join(f"{', '.join(names)} {setting}" for names, setting in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request for the next window."""

    setting: Setting
    purpose: Purpose
    least_s: float
    """Shortest length, once the setting has settled."""
    most_s: float
    """Longest length."""
    precision: float | None = None
    """Relative 95 % half-width of the step time at which the window may end before `most_s`."""
    settle_s: float | None = None
    """Time to wait before measuring; None for what the GPU needs."""
    why: str = ""
    by_phase: tuple[PhaseSetting, ...] = ()
    """The phases of a step, each with its own setting instead of the one above; empty to hold that one throughout."""
    remark: str = ""
    """Something that the user should know, for the events."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings that hold at some time in its window."""
        return tuple(dict.fromkeys(one.setting for one in self.by_phase)) or (self.setting,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The measurements of an interval at one setting."""

    setting: Setting
    purpose: Purpose
    start_s: float
    """Since the tuning began, settling over."""
    cost: Measurement
    """Time and energy of the window itself."""
    settling: Measurement
    """Time and energy between the order and the window."""
    step_time_s: float | None = None
    """None where no progress of the program could be measured."""
    step_time_error_s: float | None = None
    """Half-width of the 95 % interval."""
    source: str | None = None
    """What the step time comes from: steps, period or counters; step times of two sources do not compare."""
    held: bool = True
    """True where the clocks that were read back were those requested, or lower for a reason that the GPU reports."""
    sm_mhz: float | None = None
    """Mean core clock that was read; under a power limit lower than the requested one."""
    sm_util: float | None = None
    mem_util: float | None = None
    sm_util_error: float | None = None
    """Half-width of the 95 % interval, from its variation; None where that is unknown."""
    mem_util_error: float | None = None
    features: Mapping[str, float] = field(default_factory=dict)
    """Counters, where there are any: tensor, fp32, dram, sm; each 0 to 1."""
    changed: bool = False
    """True where the program began to do something else in it."""
    phases: tuple[PhaseCost, ...] = ()
    """The phases of a step, where the program reports them."""
    by_phase: tuple[PhaseSetting, ...] = ()
    """The setting of each phase, where the window had one per phase; `setting` is then that to go back to."""
    steps: float | None = None
    """Steps in the window and in the settling before it, where they were counted and nothing paused."""
    delayed: float = 0.0
    """Share of the time that delays of steps took, which are no part of the step time."""
    recalled: bool = False
    """True for what an earlier run or phase showed; it took no time here, and nothing was checked by it."""

    @property
    def point(self) -> tuple[Setting, tuple[tuple[str, Setting], ...]]:
        """What was set: windows with the same point can be averaged."""
        return self.setting, tuple((one.name, one.setting) for one in self.by_phase)

    @property
    def counted(self) -> bool:
        """True where units of work were counted, so that no multiple of one can have been taken for it."""
        return self.source not in (None, "period")

    @property
    def power_w(self) -> float:
        return self.cost.power_w

    @property
    def total(self) -> Measurement:
        """Time and energy of the window and of the settling before it."""
        return self.settling + self.cost

    @property
    def unit(self) -> Measurement | None:
        """Time and energy of one unit of work, or None without a step time."""
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


SEVERAL_STEPS = 8
"""Steps in a window whose step time can be measured: five ends of steps at least, at a clock that makes them a third
longer."""


PERIOD_ROOM = 1.5
"""A period shows at another setting in so much more time than it took at the baseline, or than was too little."""
MOST_STEPS_S = 600.0
"""No window is longer for the sake of its steps."""


def steps_s(windows: Sequence[Window]) -> float:
    """Return how long a window has to be to show a step time, by the windows so far; 0 where none is known."""
    each_s = [window.step_time_s or sum(one.cost.time_s for one in window.phases) for window in windows]
    needed_s = SEVERAL_STEPS * max(each_s, default=0.0)
    if any(window.source == "period" for window in windows):
        timed = [window.cost.time_s for window in windows if window.step_time_s and window.purpose is Purpose.BASELINE]
        unseen = [window.cost.time_s for window in windows if not window.step_time_s]
        needed_s = max(
            needed_s, PERIOD_ROOM * min(timed, default=0.0), min(PERIOD_ROOM * max(unseen, default=0.0), 60.0)
        )
    return min(needed_s, MOST_STEPS_S)


class RunPolicy(Protocol):
    """Chooses the next window from those so far; pure, so that all ranks decide alike."""

    @property
    def name(self) -> str:
        """wattune, gpoeo, odpp …"""

    @property
    def tunes(self) -> bool:
        """True if it ever sets anything; a policy that does not needs no counters."""

    @property
    def uses_history(self) -> bool:
        """True if it is given windows of earlier runs and phases; published policies start from nothing each time."""

    @property
    def needs_counters(self) -> bool:
        """True if it predicts from hardware counters, so that their absence is worth a note."""

    def step(self, windows: tuple[Window, ...], spec: GpuSpec) -> Order:
        """Return the order for the next window, given those so far; there are none at first."""
