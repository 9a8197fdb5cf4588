"""Zeus by its own simulator: the `zeus` package of its authors, on the same tables."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from wattune.core.measurement import Measurement
from wattune.levels.job.zeus import ZeusSearcher
from wattune.physics.gpu_parts import Floats
from wattune_bench.job.trace import TraceWorkload

if TYPE_CHECKING:
    from zeus._legacy.simulate import HistoryEntry

_WORDS = ("dataset", "network", "optimizer")
_OTHER = ("other", "other", "other")


def installed() -> bool:
    """Return True where the package and its simulator are installed."""
    try:
        return importlib.util.find_spec("zeus._legacy") is not None
    except ModuleNotFoundError:  # no `zeus` at all, or another module of that name
        return False


def simulate(workload: TraceWorkload, *, eta: float, recurrences: int, seed: int) -> tuple[Floats, Floats]:
    """Return seconds and joules of each recurrence, failed runs included."""
    from zeus._legacy.job import Job
    from zeus._legacy.policy import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
    from zeus._legacy.simulate import Simulator

    job = workload.job
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        # It warns of batch sizes that it calls off, and divides by variances of nothing.
        warnings.simplefilter("ignore")
        simulator = Simulator(
            *_frames(workload),
            PruningGTSBatchSizeOptimizer(seed=seed, verbose=False),
            JITPowerLimitOptimizer(verbose=False),
            seed=seed,
            verbose=False,
        )
        played = simulator.simulate_one_job(
            Job(*_WORDS, job.target, job.max_epochs, job.default_batch_size),
            num_recurrence=recurrences,
            beta_knob=ZeusSearcher().beta or np.inf,
            eta_knob=eta,
        )
    return _by_recurrence(played)


def _frames(workload: TraceWorkload) -> tuple[Any, Any]:
    """Return the two tables of one job, as the simulator wants them."""
    import pandas as pd

    power = [
        (*_WORDS, size, limit.power_limit_w, cost.time_s, cost.power_w)
        for size, cells in workload.epochs.items()
        for limit, cost in cells.items()
    ]
    train = [
        (*_WORDS, size, run, workload.job.target, float(epochs) if reached else np.nan)
        for size, trainings in workload.trainings.items()
        for run, (epochs, reached) in enumerate(map(workload.length, trainings))
    ]
    # The simulator weighs time with the highest limit of the whole table, so a job that nobody runs brings that in.
    power.append((*_OTHER, 1, workload.gpu.max_power_w, 1.0, 1.0))
    train.append((*_OTHER, 1, 0, workload.job.target, 1.0))
    first = [*_WORDS, "batch_size"]
    return (
        pd.DataFrame(train, columns=[*first, "run", "target_metric", "target_epoch"]),
        pd.DataFrame(power, columns=[*first, "power_limit", "time_per_epoch", "average_power"]),
    )


def _by_recurrence(played: list[HistoryEntry]) -> tuple[Floats, Floats]:
    bills = [Measurement(0.0, 0.0)]
    for run in played:
        bills[-1] += Measurement(float(run.time), float(run.energy))
        if run.reached:
            bills.append(Measurement(0.0, 0.0))
    return np.array([bill.time_s for bill in bills[:-1]]), np.array([bill.energy_j for bill in bills[:-1]])
