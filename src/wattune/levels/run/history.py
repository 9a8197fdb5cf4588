"""What is kept of a tuned program: a run of kind `run`, with a trial for each setting that was measured."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from wattune.control.recall import fingerprint, trials_of
from wattune.core.window import Purpose
from wattune.levels.run.policies import slowdown_limit_of
from wattune.levels.run.report import figures_of
from wattune.store.fallback import new_run
from wattune.store.records import FullRun, RunGpu, TrialRecord

if TYPE_CHECKING:
    from wattune.levels.run.session import RunSession

KIND = "run"


def full_run(session: RunSession, *, name: str, started_at: datetime, exit_code: int | None) -> FullRun:
    """The run as the history keeps it."""
    progress, spec, count = session.progress, session.gpus[0].spec, len(session.gpus)
    slowdown_limit = slowdown_limit_of(session.objective)
    figures = figures_of(progress.windows, gpus=count, slowdown_limit=slowdown_limit)
    gpus = [
        RunGpu(
            uuid=gpu.spec.uuid,
            name=gpu.spec.name,
            simulated=gpu.spec.simulated,
            time_s=progress.spent.time_s,
            energy_j=progress.spent.energy_j,
        )
        for gpu in session.gpus
    ]
    workload = fingerprint(name)
    held = [window.setting for window in progress.windows if window.purpose is Purpose.HOLD]
    details = {
        "exit_code": exit_code,
        "policy": session.policy.name,
        "held": str(held[-1]) if held else None,
        "saving_percent": None if figures.saving is None else 100 * figures.saving.value,
        "slowdown_percent": None if figures.slowdown is None else 100 * figures.slowdown.value,
        "promise_percent": None if slowdown_limit is None else 100 * slowdown_limit,
        "evaluations": figures.evaluations,
        "workload": workload,
        "events": [event.text for event in progress.events],
    }
    run = new_run(KIND, name, started_at=started_at, gpus=gpus, details=details)
    trials = tuple(
        TrialRecord.of(trial, workload=workload, gpu=spec.name, simulated=spec.simulated)
        for trial in trials_of(progress.windows)
    )
    return FullRun(run, trials)
