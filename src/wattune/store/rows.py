"""Records as rows of the tables, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import RowMapping

from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import SETTING, FullRun, Run, RunGpu, TraceSummary, TrialRecord

_RUN = ("id", "kind", "name", "started_at", "time_s", "energy_j", "energy_error_j", "simulated", "host", "version")
_GPU = ("uuid", "name", "simulated", "time_s", "energy_j", "energy_error_j")
_TRACE = tuple(TraceSummary.__dataclass_fields__)

Row = dict[str, Any]


def run_row(run: Run) -> Row:
    """The row of a run, its GPUs apart."""
    return {name: getattr(run, name) for name in _RUN} | {"note": run.note, "details": dict(run.details)}


def gpu_rows(run: Run) -> list[Row]:
    """A row per GPU of the run."""
    return _numbered(run.id, ({name: getattr(gpu, name) for name in _GPU} for gpu in run.gpus))


def trial_rows(full: FullRun) -> list[Row]:
    """A row per trial of the run."""
    return _numbered(full.run.id, (_trial_row(trial) for trial in full.trials))


def trace_rows(full: FullRun) -> list[Row]:
    """A row per trace summary of the run."""
    return _numbered(full.run.id, ({name: getattr(trace, name) for name in _TRACE} for trace in full.traces))


def run_of(row: RowMapping, gpus: tuple[RunGpu, ...]) -> Run:
    """The run that a row holds."""
    return Run(**{name: row[name] for name in _RUN}, note=row["note"], details=row["details"], gpus=gpus)


def gpu_of(row: RowMapping) -> RunGpu:
    """The GPU that a row holds."""
    return RunGpu(**{name: row[name] for name in _GPU})


def trace_of(row: RowMapping) -> TraceSummary:
    """The trace summary that a row holds."""
    return TraceSummary(**{name: row[name] for name in _TRACE})


def trial_of(row: RowMapping) -> TrialRecord:
    """The trial that a row holds."""
    setting = Setting(row["sm_mhz"], row["mem_mhz"], row["power_limit_w"])
    return TrialRecord(
        workload=row["workload"],
        gpu=row["gpu"],
        simulated=row["simulated"],
        choice_kind=row["choice_kind"],
        choice=row["choice"],
        setting=setting if row["choice_kind"] == SETTING or setting != Setting() else None,
        cost=Measurement(row["time_s"], row["energy_j"], row["time_error_s"], row["energy_error_j"]),
    )


def _trial_row(trial: TrialRecord) -> Row:
    setting = trial.setting or Setting()
    return {
        "workload": trial.workload,
        "gpu": trial.gpu,
        "simulated": trial.simulated,
        "choice_kind": trial.choice_kind,
        "choice": dict(trial.choice),
        "sm_mhz": setting.sm_mhz,
        "mem_mhz": setting.mem_mhz,
        "power_limit_w": setting.power_limit_w,
        "time_s": trial.cost.time_s,
        "energy_j": trial.cost.energy_j,
        "time_error_s": trial.cost.time_error_s,
        "energy_error_j": trial.cost.energy_error_j,
    }


def _numbered(run_id: str, rows: Iterable[Row]) -> list[Row]:
    return [{"run_id": run_id, "position": position} | row for position, row in enumerate(rows)]
