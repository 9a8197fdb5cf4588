"""What is kept of a tuned program: a run of kind `run`, with a trial for each setting that was measured."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from wattune.core.measurement import Measurement
from wattune.core.run_window import Purpose
from wattune.core.setting import Setting
from wattune.core.trial import Trial
from wattune.store.keep import new_run
from wattune.store.records import FullRun, RunGpu, TrialRecord
from wattune.tuning.run_fingerprint import fingerprint
from wattune.tuning.run_policies import promise_of
from wattune.tuning.run_report import figures_of

if TYPE_CHECKING:
    from wattune.core.run_window import Window
    from wattune.tuning.run_session import RunSession

KIND = "run"


def full_run(session: RunSession, *, name: str, started_at: datetime, exit_code: int | None) -> FullRun:
    """The run as the history keeps it."""
    progress, spec, count = session.progress, session.gpus[0].spec, len(session.gpus)
    promise = promise_of(session.objective)
    figures = figures_of(progress.windows, gpus=count, promise=promise)
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
        "promise_percent": None if promise is None else 100 * promise,
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


def trials_of(windows: tuple[Window, ...]) -> tuple[Trial[Setting], ...]:
    """The mean unit of work at each setting, the longer windows counting more; as the program was last."""
    last = max((place for place, window in enumerate(windows) if window.changed), default=-1)
    found: dict[Setting, list[Window]] = {}
    for window in windows[last + 1 :]:
        if window.unit is not None and window.held:
            found.setdefault(window.setting, []).append(window)
    return tuple(Trial(setting, _mean(parts)) for setting, parts in found.items())


def _mean(windows: list[Window]) -> Measurement:
    total_s = sum(window.cost.time_s for window in windows)
    units = [(window.cost.time_s / total_s, window.unit) for window in windows]
    time_s = sum(weight * unit.time_s for weight, unit in units if unit is not None)
    energy_j = sum(weight * unit.energy_j for weight, unit in units if unit is not None)
    return Measurement(time_s, energy_j)
