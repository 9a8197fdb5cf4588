"""Find the period of a program in its power: its step, micro-steps inside it, and cycles of steps around it.

`find_period` gives one of three answers. *periodic*: a period with its error, and all cycles that were found.
*not_observable*: this sensor cannot follow what the GPU does. *aperiodic*: the sensor follows what the GPU does, and it
does not repeat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt

import numpy as np

from wattune.core.gpu_spec import Sensors
from wattune.signals.active import active_part
from wattune.signals.comb import refined_period
from wattune.signals.grid import Grid, even_grid, stalls
from wattune.signals.in_phase import move_together, phase_evidence
from wattune.signals.observability import (
    MORE_POINTS,
    POINT,
    SensorEvidence,
    is_followed,
    is_real_period,
)
from wattune.signals.pauses import Pauses, explained_share, find_pauses, is_real_pause
from wattune.signals.period_candidates import PeriodCandidate, find_periods
from wattune.signals.samples import Flags, PowerSamples, SensorUpdates, find_updates
from wattune.signals.utilisation import utilisation_updates
from wattune.signals.varying import VaryingSteps, varying_steps

LEAST_SAMPLES = 24
"""Fewer cannot show a period."""
# A period needs three full cycles.
_LEAST_CYCLES = 3.0
# Excursions beyond these quantiles count no more than the quantiles: spikes, short stalls.
_CLIP = 0.1
# The share of a program's beginning that is left out where the whole of it shows no period.
_START = 0.4
# Standard deviations of a second's mean power by which a beginning differs.
_OTHER = 2.0
# Averaged over this time, training draws constant power, unless its steps are longer.
_SMOOTH_S = 1.0
# Points in which steps are searched for, at most: three minutes of a quick sensor, a quarter of an hour of a slow one.
_MOST_POINTS = 1 << 14
# Steps that vary by more than this share are uneven; where each of them shows, their mean is this near to the period.
_UNEVEN, _SAME_MEAN = 0.05, 0.03
# The least error of a period, as a share of that of the mean of steps that vary.
_LEAST_ERROR = 0.2
# Shares of the variance by which steps of varying length explain more than the lines of even ones.
_MUCH_MORE = 0.1
# A cycle of steps is at least this many steps long.
_LEAST_STEPS = 3.0
# A single step that takes longer than this is rarer than a cycle whose steps the sensor does not show.
_LONG_STEP_S = 10.0


class Verdict(StrEnum):
    """The answer for a trace."""

    PERIODIC = "periodic"
    APERIODIC = "aperiodic"
    NOT_OBSERVABLE = "not_observable"


class CycleKind(StrEnum):
    """The level of a cycle."""

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
    """Share of the variance of power that it explains, 0 to 1, without stalls unless it is a cycle of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodAnswer:
    """The verdict on a trace, and the cycles in it."""

    verdict: Verdict
    period_s: float | None = None
    """Period of a step; where no step is visible, of the shortest cycle that is."""
    error_s: float | None = None
    """Half-width of the 95 % interval; the clock of the samples is assumed to be exact."""
    cycles: tuple[PeriodCycle, ...] = ()
    """All cycles that are not aliases of something faster, the shortest first."""
    refresh_s: float | None = None
    """Time between two updates of the sensor; no period shorter than two of them is visible."""
    stalled: float = 0.0
    """Share of the busy interval in which the program did something else than its steps."""
    reason: str = ""
    spread: float | None = None
    """Standard deviation of a step's length over its mean, where the length varies; `period_s` is the mean then."""


def find_period(
    samples: PowerSamples, *, sensor: Sensors | None = None, others: tuple[PowerSamples, ...] = ()
) -> PeriodAnswer:
    """Find the period of the samples.

    `sensor` gives the refresh time of power where that is known, `others` are the samples of the job's other GPUs.
    """
    samples = samples.in_order()
    if len(samples) < LEAST_SAMPLES:
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")
    active = active_part(samples)
    answer = _found(active, sensor, others)
    begins = active.time_s[0] - samples.time_s[0] > _SMOOTH_S
    later = active.since(float(active.time_s[0]) + _START * active.duration_s)
    if answer.period_s is None and len(later) >= LEAST_SAMPLES and (begins or _differs(active, later)):
        # The first steps of a program load, compile and try out algorithms.
        again = _found(later, sensor, others)
        return answer if again.period_s is None else again
    return answer


def _differs(active: PowerSamples, later: PowerSamples) -> bool:
    """Return whether the mean power of the beginning is far from those of all seconds later."""
    second = ((later.time_s - later.time_s[0]) / _SMOOTH_S).astype(np.int64)
    means_w = np.bincount(second, weights=later.power_w) / np.maximum(np.bincount(second), 1)
    known_w = means_w[np.bincount(second) > 0]
    first_w = active.power_w[: len(active) - len(later)]
    off_w = abs(float(first_w.mean()) - float(known_w.mean())) if len(first_w) else 0.0
    return off_w > _OTHER * float(known_w.std())


def _found(samples: PowerSamples, sensor: Sensors | None, others: tuple[PowerSamples, ...]) -> PeriodAnswer:
    """Find the period of samples of a program that is active."""
    if len(samples) < LEAST_SAMPLES or samples.duration_s <= 0:
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, reason="too few samples")
    power = find_updates(samples.time_s, samples.power_w, refresh_s=sensor.power_period_s if sensor else None)
    if len(power.time_s) < LEAST_SAMPLES:
        return PeriodAnswer(
            verdict=Verdict.NOT_OBSERVABLE, refresh_s=power.refresh_s, reason="the power sensor hardly ever refreshed"
        )
    pauses = find_pauses(power)
    if pauses is not None and not is_real_pause(pauses, power, samples):
        pauses = None
    evidence = SensorEvidence(samples, power, even_grid(power), utilisation_updates(samples), others, pauses)
    repeats = _repeats(evidence.grid, pauses)
    cycles: list[PeriodCycle] = []
    least_points = POINT
    for part, grid in ((repeats.inner, repeats.steady), (repeats.outer, repeats.grid)):
        for own in part:
            if is_real_period(evidence, grid, period_s=own.period_s, least_points=least_points):
                cycles.append(own)
            elif not cycles:
                least_points = MORE_POINTS
    found = _named(tuple(cycles)) if pauses is None else _around_pauses(tuple(cycles), pauses, power)
    work = power if pauses is None else power.where(~pauses.cover(power.time_s))
    steps = varying_steps(work, others)
    if steps is not None and all(own.kind is CycleKind.CYCLE for own in found):
        varying = _of_varying_length(evidence, work, steps, found)
        if varying is not None and (varying.period_s is not None or not found):
            return varying
    elif steps is not None and _is_instead_of_lines(evidence, steps, found):
        return _with_mean(evidence, work, steps, tuple(own for own in found if own.kind is CycleKind.CYCLE))
    if not found:
        return _beat(evidence) if repeats.inner or repeats.outer else _without_period(evidence)
    return _with_spread(_answer(evidence, found, stalled=float(repeats.hidden.mean())), steps)


def _around_pauses(cycles: tuple[PeriodCycle, ...], pauses: Pauses, power: SensorUpdates) -> tuple[PeriodCycle, ...]:
    """Return the steps between pauses, and the cycle of pauses."""
    inside = tuple(own for own in cycles if _LEAST_STEPS * own.period_s < pauses.cycle_s)
    strength = explained_share(pauses, power)
    cycle = PeriodCycle(kind=CycleKind.CYCLE, period_s=pauses.cycle_s, error_s=pauses.error_s, strength=strength)
    return (*inside, cycle)


def _answer(evidence: SensorEvidence, cycles: tuple[PeriodCycle, ...], *, stalled: float) -> PeriodAnswer:
    step = next((own for own in reversed(cycles) if own.kind is not CycleKind.CYCLE), cycles[0])
    return PeriodAnswer(
        verdict=Verdict.PERIODIC,
        period_s=step.period_s,
        error_s=step.error_s,
        cycles=cycles,
        refresh_s=evidence.power.refresh_s,
        stalled=stalled,
        reason="" if step.kind is not CycleKind.CYCLE else "steps cannot be seen, only a cycle of many",
    )


def _named(cycles: tuple[PeriodCycle, ...]) -> tuple[PeriodCycle, ...]:
    """Call the only level a step if it is as short as one, and a cycle of steps if it is longer."""
    if len(cycles) != 1:
        return cycles
    kind = CycleKind.STEP if cycles[0].period_s <= _LONG_STEP_S else CycleKind.CYCLE
    return (replace(cycles[0], kind=kind),)


def _with_spread(answer: PeriodAnswer, steps: VaryingSteps | None) -> PeriodAnswer:
    """Add how much steps vary in length, where each of them shows."""
    step = next((own for own in answer.cycles if own.period_s == answer.period_s), None)
    if steps is None or step is None or step.kind is CycleKind.CYCLE or not _vary(steps, step):
        return answer
    same = abs(steps.mean_s / step.period_s - 1) < max(_SAME_MEAN, steps.spread / 4)
    return replace(answer, spread=steps.spread) if same else answer


def _vary(steps: VaryingSteps, even: PeriodCycle) -> bool:
    """Return whether the length of steps varies: even steps are known much better than the mean of varying ones.

    The rises of even steps vary too, by when the sensor refreshes.
    """
    return steps.is_clear and steps.spread >= _UNEVEN and even.error_s >= _LEAST_ERROR * steps.error_s


def _beat(evidence: SensorEvidence) -> PeriodAnswer:
    reason = "what seems to repeat may be a beat of something faster with the sensor's refresh"
    return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=evidence.power.refresh_s, reason=reason)


def _of_varying_length(
    evidence: SensorEvidence,
    power: SensorUpdates,
    steps: VaryingSteps,
    around: tuple[PeriodCycle, ...],
) -> PeriodAnswer | None:
    """Answer with the mean of steps whose length varies and the cycles around them; None without a sign of steps.

    `power` is that outside pauses.
    """
    # Even steps have lines, which were not found, or not taken for real.
    if steps.spread < _UNEVEN or not steps.is_sign:
        return None
    if steps.is_clear and _is_confirmed(evidence, steps):
        return _with_mean(evidence, power, steps, around)
    reason = "power rises and falls as in steps of varying length, which this sensor does not show clearly"
    return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=power.refresh_s, reason=reason)


def _is_instead_of_lines(evidence: SensorEvidence, steps: VaryingSteps, cycles: tuple[PeriodCycle, ...]) -> bool:
    """Return whether steps of varying length explain much more than the lines of even ones.

    Lines of steps that vary lie at their most common length, and at half of it where the halves look alike.
    """
    even = max((own for own in cycles if own.kind is not CycleKind.CYCLE), key=lambda own: own.strength)
    explains_more = steps.shape > even.strength + _MUCH_MORE
    return explains_more and _vary(steps, even) and _is_confirmed(evidence, steps)


def _with_mean(
    evidence: SensorEvidence, power: SensorUpdates, steps: VaryingSteps, around: tuple[PeriodCycle, ...]
) -> PeriodAnswer:
    step = PeriodCycle(
        kind=CycleKind.STEP, period_s=steps.mean_s, error_s=steps.error_s, strength=min(steps.explain(power), 1.0)
    )
    return replace(_answer(evidence, (step, *around), stalled=0.0), spread=steps.spread)


def _is_confirmed(evidence: SensorEvidence, steps: VaryingSteps) -> bool:
    """Return whether other GPUs take the steps at the same time, or utilisation follows them."""
    if phase_evidence(evidence.grid, evidence.others, steps.mean_s).is_real:
        return True
    return any(_moves(steps, own) for own in evidence.utilisations)


def _moves(steps: VaryingSteps, utilisation: SensorUpdates) -> bool:
    """Return whether utilisation moves with the steps by more than it is rounded."""
    share = steps.explain(utilisation, late_s=utilisation.refresh_s / 2)
    return sqrt(2 * share * float(utilisation.value.var())) > POINT


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Repeats:
    """Apparent periods: steps in the steady part of a signal, cycles of steps in all of it."""

    grid: Grid
    steady: Grid
    hidden: Flags
    inner: tuple[PeriodCycle, ...]
    outer: tuple[PeriodCycle, ...] = ()

    def without(self, hidden: Flags) -> _Repeats:
        """Return the same steps, refined outside other stalls."""
        steady = _steady(self.grid, hidden)
        exact = (refined_period(steady, own.period_s) for own in self.inner)
        inner = (
            replace(own, period_s=one.period_s, error_s=one.error_s) for own, one in zip(self.inner, exact, strict=True)
        )
        return replace(self, steady=steady, hidden=hidden, inner=tuple(inner))


def _repeats(whole: Grid, pauses: Pauses | None) -> _Repeats:
    # Thousands of steps are known no better than hundreds; cycles of them need the whole.
    grid = whole.middle(_MOST_POINTS)
    hidden = stalls(grid, smooth_s=_SMOOTH_S) if pauses is None else pauses.cover(grid.time_s)
    repeats = _steps(grid, hidden)
    if repeats.inner:
        # A mean over whole steps shows stalls between steps of any length.
        step_s = repeats.inner[-1].period_s
        also = stalls(grid, smooth_s=max(round(_SMOOTH_S / step_s), 1) * step_s)
        repeats = min(repeats, repeats.without(also), key=lambda one: one.inner[-1].error_s)
    outer = _outer(whole, repeats.inner[-1].period_s if repeats.inner else None)
    if not repeats.inner and outer and outer[0].period_s <= _LONG_STEP_S:
        return replace(repeats, inner=(replace(outer[0], kind=CycleKind.STEP),))
    return replace(repeats, grid=whole, outer=outer)


def _steps(grid: Grid, hidden: Flags) -> _Repeats:
    """Find apparent steps outside stalls."""
    steady = _steady(grid, hidden)
    return _Repeats(grid=grid, steady=steady, hidden=hidden, inner=_inner(steady))


def _steady(grid: Grid, hidden: Flags) -> Grid:
    return (grid.masked(hidden) if hidden.any() else grid).clipped(share=_CLIP)


def _inner(steady: Grid) -> tuple[PeriodCycle, ...]:
    """Find the step, and the micro-step where there is one, the shorter first."""
    found = find_periods(steady, shortest_s=2 * steady.refresh_s, longest_s=_longest_s(steady))
    kinds = (CycleKind.MICRO_STEP, CycleKind.STEP)[-len(found) :] if found else ()
    return tuple(_cycle(steady, level, kind) for level, kind in zip(found, kinds, strict=True))


def _outer(grid: Grid, step_s: float | None) -> tuple[PeriodCycle, ...]:
    """Find the cycle of steps in the mean power of intervals as long as a step."""
    coarse = grid if step_s is None else grid.averaged(step_s)
    if len(coarse.value) < LEAST_SAMPLES:
        return ()
    shortest_s = 2 * grid.refresh_s if step_s is None else _LEAST_STEPS * step_s
    found = find_periods(coarse, shortest_s=shortest_s, longest_s=_longest_s(coarse))
    return tuple(_cycle(coarse, level, CycleKind.CYCLE) for level in found[:1])


def _longest_s(grid: Grid) -> float:
    return grid.duration_s / _LEAST_CYCLES


def _cycle(grid: Grid, level: PeriodCandidate, kind: CycleKind) -> PeriodCycle:
    exact = refined_period(grid, level.period_s)
    return PeriodCycle(
        kind=kind, period_s=exact.period_s, error_s=exact.error_s, strength=min(max(level.explained, 0.0), 1.0)
    )


def _without_period(evidence: SensorEvidence) -> PeriodAnswer:
    refresh_s = evidence.power.refresh_s
    if move_together(evidence.grid, evidence.others):
        reason = "the GPUs rise and fall together, as in steps, but this sensor does not show a length of them"
        return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=refresh_s, reason=reason)
    if is_followed(evidence):
        reason = "the power varies slowly enough for the sensor, and does not repeat"
        return PeriodAnswer(verdict=Verdict.APERIODIC, refresh_s=refresh_s, reason=reason)
    reason = "the power is steady, or varies faster than the sensor can follow"
    return PeriodAnswer(verdict=Verdict.NOT_OBSERVABLE, refresh_s=refresh_s, reason=reason)
