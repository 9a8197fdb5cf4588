"""The driver's default as an earlier sweep of the same program measured it: what a held setting can be compared with.

Only a sweep on the same GPU of the same machine counts, whose cost is of the same unit: a step that was counted alike,
or a whole run.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from wattune.core.measurement import Measurement, ratio_error
from wattune.core.repeats import merged
from wattune.core.setting import DRIVER_DEFAULT

if TYPE_CHECKING:
    from wattune.store.records import Run
    from wattune.store.sql_store import Store

STEP, RUN = "step", "run"
"""What the cost of a trial belongs to, where a sweep runs a command."""


@dataclass(frozen=True, slots=True)
class SweptDefault:
    """The cost of a step or a run at the driver's default, and the sweep that measured it."""

    cost: Measurement
    per: str
    run_id: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class ComparedCost:
    """By how much a cost differs from that of the driver's default, in percent with 95 % half-widths."""

    time_percent: float
    time_error_percent: float | None
    energy_percent: float
    energy_error_percent: float | None

    @classmethod
    def of(cls, cost: Measurement, default: Measurement) -> ComparedCost:
        time_error = ratio_error(cost.time_s, cost.time_error_s, default.time_s, default.time_error_s)
        energy_error = ratio_error(cost.energy_j, cost.energy_error_j, default.energy_j, default.energy_error_j)
        return cls(
            100 * (cost.time_s / default.time_s - 1),
            None if time_error is None else 100 * time_error,
            100 * (cost.energy_j / default.energy_j - 1),
            None if energy_error is None else 100 * energy_error,
        )


def load_default(store: Store, command: str, *, uuid: str, host: str, counted_by: str | None) -> SweptDefault | None:
    """Return what the latest such sweep measured; `counted_by` is what counted the steps, None for whole runs."""
    for run in store.runs(kind="sweep", name=command):
        if run.name == command and run.host == host and _is_alike(run, uuid, counted_by):
            trials = (record for record in store.run(run.id).trials if record.setting == DRIVER_DEFAULT)
            costs = [one.cost for one in merged(record.trial for record in trials)]
            if costs and costs[0].time_s > 0 and costs[0].energy_j > 0:
                return SweptDefault(costs[0], RUN if counted_by is None else STEP, run.id, run.started_at)
    return None


def _is_alike(run: Run, uuid: str, counted_by: str | None) -> bool:
    details = run.details
    return (
        [gpu.uuid for gpu in run.gpus] == [uuid]
        and details.get("per") == (RUN if counted_by is None else STEP)
        and details.get("counted_by") == counted_by
        and details.get("doubt") is None
    )
