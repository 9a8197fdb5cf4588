"""The policy of MF-GPOEO: a controller moves the core clock to a slowdown, without period, model or search.

Source: the program that the authors of MF-GPOEO released, with its gains and conditions for the RTX 3080 Ti. It records
kernels and the gaps between them in a window and compares them with windows at the default; the ratio of their times
gives the index, the present slowdown. A PID controller moves the core clock until the index is near its limit. Here the
index comes from the counters of a window, or from its step time where there are no counters; both measure the same as
records of kernels. When the program changes, the original continues from its last state; here it starts again.

Notation: p, the index of a core clock (a point), ascending; index, the slowdown; e, the limit less the index; J, the
power relative to the base times 1 + index.
    p ← round(p·(1 − (Kp·e + Ki·Σe − Kd·Δe)))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import ClassVar

from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import Objective
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.core.window import Order, Purpose, Window
from wattune.levels.run.policies import slowdown_of
from wattune.levels.run.procedure import Procedure, PublishedPolicy, forever, holding, ordered, work_rate

_KP, _KI, _KD = 2.8, 0.002, 0.9
_MOST_KP = 8.0
_FIRST, _NEAR = 0.7, 0.75
_FLAT, _FALLING = 1.5, 1.75
_NEAR_ERROR = 0.04
_OVER = ((0.003, 4.0), (0.006, 2.5), (0.025, 1.75))
"""(excess, factor): above the limit by less than the excess, Kp is multiplied by the factor."""
_FASTER = ((0.1, 2.0, 2.2), (0.4, 3.0, 2.5))
"""(distance, limits, factor): less than the distance below the limit, with an index above so many limits."""
_DEAD = 0.01
_MOST_STEPS, _LONG_STEPS, _LONG_S = 5, 4, 75.0
_ALIKE, _STEADY = 3, 8
"""Ranges of points within which the latest ones count as alike, and as steady."""
_LOW = 0.6
_OVERSHOOT = 0.05


@dataclass(frozen=True, slots=True)
class ControlStep:
    """A measured point: its index, its objective J, and whether its clock was reached."""

    point: int
    index: float
    objective: float
    reached: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The steps so far, and the next point."""

    limit: float
    points: int
    point: int
    steps: tuple[ControlStep, ...] = ()
    total: float = 0.0
    """Sum of the errors since their sign last changed."""
    gain: float = _KP
    raised: bool = False
    """True where the last step raised the gain; the next one then continues from it."""

    def after(self, index: float, objective: float, *, reached: bool = True) -> Control:
        """Return the control after the measurement of its point."""
        error = self.limit - index
        before = self.limit - self.steps[-1].index if self.steps else None
        turned = before is not None and error * before < 0
        total = error if turned else self.total + error
        gain, raised = self._gain(index, reached)
        change = gain * error + (_KI * total if before is not None and not turned else 0.0)
        if before is not None and error * (error - before) > 0 and abs(error - before) > 0.5 * self.limit:
            change -= _KD * (error - before)  # the D term damps the correction after a jump
        return replace(
            self,
            steps=(*self.steps, ControlStep(self.point, index, objective, reached)),
            total=total,
            gain=gain,
            raised=raised,
            point=self._moved(error, change),
        )

    def _gain(self, index: float, reached: bool) -> tuple[float, bool]:
        """Return Kp for this step: raised while the index hardly reacts, lowered near the limit."""
        if not self.steps:
            return _FIRST * _KP, False
        before, start = self.steps[-1], self.gain if self.raised else _KP
        calm = max(index, before.index) < 0.2 * self.limit
        if calm and (not reached or self._flat(index, before)):
            return min(_FLAT * start, _MOST_KP), True
        falling = len(self.steps) >= 2 and self.point < before.point < self.steps[-2].point
        if falling and index < 0.5 * self.limit:
            return min(_FALLING * start, _MOST_KP), True
        return _KP * self._factor(index), False

    def _flat(self, index: float, before: ControlStep) -> bool:
        """Return whether one point less slows down by less than three times the average allowance."""
        if self.point == before.point:
            return False
        return (index - before.index) / (self.point - before.point) > -3 * self.limit / (self.points - 1)

    def _factor(self, index: float) -> float:
        error = self.limit - index
        if error < 0:
            return next((factor for points, factor in _OVER if -error < points), 1.0)
        if error < _NEAR_ERROR:
            return _NEAR
        off = abs(index) / self.limit
        return next((factor for points, limits, factor in _FASTER if error < points and off > limits), 1.0)

    def _moved(self, error: float, change: float) -> int:
        if self.steps and 0 < error < _DEAD * self.limit:
            return self.point
        moved = round(self.point * (1 - change))
        if error < 0:
            moved = max(moved, self.point + 1)
        elif error > 0:
            moved = min(moved, self.point - 1)
        return min(max(moved, 0), self.points - 1)


def stopping_point(control: Control, seconds: float, *, low_memory: bool) -> int | None:
    """Return the point to stop at, or None while the control should go on."""
    steps = control.steps
    if len(steps) < _ALIKE:
        return None
    recent = steps[-_MOST_STEPS:]
    over = len(steps) >= _MOST_STEPS or (len(steps) >= _LONG_STEPS and seconds > _LONG_S)
    points = [step.point for step in recent]
    alike = max(points) - min(points) <= _ALIKE and steps[-1].index < control.limit
    if over or control.point == steps[-1].point or alike:
        return _best(recent, control.limit)
    latest = [control.point, *(step.point for step in reversed(steps[-2:]))]
    if max(latest) < _LOW * control.points and all(step.index < control.limit for step in steps[-_ALIKE:]):
        return round(sum(latest) / len(latest))
    return _steady(control, low_memory=low_memory)


def _best(recent: tuple[ControlStep, ...], limit: float) -> int:
    """Return the point with the least objective within the limit; a lower point counts only if it was also slower."""
    best, least = recent[-1], inf
    for step in reversed(recent):
        value = step.objective + (1.0 if step.index > limit else 0.0)
        plausible = step.point >= best.point or step.index > best.index
        if least == inf or (value < least and plausible):
            best, least = step, value
    return best.point if best.index <= limit else max(step.point for step in recent)


def _steady(control: Control, *, low_memory: bool) -> int | None:
    """Return the weighted mean of the latest points, where they are near each other and near the limit."""
    length, bound = _patience(control, low_memory=low_memory)
    errors = [(step.index - control.limit) / control.limit for step in control.steps]
    latest = list(zip(control.steps, errors, strict=True))[-length - 1 :]
    if len(latest) > length:
        # One of them may be an outlier: the one without which the rest is nearest to the limit and below it.
        latest.remove(max(latest, key=lambda pair: abs(pair[1])))
    mean = sum(error for _, error in latest) / len(latest)
    distance = sum(abs(error) for _, error in latest) / len(latest)
    points = [step.point for step, _ in latest]
    steady = max(points) - min(points) <= _STEADY
    if distance > bound or mean > 0 or errors[-1] > _OVERSHOOT or not steady:
        return None
    weights = [sqrt(1.0 / max(abs(error), 1e-6)) / (4.0 if error > 0 else 1.0) for _, error in latest]
    return round(sum(weight * point for weight, point in zip(weights, points, strict=True)) / sum(weights))


def _patience(control: Control, *, low_memory: bool) -> tuple[int, float]:
    """Return how many of the latest steps must be near the limit, and how near."""
    if low_memory or control.point < 0.5 * control.points:
        return 2, 0.55
    if control.point < 0.73 * control.points:
        return 2, 0.40
    return (2, 0.20) if len(control.steps) >= _LONG_STEPS else (3, 0.20)


_SETTLE_S = 1.0
_STEP_S, _LONGEST_S = 4.0, 20.0
"""Windows begin at 4 s and grow by 4 s while the utilisation of two in a row differs."""
_UNEVEN, _UNEVEN_POINTS = 0.045, 0.024
_BASE_WINDOWS, _BASE_AGREES = 5, 0.04
_KEPT = ((0.02, 0.8), (0.05, 0.4), (0.08, 0.3))
"""(difference, weight): weight of the old base where a new measurement differs by less than this; else 0.2."""


@dataclass(frozen=True, slots=True)
class Base:
    """The measured default, and the length of windows."""

    spec: GpuSpec
    length_s: float
    unit_s: float
    power_w: float
    first: Window

    def index(self, window: Window) -> float | None:
        """Return the slowdown of a window; None where it is unknown."""
        unit_s = _unit_s(window, self.spec)
        return None if unit_s is None else unit_s / self.unit_s - 1.0

    def objective(self, window: Window, index: float) -> float:
        """Return the power relative to the base, times 1 + index: energy per work."""
        return window.power_w / self.power_w * (1.0 + index) if self.power_w > 0 else 1.0 + index

    def refreshed(self, window: Window) -> Base:
        """Move the base towards a new window at the default."""
        index = self.index(window)
        if index is None:
            return self
        share = 1.0 - next((kept for off, kept in _KEPT if abs(index) < off), 0.2)
        return replace(
            self,
            unit_s=self.unit_s * (1.0 + share * index),
            power_w=self.power_w + share * (window.power_w - self.power_w),
        )


def measured_base(spec: GpuSpec) -> Procedure[Base | None]:
    """Find the length of windows and measure the default; None where nothing shows how fast the program is."""
    length_s = yield from _steady_length_s()
    yield _order(DRIVER_DEFAULT, length_s, why="warm-up")
    base: Base | None = None
    for _ in range(_BASE_WINDOWS):
        window = yield _order(DRIVER_DEFAULT, length_s, why="the base")
        unit_s = _unit_s(window, spec)
        if unit_s is None:
            # Without counters a step time may need the longest window.
            length_s = _LONGEST_S
        elif base is None:
            base = Base(spec, length_s, unit_s, window.power_w, window)
        else:
            agrees = abs(base.index(window) or 0.0) <= _BASE_AGREES
            base = replace(base.refreshed(window), length_s=length_s)
            if agrees:
                break
    return base


def _order(setting: Setting, seconds: float, *, why: str, settle_s: float = _SETTLE_S) -> Order:
    return ordered(setting, Purpose.REFERENCE, seconds, settle_s=settle_s, why=why)


def _unit_s(window: Window, spec: GpuSpec) -> float | None:
    rate = work_rate(window, spec)
    return window.step_time_s if rate is None else 1.0 / rate


def _steady_length_s() -> Procedure[float]:
    """Find the window length at which the utilisation of two windows in a row agrees."""
    length_s = _STEP_S
    before = yield _order(DRIVER_DEFAULT, length_s, why="find the window length")
    while length_s < _LONGEST_S:
        after = yield _order(DRIVER_DEFAULT, length_s, why="find the window length")
        if before.sm_util is None or after.sm_util is None:
            return length_s
        difference = abs(after.sm_util - before.sm_util)
        if difference <= max(_UNEVEN * max(before.sm_util, after.sm_util), _UNEVEN_POINTS):
            return length_s
        before, length_s = after, length_s + _STEP_S
    return length_s


_REFRESH_STEPS = 5
_FREE_MEMORY, _MEMORY_SETTLE_S, _MEMORY_TRIES = 0.20, 3.0, 2
_BUSY = 0.95
_STARTS = ((0.60, 0.65), (0.90, 0.70))
"""(limits, share): with a lower memory clock that used less than this share of the limit, the first point."""
_START, _LATER_START = 0.95, 0.90
_MARGIN = 0.001
_PHASE, _PHASE_WINDOWS, _LONGEST_SLEEP = 0.10, 5, 8


@dataclass(frozen=True, slots=True)
class MfGpoeoPolicy(PublishedPolicy):
    """MF-GPOEO at a slowdown limit."""

    slowdown: float = 0.05

    name: ClassVar[str] = "mf-gpoeo"

    @classmethod
    def of(cls, objective: Objective) -> MfGpoeoPolicy:
        """Make the policy for an objective."""
        return cls(slowdown=slowdown_of(cls.name, objective))

    def _tune(self, spec: GpuSpec) -> Procedure[None]:
        if not spec.sm_clocks_mhz:
            yield from forever(DRIVER_DEFAULT, why="the core clock cannot be set")
        while True:
            base = yield from measured_base(spec)
            if base is None:
                yield from forever(DRIVER_DEFAULT, why="neither counters nor a period show how fast the program is")
                return
            limit = max(self.slowdown - _MARGIN, 0.0)
            mem_mhz, index = yield from _memory(base, spec, limit)
            point = yield from _controlled(base, spec, limit=limit, mem_mhz=mem_mhz, index=index)
            setting = Setting(_clocks(spec, mem_mhz)[point], mem_mhz)
            yield from _watched(setting, base.length_s, spec)


def _memory(base: Base, spec: GpuSpec, limit: float) -> Procedure[tuple[int | None, float]]:
    """Choose the memory clock, lower where a program hardly uses its memory, and return it with its index."""
    if base.first.mem_util is None or base.first.mem_util > _FREE_MEMORY or not spec.can_lock_mem:
        return None, 0.0
    sm_mhz = spec.sm_clocks_mhz[_share(_START, len(spec.sm_clocks_mhz))]
    found: tuple[int | None, float] = (None, 0.0)
    least = inf
    for mem_mhz in _lower(spec, sm_mhz)[:_MEMORY_TRIES]:
        setting = Setting(sm_mhz, mem_mhz)
        window = yield _order(setting, base.length_s, why="a lower memory clock", settle_s=_MEMORY_SETTLE_S)
        index = base.index(window)
        if index is None or index > limit:
            break
        value = base.objective(window, index)
        if value > least:
            break
        found, least = (mem_mhz, index), value
    return found


def _lower(spec: GpuSpec, sm_mhz: int) -> tuple[int, ...]:
    """Return the memory clocks clearly below the highest that allow this core clock, highest first."""
    top_mhz = spec.mem_clocks_mhz[0] if spec.mem_clocks_mhz else 0
    return tuple(
        table.mem_mhz
        for table in spec.clocks
        if table.mem_mhz is not None and table.mem_mhz < 0.9 * top_mhz and sm_mhz in table.sm_mhz
    )


def _clocks(spec: GpuSpec, mem_mhz: int | None) -> tuple[int, ...]:
    tables = [table for table in spec.clocks if table.mem_mhz == mem_mhz]
    return tables[0].sm_mhz if tables else spec.sm_clocks_mhz


def _share(share: float, points: int) -> int:
    return min(round(share * points), points - 1)


def _start(base: Base, clocks: tuple[int, ...], *, limit: float, mem_mhz: int | None, index: float) -> int:
    """Return the first point: near the top, lower where a low memory clock showed that the core hardly matters."""
    share = _START
    if mem_mhz is not None and (base.first.sm_util is None or base.first.sm_util < _BUSY):
        share = next((share for limits, share in _STARTS if index < limits * limit), _LATER_START)
    start = _share(share, len(clocks))
    usual_mhz = base.first.sm_mhz
    if usual_mhz is None:
        return start
    return min(start, min(range(len(clocks)), key=lambda point: abs(clocks[point] - usual_mhz)))


def _controlled(base: Base, spec: GpuSpec, *, limit: float, mem_mhz: int | None, index: float) -> Procedure[int]:
    """Run the controller until it stops, and return its last point."""
    clocks = _clocks(spec, mem_mhz)
    first = _start(base, clocks, limit=limit, mem_mhz=mem_mhz, index=index)
    if limit <= 0 or len(clocks) < 2:
        return first
    control = Control(limit=limit, points=len(clocks), point=first)
    seconds = 0.0
    while True:
        window = yield _order(Setting(clocks[control.point], mem_mhz), base.length_s, why="the controller's clock")
        seconds += window.total.time_s
        slower = base.index(window)
        if slower is None:
            return first
        reached = window.sm_mhz is None or clocks[control.point] - window.sm_mhz <= 0.5
        control = control.after(slower, base.objective(window, slower), reached=reached)
        stop = stopping_point(control, seconds, low_memory=mem_mhz is not None)
        if stop is not None:
            return stop
        if len(control.steps) % _REFRESH_STEPS == 0:
            base = base.refreshed((yield _order(DRIVER_DEFAULT, base.length_s, why="the base, again")))


def _watched(setting: Setting, length_s: float, spec: GpuSpec) -> Procedure[None]:
    """Hold a setting until the program changes."""
    first: tuple[float, ...] | None = None
    shifts: list[bool] = []
    sleep = 1.0
    while True:
        window = yield holding(setting, seconds=length_s * sleep, why="found; the phase is watched")
        signature = _signature(window, spec)
        if first is None:
            first = signature
            continue
        shifts = [*shifts, _distance(first, signature) > _PHASE][-_PHASE_WINDOWS:]
        if len(shifts) == _PHASE_WINDOWS and sum(shifts) > _PHASE_WINDOWS / 2:
            return
        sleep = 1.0 if shifts[-1] else min(2 * sleep, _LONGEST_SLEEP)


def _signature(window: Window, spec: GpuSpec) -> tuple[float, ...]:
    """Return power, clocks and utilisation, each relative to its maximum."""
    limit_w = spec.power_limits.default_w if spec.power_limits else max(window.power_w, 1.0)
    core = (window.sm_mhz or 0.0) / spec.sm_clocks_mhz[-1]
    top_mhz = spec.mem_clocks_mhz[0] if spec.mem_clocks_mhz else 1
    memory = (window.setting.mem_mhz or top_mhz) / top_mhz
    return (window.power_w / limit_w, core, memory, window.sm_util or 0.0, window.mem_util or 0.0)


def _distance(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    both = sum(first) + sum(second)
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / both if both > 0 else 0.0
