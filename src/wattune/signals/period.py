"""What repeats in the power of a program, seen from outside: its step, what is inside it, and what is around it.

`find_period` gives one of three answers. *periodic*: a period with its error, and every level of repetition that was
seen. *not_observable*: the GPU does something, but nothing that this sensor could follow. *aperiodic*: the sensor
follows what the GPU does, and it does not repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from wattune.core.gpu_spec import Sensors
from wattune.signals.grid import Grid, even_grid, stalls
from wattune.signals.held import fresh
from wattune.signals.levels import PeriodLevel, levels
from wattune.signals.observability import MORE_POINTS, POINT, SensorEvidence, idles_unseen, is_believable, is_slow
from wattune.signals.phase import sharpened
from wattune.signals.samples import Flags, PowerSamples, Work, done
from wattune.signals.witness import utilisations

LEAST_SAMPLES = 24
"""Fewer say nothing of anything that repeats."""
# A period is believed from three full cycles on.
_LEAST_CYCLES = 3.0
# Excursions beyond these quantiles count no more than the quantiles: spikes, short stalls.
_CLIP = 0.1
# Over this long a program that trains draws much the same all the time, unless its steps are longer.
_SMOOTH_S = 1.0
# Two looks at a step agree within this.
_SAME = 0.05
# Whole cycles of steps, where they are seen, are this much longer than a step at least.
_LEAST_STEPS = 3.0
# A single step that takes longer than this is rarer than a cycle whose steps the sensor does not show.
_LONG_STEP_S = 10.0


class Verdict(StrEnum):
    """What can be said of a trace."""

    PERIODIC = "periodic"
    APERIODIC = "aperiodic"
    NOT_OBSERVABLE = "not_observable"


class CycleKind(StrEnum):
    """Where a cycle stands among those that were seen."""

    MICRO_STEP = "micro-step"
    STEP = "step"
    CYCLE = "cycle"
    """Steps and what comes between them: a checkpoint, an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodCycle:
    """One level of repetition."""

    kind: CycleKind
    period_s: float
    error_s: float
    """Half-width of the 95 % interval."""
    strength: float
    """Share of the variance of power that repeats with it, 0 to 1, stalls left out unless it is a cycle of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAnswer:
    """What repeats, as far as the samples show it."""

    verdict: Verdict
    period_s: float | None = None
    """Of a step; where no step can be seen, of the shortest cycle that can."""
    error_s: float | None = None
    """Half-width of the 95 % interval; the clock that stamped the samples is taken as right."""
    cycles: tuple[PeriodCycle, ...] = ()
    """Every level that is no beat of something faster with the sensor's refresh, the shortest first."""
    refresh_s: float | None = None
    """Time between two new values of the sensor; nothing shorter than two of them can be seen."""
    stalled: float = 0.0
    """Share of the busy stretch in which the program did something else than its steps."""
    reason: str = ""


def find_period(samples: PowerSamples, *, sensor: Sensors | None = None) -> PeriodAnswer:
    """What repeats in the samples; `sensor` tells how power is measured where that is known."""
    return done(finding(samples, sensor=sensor))


def finding(samples: PowerSamples, *, sensor: Sensors | None = None) -> Work[PeriodAnswer]:
    """What repeats in the samples, found bit by bit."""
    samples = samples.in_order()
    if len(samples) < LEAST_SAMPLES or samples.duration_s <= 0:
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")
    yield
    power = fresh(samples.time_s, samples.power_w, refresh_s=sensor.power_period_s if sensor else None)
    if len(power.time_s) < LEAST_SAMPLES:
        return PeriodAnswer(
            verdict=Verdict.NOT_OBSERVABLE, refresh_s=power.refresh_s, reason="the power sensor hardly ever refreshed"
        )
    yield
    told = SensorEvidence(samples, power, even_grid(power), (yield from utilisations(samples)))
    seen = yield from _seen(told.grid)
    if not (seen.inner or seen.outer):
        return _without_period(told)
    cycles: list[PeriodCycle] = []
    least_points = POINT
    for part, grid in ((seen.inner, seen.steady), (seen.outer, seen.grid)):
        for own in part:
            if (yield from is_believable(told, grid, period_s=own.period_s, least_points=least_points)):
                cycles.append(own)
            elif not cycles:
                least_points = MORE_POINTS
    return _answer(told, tuple(cycles), stalled=float(seen.hidden.mean()))


def _answer(told: SensorEvidence, cycles: tuple[PeriodCycle, ...], *, stalled: float) -> PeriodAnswer:
    if not cycles:
        reason = "what seems to repeat may be a beat of something faster with the sensor's refresh"
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=told.power.refresh_s, reason=reason)
    step = next((own for own in reversed(cycles) if own.kind is not CycleKind.CYCLE), cycles[0])
    return PeriodAnswer(
        verdict=Verdict.PERIODIC,
        period_s=step.period_s,
        error_s=step.error_s,
        cycles=cycles,
        refresh_s=told.power.refresh_s,
        stalled=stalled,
        reason="" if step.kind is not CycleKind.CYCLE else "steps cannot be seen, only a cycle of many",
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Seen:
    """What seems to repeat: steps in the steady part of a signal, cycles of steps in all of it."""

    grid: Grid
    steady: Grid
    hidden: Flags
    inner: tuple[PeriodCycle, ...]
    outer: tuple[PeriodCycle, ...] = ()


def _seen(grid: Grid) -> Work[_Seen]:
    seen = yield from _steps(grid, _SMOOTH_S)
    if seen.inner:
        # A mean over whole steps shows stalls between steps of any length.
        step_s = seen.inner[-1].period_s
        again = yield from _steps(grid, max(round(_SMOOTH_S / step_s), 1) * step_s)
        if again.inner and abs(again.inner[-1].period_s / step_s - 1) < _SAME:
            seen = min(seen, again, key=lambda look: look.inner[-1].error_s)
    outer = yield from _outer(grid, seen.inner[-1].period_s if seen.inner else None)
    if not seen.inner and outer and outer[0].period_s <= _LONG_STEP_S:
        return replace(seen, inner=(replace(outer[0], kind=CycleKind.STEP),))
    return replace(seen, outer=outer)


def _steps(grid: Grid, smooth_s: float) -> Work[_Seen]:
    """What seems to be steps where there are no stalls, as a running mean over `smooth_s` shows these."""
    yield
    hidden = stalls(grid, smooth_s=smooth_s)
    steady = (grid.masked(hidden) if hidden.any() else grid).clipped(share=_CLIP)
    inner = yield from _inner(steady)
    return _Seen(grid=grid, steady=steady, hidden=hidden, inner=inner)


def _inner(steady: Grid) -> Work[tuple[PeriodCycle, ...]]:
    """The step, and the micro-step where one was seen, the shorter first."""
    found = yield from levels(steady, shortest_s=2 * steady.refresh_s, longest_s=_longest_s(steady))
    kinds = (CycleKind.MICRO_STEP, CycleKind.STEP)[-len(found) :] if found else ()
    return tuple(_cycle(steady, level, kind) for level, kind in zip(found, kinds, strict=True))


def _outer(grid: Grid, step_s: float | None) -> Work[tuple[PeriodCycle, ...]]:
    """The cycle around the steps, where it is seen in what a step's length of time draws on average."""
    yield
    coarse = grid if step_s is None else grid.averaged(step_s)
    if len(coarse.value) < LEAST_SAMPLES:
        return ()
    shortest_s = 2 * grid.refresh_s if step_s is None else _LEAST_STEPS * step_s
    found = yield from levels(coarse, shortest_s=shortest_s, longest_s=_longest_s(coarse))
    return tuple(_cycle(coarse, level, CycleKind.CYCLE) for level in found[:1])


def _longest_s(grid: Grid) -> float:
    return grid.duration_s / _LEAST_CYCLES


def _cycle(grid: Grid, level: PeriodLevel, kind: CycleKind) -> PeriodCycle:
    exact = sharpened(grid, level.period_s)
    return PeriodCycle(
        kind=kind, period_s=exact.period_s, error_s=exact.error_s, strength=min(max(level.explained, 0.0), 1.0)
    )


def _without_period(told: SensorEvidence) -> PeriodAnswer:
    refresh_s = told.power.refresh_s
    if is_slow(told) and not idles_unseen(told):
        reason = "the power varies slowly enough for the sensor, and does not repeat"
        return PeriodAnswer(verdict=Verdict.APERIODIC, refresh_s=refresh_s, reason=reason)
    reason = "the power is steady, or varies faster than the sensor can follow"
    return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=refresh_s, reason=reason)
