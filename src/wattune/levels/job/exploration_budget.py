"""How much a trial may cost: savings earned so far, and a few percent of what the owner would have paid by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wattune.core.job import JobRun, Outcome
from wattune.core.objective import Objective

SHARE = 0.035
"""How much worse off than with the default the owner may ever be; 5 % is promised, trials end dearer than foreseen."""

_CARRIED_SHARE, _CARRIED_MOST = 0.05, 1.0
"""After a change of the job: what earlier recurrences leave to spend, in default runs each and in all."""

_TRIAL_OUT = 1.3
"""What a trial that is still out may come to, in runs of the best size."""


def budget(
    runs: Iterable[JobRun],
    *,
    objective: Objective,
    stretch: dict[str, int],
    default_cost: float,
    best_cost: float,
    usual_cost: Mapping[int, float],
) -> float:
    """What may be lost on the next run beside one at the best size.

    Runs are those on one part. A run that is still out counts with what it has spent, and at least as a best one; one
    that reached the target with the `usual_cost` of its size, so that luck is not taken for savings; a trial with what
    it cost, if that was more.
    """
    spent = 0.0
    recurrences: set[int] = set()
    earlier: set[int] = set()
    for run in runs:
        if stretch.get(run.id, 0):
            earlier.add(run.recurrence)
            continue
        recurrences.add(run.recurrence)
        spent += _counted(run, objective, best_cost, usual_cost)
    due = (1.0 + SHARE) * default_cost * (len(recurrences) + 1)
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
