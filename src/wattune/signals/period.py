"""What repeats in the power of a program, seen from outside: its step, what is inside it, and what is around it.

`find_period` gives one of three answers. *periodic*: a period with its error, and every level of repetition that was
seen. *not_observable*: the GPU does something, but nothing that this sensor could follow. *aperiodic*: the sensor
follows what the GPU does, and it does not repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wattune.core.gpu_spec import Sensors
from wattune.signals.grid import Grid, even_grid
from wattune.signals.held import Fresh, fresh
from wattune.signals.levels import Level, levels
from wattune.signals.observability import idles_unseen, is_believable, is_slow
from wattune.signals.phase import sharpened
from wattune.signals.samples import PowerSamples
from wattune.signals.stalls import stalls

LEAST_SAMPLES = 24
"""Fewer say nothing of anything that repeats."""
# A period is believed from three full cycles on.
_LEAST_CYCLES = 3.0
# Excursions beyond these quantiles count no more than the quantiles: spikes, short stalls.
_CLIP = 0.1
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
    """Every level, the shortest first."""
    refresh_s: float | None = None
    """Time between two new values of the sensor; nothing shorter than two of them can be seen."""
    stalled: float = 0.0
    """Share of the busy stretch in which the program did something else than its steps."""
    reason: str = ""


def find_period(samples: PowerSamples, *, sensor: Sensors | None = None) -> PeriodAnswer:
    """What repeats in the samples; `sensor` tells how power is measured where that is known."""
    samples = samples.in_order()
    if len(samples) < LEAST_SAMPLES or samples.duration_s <= 0:
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")
    power = fresh(samples.time_s, samples.power_w, refresh_s=sensor.power_period_s if sensor else None)
    if len(power.time_s) < LEAST_SAMPLES:
        return PeriodAnswer(
            verdict=Verdict.NOT_OBSERVABLE, refresh_s=power.refresh_s, reason="the power sensor hardly ever refreshed"
        )
    grid = even_grid(power)
    hidden = stalls(grid)
    steady = (grid.masked(hidden) if hidden.any() else grid).clipped(share=_CLIP)
    cycles = _cycles(grid, steady)
    if not cycles:
        return _without_period(samples, power)
    believed = tuple(
        cycle
        for cycle in cycles
        if _is_believed(samples, power, grid if cycle.kind is CycleKind.CYCLE else steady, cycle)
    )
    if not believed:
        return PeriodAnswer(
            verdict=Verdict.NOT_OBSERVABLE,
            refresh_s=power.refresh_s,
            reason="what seems to repeat may be a beat of something faster with the sensor's refresh",
        )
    cycles = tuple(cycle for cycle in cycles if cycle.period_s >= believed[0].period_s)
    step = next((cycle for cycle in reversed(cycles) if cycle.kind is not CycleKind.CYCLE), cycles[0])
    return PeriodAnswer(
        verdict=Verdict.PERIODIC,
        period_s=step.period_s,
        error_s=step.error_s,
        cycles=cycles,
        refresh_s=power.refresh_s,
        stalled=float(hidden.mean()),
        reason="" if step.kind is not CycleKind.CYCLE else "steps cannot be seen, only a cycle of many",
    )


def _cycles(grid: Grid, steady: Grid) -> tuple[PeriodCycle, ...]:
    """Every level, the shortest first: steps by the steady part of the signal, cycles of steps by all of it."""
    shortest_s = 2 * grid.refresh_s
    found = levels(steady, shortest_s=shortest_s, longest_s=_longest_s(steady))
    inner = tuple(
        _cycle(steady, level, CycleKind.STEP if level is found[-1] else CycleKind.MICRO_STEP) for level in found
    )
    outer = _outer(grid, inner[-1].period_s if inner else None)
    if not inner and outer and outer[0].period_s <= _LONG_STEP_S:
        first = outer[0]
        inner, outer = (_as_step(first),), outer[1:]
    return (*inner, *outer)


def _outer(grid: Grid, step_s: float | None) -> tuple[PeriodCycle, ...]:
    """The cycle around the steps, where it is seen in what a step's length of time draws on average."""
    if step_s is None:
        found = levels(grid, shortest_s=2 * grid.refresh_s, longest_s=_longest_s(grid))[:1]
        return tuple(_cycle(grid, level, CycleKind.CYCLE) for level in found)
    coarse = grid.averaged(step_s)
    if len(coarse.value) < LEAST_SAMPLES:
        return ()
    found = levels(coarse, shortest_s=_LEAST_STEPS * step_s, longest_s=_longest_s(coarse))[:1]
    return tuple(_cycle(coarse, level, CycleKind.CYCLE) for level in found)


def _longest_s(grid: Grid) -> float:
    return grid.duration_s / _LEAST_CYCLES


def _cycle(grid: Grid, level: Level, kind: CycleKind) -> PeriodCycle:
    exact = sharpened(grid, level.period_s)
    return PeriodCycle(
        kind=kind, period_s=exact.period_s, error_s=exact.error_s, strength=min(max(level.explained, 0.0), 1.0)
    )


def _as_step(cycle: PeriodCycle) -> PeriodCycle:
    return PeriodCycle(kind=CycleKind.STEP, period_s=cycle.period_s, error_s=cycle.error_s, strength=cycle.strength)


def _is_believed(samples: PowerSamples, power: Fresh, grid: Grid, cycle: PeriodCycle) -> bool:
    return is_believable(samples, power, grid, period_s=cycle.period_s)


def _without_period(samples: PowerSamples, power: Fresh) -> PeriodAnswer:
    if is_slow(power) and not idles_unseen(samples, power):
        reason = "the power varies slowly enough for the sensor, and does not repeat"
        return PeriodAnswer(verdict=Verdict.APERIODIC, refresh_s=power.refresh_s, reason=reason)
    reason = "the power is steady, or varies faster than the sensor can follow"
    return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=power.refresh_s, reason=reason)
