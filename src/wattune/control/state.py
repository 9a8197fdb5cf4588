"""The progress of tuning a running program, as a value: states are types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from operator import or_
from statistics import fmean

from wattune.control.window_state import Measuring, Settling, Until
from wattune.control.window_totals import Tally
from wattune.core.gpu_spec import GpuSpec
from wattune.core.measurement import Measurement
from wattune.core.reading import CountedReading, Reading
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, PhaseCost, PhaseSetting, Purpose, Window
from wattune.signals.change import Change


class Condition(StrEnum):
    """The condition of a program: it can be tuned while it is working."""

    WORKING = "working"
    UNUSED = "not using the GPU"
    SHARED = "sharing the GPU with another program"
    STOPPED = "stopped"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time of a unit of work, with the half-width of its 95 % interval, and the source of the unit."""

    step_time_s: float
    error_s: float | None
    source: str = "steps"
    """steps, period or counters."""
    delayed: float = 0.0
    """Share of the time that delays of steps took, which is no part of the step time."""

    @property
    def relative_error(self) -> float | None:
        return None if self.error_s is None or self.step_time_s <= 0 else self.error_s / self.step_time_s


OVERDUE = 4.0
"""Times the usual duration of a step after which the next one is overdue."""
LONGEST_STALL_S = 10.0
"""No window waits longer for the next step, unless steps are long."""


@dataclass(frozen=True, slots=True)
class StepCount:
    """The steps that a program has done."""

    count: int
    time_s: float
    """The end of the last one, by the GPU's time."""
    step_s: float | None
    """How long they take at present."""

    def at(self, time_s: float) -> float:
        """Return the steps by a time near the end of the last, with the part of the one under way."""
        if not self.step_s:
            return float(self.count)
        return self.count + min((time_s - self.time_s) / self.step_s, 1.0)

    def stalls_at(self, time_s: float) -> bool:
        """Return whether the next step is overdue: the program evaluates, ends, or is slow.

        Where it is so for long, it may do something else than steps, and nothing waits for them any more.
        """
        if not self.step_s:
            return False
        since_s = time_s - self.time_s
        return OVERDUE * self.step_s < since_s < max(LONGEST_STALL_S, 2 * OVERDUE * self.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything observed since the last step."""

    readings: tuple[Reading, ...]
    """Of all GPUs of the program as one, oldest first."""
    condition: Condition = Condition.WORKING
    step_time: StepTime | None = None
    """Of the present window, where it was due and is known."""
    features: Mapping[str, float] = field(default_factory=dict)
    """Counters of the present window, where its step time was due and there are counters."""
    phases: tuple[PhaseCost, ...] = ()
    """The phases of a step in the present window, where its step time was due and the program reports phases."""
    change: Change | None = None
    """A change of what the program does."""
    remarks: tuple[str, ...] = ()
    """Faults of the sensors, in words."""
    steps: StepCount | None = None
    """The steps of the program so far; None where they are not counted."""


def as_one(readings: Sequence[Reading]) -> Reading:
    """Combine the readings of several GPUs at about one instant: mean energy and power, the slowest clock.

    Means, so that what is known of one GPU holds for them; also of the times at which their counters were exact. A
    value that one of them lacks is unknown for all.
    """
    if len(readings) == 1:
        return readings[0]

    def of_all(name: str, combine: Callable[[list[float]], float]) -> float | None:
        values = [getattr(reading, name) for reading in readings]
        return None if None in values else combine(values)

    def least(name: str) -> int | None:
        value = of_all(name, min)
        return None if value is None else int(value)

    throttles = [reading.throttle for reading in readings if reading.throttle is not None]
    return CountedReading(
        time_s=max(reading.time_s for reading in readings),
        exact_s=fmean(reading.exact_s for reading in readings),
        exact_error_s=fmean(reading.exact_error_s for reading in readings),
        energy_j=of_all("energy_j", fmean),
        power_w=of_all("power_w", fmean),
        temperature_c=of_all("temperature_c", max),
        sm_mhz=least("sm_mhz"),
        mem_mhz=least("mem_mhz"),
        throttle=reduce(or_, throttles) if throttles else None,
        power_limit_w=least("power_limit_w"),
        sm_util=of_all("sm_util", fmean),
        mem_util=of_all("mem_util", fmean),
    )


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that does not answer any more, and its time and energy until its last reading."""

    spec: GpuSpec
    index: int
    """Its place among the GPUs that were named."""
    why: str
    spent: Measurement


LEAST_S = 1.0
"""No window is shorter, so that clocks are not changed more often: changes every few tens of ms slow down NCCL."""

NOTHING = Measurement(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in words, and when: seconds since the tuning began."""

    time_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The program cannot be tuned at the moment, and nothing is set."""

    why: Condition


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """The measurements of a window so far."""

    tally: Tally
    since: Reading | None = None
    """The reading from which on its setting settled."""
    stepped: Tally | None = None
    """The same up to the last step that the program ended; None where its steps are not counted."""
    step_time: StepTime | None = None
    features: Mapping[str, float] = field(default_factory=dict)
    phases: tuple[PhaseCost, ...] = ()
    again_s: float = 0.0
    """The age of the window at which its step time is estimated again; 0 before the first time."""

    @property
    def age_s(self) -> float:
        return self.tally.time_s


@dataclass(frozen=True, slots=True)
class Disabled:
    """Tuning has ended for good."""

    why: str


State = Waiting | Settling[Order, Reading] | Measuring[Order, OpenWindow] | Disabled


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of tuning a program, with all windows and events so far."""

    spec: GpuSpec
    """With the settings that may still be chosen."""
    state: State = Waiting(Condition.UNUSED)
    windows: tuple[Window, ...] = ()
    events: tuple[Event, ...] = ()
    refused: tuple[Setting, ...] = ()
    changes: tuple[Change, ...] = ()
    """The change of the program in each window that is marked as changed."""
    first: Reading | None = None
    last: Reading | None = None
    stepped: Reading | None = None
    """The last reading by which the program had ended a step; None where its steps are not counted."""
    early_steps: int = 0
    """Steps that the program had done, at the setting that was found, before the first was seen; in no window yet."""
    reopened: Progress | None = None
    """The progress before its last window ended, which is undone where the program had no step afterwards."""
    unmeasured: Measurement = NOTHING
    """Time and energy between the last window and the present state."""
    one_setting: str | None = None
    """The reason why settings are not held per phase any more; None while they may be."""

    @property
    def setting(self) -> Setting:
        match self.state:
            case Settling(choice=order) | Measuring(choice=order):
                return order.setting
            case _:
                return DRIVER_DEFAULT

    @property
    def order(self) -> Order | None:
        return self.state.choice if isinstance(self.state, Settling | Measuring) else None

    @property
    def by_phase(self) -> tuple[PhaseSetting, ...]:
        """The setting of each phase of a step; empty where one setting is held throughout."""
        return () if self.order is None else self.order.by_phase

    @property
    def held(self) -> Setting | None:
        """The setting that is held now, or was last; None where none was yet."""
        if self.order is not None and self.order.purpose is Purpose.HOLD:
            return self.order.setting
        return next((one.setting for one in reversed(self.windows) if one.purpose is Purpose.HOLD), None)

    @property
    def held_by_phase(self) -> tuple[PhaseSetting, ...]:
        """The setting of each phase of a step, where they are held now, or were last; empty for one setting."""
        if self.order is not None and self.order.purpose is Purpose.HOLD:
            return self.order.by_phase
        return next((one.by_phase for one in reversed(self.windows) if one.purpose is Purpose.HOLD), ())

    @property
    def spent(self) -> Measurement:
        """Time and energy of one GPU since the tuning began."""
        return NOTHING if self.first is None or self.last is None else between(self.first, self.last)

    @property
    def time_s(self) -> float:
        """Seconds since the tuning began."""
        return self.spent.time_s

    @property
    def measuring_since_s(self) -> float | None:
        """The GPU's time at which the present window began; None where there is none."""
        return self.state.window.tally.first.exact_s if isinstance(self.state, Measuring) else None

    @property
    def wants_step_time(self) -> bool:
        """True where the step time of the present window is due: seldom, since estimating it may be costly."""
        if not isinstance(self.state, Measuring):
            return False
        until, age_s = until_of(self.state.choice), self.state.window.age_s
        return age_s >= until.least_s and age_s >= min(self.state.window.again_s, until.most_s)

    def noted(self, *texts: str) -> Progress:
        """Add events; one that is among the latest already is not repeated."""
        known = {event.text for event in self.events[-8:]}
        new = tuple(Event(self.time_s, text) for text in texts if text not in known)
        return replace(self, events=self.events + new) if new else self


def between(before: Reading, after: Reading) -> Measurement:
    """Return time and energy between two readings; without a counter, by their power."""
    time_s = max(after.exact_s - before.exact_s, 0.0)
    if before.energy_j is not None and after.energy_j is not None and after.energy_j >= before.energy_j:
        return Measurement(time_s, after.energy_j - before.energy_j)
    watts = [reading.power_w for reading in (before, after) if reading.power_w is not None]
    return Measurement(time_s, time_s * sum(watts) / len(watts) if watts else 0.0)


def until_of(order: Order) -> Until:
    """Return when the window of an order is over."""
    least_s = max(order.least_s, LEAST_S)
    return Until(least_s=least_s, most_s=max(order.most_s, least_s), precision=order.precision)
