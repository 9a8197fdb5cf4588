"""What the runs of a job saved: their steps, compared with the same work at the default.

The comparison begins at the first step of a run and leaves out its start, the pauses between its steps, and its end:
they are alike with and without tuning. Notation:

    u       cost of a step at the default batch size and setting, from the windows in which runs measured it
    n       steps of a run
    spent   Σ cost of a step as it was, times n, and all that runs cost which had to be replaced
    default Σ u·n for runs at the default batch size; u times the mean n of these for runs at another size

All errors are half-widths of 95 % intervals. That of u and that of the mean n are common to all runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import hypot
from statistics import fmean

from wattune.control.window_totals import mean_error
from wattune.core.job import JobRun, Outcome, StepAccount
from wattune.core.measurement import Measurement
from wattune.levels.job.step_tally import pooled_cost
from wattune.response.clock_doubt import FASTER

EPOCHS_ERROR = 2 * 0.12
"""Of the epochs of the default batch size where one run showed them, as a share."""

_NOT_COUNTED = (Outcome.CRASHED, Outcome.LOST, Outcome.RUNNING)
"""Runs whose fate has nothing to do with their settings, or is not known."""

NO_STEPS = "these runs counted no steps"
NO_DEFAULT = "no run measured a step at the default batch size and setting"


@dataclass(frozen=True, slots=True)
class Share:
    """A share in percent, and the half-width of its 95 % interval."""

    percent: float
    error_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison:
    """The recurrences that can be compared."""

    unit: str
    """step or epoch"""
    recurrences: int
    spent: Measurement
    default: Measurement
    whole: Measurement
    """All that their runs cost, with starts, pauses and ends."""

    @property
    def default_run(self) -> Measurement:
        """The estimated cost of a default run whose start, pauses and end cost what they did."""
        time_s = max(self.whole.time_s - self.spent.time_s, 0.0) + self.default.time_s
        energy_j = max(self.whole.energy_j - self.spent.energy_j, 0.0) + self.default.energy_j
        return Measurement(time_s / self.recurrences, energy_j / self.recurrences)

    def default_run_error(self, value: Callable[[Measurement], float]) -> float:
        """Return the error of a value of that run."""
        return _error(self.default, value) / self.recurrences

    def more(self, value: Callable[[Measurement], float]) -> Share | None:
        """Return how much more of a value was spent than at the default; None where that has none."""
        spent, default = value(self.spent), value(self.default)
        if default <= 0:
            return None
        error = hypot(_error(self.spent, value) / default, spent / default * _error(self.default, value) / default)
        return Share(100 * (spent / default - 1), 100 * error)


def compare(runs: Iterable[JobRun], default_batch_size: int) -> JobComparison | str:
    """Compare the runs of a job on one GPU model with default runs; return the reason where nothing can be compared."""
    runs = tuple(runs)
    based = [run for run in runs if run.batch_size == default_batch_size and _has_default(run.steps)]
    if not based:
        return _reason(runs)
    newest = based[-1].steps
    assert newest is not None
    unit = newest.unit
    measured = [run.steps for run in based if run.steps is not None and run.steps.unit == unit]
    base = pooled_cost([one.default_cost / one.default_count for one in measured if one.default_cost is not None])
    done = [one for one in _recurrences(runs) if one.steps.unit == unit and one.steps.count]
    alike = [one.steps for one in done if one.batch_size == default_batch_size]
    if not alike:
        return "no run at the default batch size that reached the target has counted its steps"
    doubt = _doubt(alike, base)
    if doubt is not None:
        return doubt
    own = [steps.total for steps in alike]
    # What the default takes instead of another batch size depends on the epochs that it needs, which scatter.
    others = (len(done) - len(own)) * fmean(own)
    count = sum(own) + others
    return JobComparison(
        unit=unit,
        recurrences=len(done),
        spent=_total(_whole(one.steps) for one in done) + _total(cost for one in done for cost in one.replaced),
        default=_times(base, count, scatter=others * _scatter(own) / count),
        whole=_total(cost for one in done for cost in (one.cost, *one.replaced)),
    )


def _has_default(steps: StepAccount | None) -> bool:
    return steps is not None and steps.default_cost is not None and steps.why_not is None and steps.count > 0


def _reason(runs: Sequence[JobRun]) -> str:
    why = [run.steps.why_not for run in runs if run.steps is not None and run.steps.why_not is not None]
    if why:
        return why[-1]
    return NO_DEFAULT if any(run.steps is not None and run.steps.count for run in runs) else NO_STEPS


def _doubt(alike: Iterable[StepAccount], base: Measurement) -> str | None:
    """Return why runs at the default batch size did other work than that with which the default was measured."""
    share = min(steps.cost.time_s / steps.count for steps in alike) / base.time_s
    if share + (base.time_error_s or 0.0) / base.time_s >= FASTER:
        return None
    faster = f"{100 * (1 - share):.0f} % faster than when the default was measured"
    return f"the steps of a run were {faster}, and no setting makes a step faster"


@dataclass(frozen=True, slots=True)
class _Recurrence:
    """A recurrence that reached the target: the run that did, and the cost of those that it replaced."""

    batch_size: int
    steps: StepAccount
    cost: Measurement
    replaced: tuple[Measurement, ...]


def by_recurrence(runs: Iterable[JobRun]) -> Iterator[tuple[int, tuple[JobRun, ...]]]:
    """Yield the number of each recurrence and its runs, both oldest first."""
    for number, own in groupby(sorted(runs, key=lambda run: (run.recurrence, run.order)), lambda run: run.recurrence):
        yield number, tuple(own)


def _recurrences(runs: Sequence[JobRun]) -> list[_Recurrence]:
    """Return the recurrences that reached the target, where the steps of that run were counted."""
    found = []
    for _, own in by_recurrence(runs):
        counted = [run for run in own if run.outcome not in _NOT_COUNTED]
        if not counted:
            continue
        last = counted[-1]
        if last.outcome is Outcome.REACHED and last.steps is not None and last.cost is not None:
            replaced = tuple(run.cost for run in counted[:-1] if run.cost is not None)
            found.append(_Recurrence(last.batch_size, last.steps, last.cost, replaced))
    return found


def _whole(steps: StepAccount) -> Measurement:
    """Return the cost of all steps of a run, from those that were measured."""
    more = max(steps.total / steps.count, 1.0)
    return steps.cost / (1.0 / more)


def _times(unit: Measurement, count: float, *, scatter: float) -> Measurement:
    """Return the cost of so many units; `scatter` is the error of their number, as a share."""
    whole = unit / (1.0 / count)
    return Measurement(
        whole.time_s,
        whole.energy_j,
        hypot(whole.time_error_s or 0.0, scatter * whole.time_s),
        hypot(whole.energy_error_j or 0.0, scatter * whole.energy_j),
    )


def _scatter(counts: Sequence[int]) -> float:
    """Return the error of the mean of these counts, as a share."""
    error = mean_error(counts)
    return EPOCHS_ERROR if error is None else max(error / fmean(counts), EPOCHS_ERROR / len(counts))


def _total(costs: Iterable[Measurement]) -> Measurement:
    exact = (
        replace(cost, time_error_s=cost.time_error_s or 0.0, energy_error_j=cost.energy_error_j or 0.0)
        for cost in costs
    )
    return sum(exact, Measurement(0.0, 0.0, 0.0, 0.0))


def _error(cost: Measurement, value: Callable[[Measurement], float]) -> float:
    """Return the error of a value from those of time and energy."""
    by_time = Measurement(cost.time_s + (cost.time_error_s or 0.0), cost.energy_j)
    by_energy = Measurement(cost.time_s, cost.energy_j + (cost.energy_error_j or 0.0))
    return hypot(value(by_time) - value(cost), value(by_energy) - value(cost))
