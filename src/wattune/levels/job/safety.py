"""What a job can afford to lose: the budget of a trial, known before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from wattune.core.job import JobRun, Outcome
from wattune.core.objective import Objective
from wattune.levels.job.posterior import JobPosterior

SHARE, SAFE_SHARE = 0.05, 0.03
"""Share that may be spent beyond the default, and the same where a policy must stay safe: less than 5 %, since trials
may cost more than expected."""

_CARRIED_SHARE, _CARRIED_MOST = 0.05, 1.0
"""After a change of the job: what earlier recurrences add to the budget, in default runs, each and in total."""

_TRIAL_OUT = 1.3
"""Assumed cost of a trial that has not ended, in runs of the best size."""


def budget(
    runs: Iterable[JobRun],
    *,
    objective: Objective,
    interval: dict[str, int],
    default_cost: float,
    best_cost: float,
    usual_cost: Mapping[int, float],
    recurrence: int | None = None,
    share: float = SHARE,
) -> float:
    """Return how much more than a run at the best size the next run may cost.

    Runs are those on one GPU model. A run that has not ended counts with what it has spent, and at least as a best one;
    one that reached the target with the `usual_cost` of its size, so that chance does not count as savings; a trial
    with what it cost, if that was more.
    """
    spent = 0.0
    recurrences: set[int] = set()
    earlier: set[int] = set()
    for run in runs:
        if interval.get(run.id, 0):
            earlier.add(run.recurrence)
            continue
        recurrences.add(run.recurrence)
        spent += _counted(run, objective, best_cost, usual_cost)
    due = (1.0 + share) * default_cost * (len(recurrences) + (recurrence not in recurrences))
    carried = min(_CARRIED_SHARE * len(earlier - recurrences), _CARRIED_MOST) * default_cost
    return due + carried - spent - best_cost


def _counted(run: JobRun, objective: Objective, best_cost: float, usual_cost: Mapping[int, float]) -> float:
    spent = 0.0 if run.cost is None else objective.value(run.cost)
    if run.outcome is Outcome.REACHED:
        usual = usual_cost[run.batch_size]
        return max(spent, usual) if run.exploring else usual
    if run.outcome is not Outcome.RUNNING:
        return spent
    return max(spent, best_cost * (_TRIAL_OUT if run.exploring else 1.0))


def affordable_loss(known: JobPosterior, runs: Iterable[JobRun], *, safe: bool, recurrence: int | None = None) -> float:
    """Return what a trial may spend in vain, so that the job stays within its budget with a run that replaces it.

    `runs` are all but the trial; `recurrence` is the trial's, a new one where it is None. The budget of a `safe` policy
    is smaller.
    """
    return budget(
        [run for run in runs if run.gpu.key == known.gpu.key and run.batch_size in known.sizes],
        objective=known.job.objective_on(known.gpu.max_power_w),
        interval=known.epochs.interval,
        default_cost=known.default_cost,
        best_cost=float(known.expected_cost[known.best]),
        usual_cost=dict(zip(known.sizes, np.exp(known.log_cost.mean).tolist(), strict=True)),
        recurrence=recurrence,
        share=SAFE_SHARE if safe else SHARE,
    )
