"""Records as JSON and back: what `--json` prints and what the spill file holds.

Reading accepts what `to_json` writes and skips fields it does not know, so that a later version's extra fields do no
harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.store.records import FullRun, Run, RunGpu, TraceSummary, TrialRecord


def full_run_to_json(full: FullRun) -> dict[str, Any]:
    """The run and all that belongs to it."""
    return {
        "run": run_to_json(full.run),
        "trials": [trial_to_json(trial) for trial in full.trials],
        "traces": [trace_to_json(trace) for trace in full.traces],
    }


def full_run_from_json(document: Mapping[str, Any]) -> FullRun:
    """The run that a document of `full_run_to_json` describes; KeyError, TypeError or ValueError where it is none."""
    return FullRun(
        _run_from_json(document["run"]),
        tuple(_trial_from_json(trial) for trial in document["trials"]),
        tuple(_trace_from_json(trace) for trace in document["traces"]),
    )


def run_to_json(run: Run) -> dict[str, Any]:
    """The run with its GPUs; device and watts are there for the reader's convenience."""
    return {
        "id": run.id,
        "kind": run.kind,
        "name": run.name,
        "started_at": run.started_at.isoformat(),
        "time_s": run.time_s,
        "energy_j": run.energy_j,
        "energy_error_j": run.energy_error_j,
        "power_w": run.power_w,
        "device": run.device,
        "simulated": run.simulated,
        "host": run.host,
        "version": run.version,
        "note": run.note,
        "details": dict(run.details),
        "gpus": [_gpu_to_json(gpu) for gpu in run.gpus],
    }


def _gpu_to_json(gpu: RunGpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "simulated": gpu.simulated,
        "time_s": gpu.time_s,
        "energy_j": gpu.energy_j,
        "energy_error_j": gpu.energy_error_j,
        "power_w": gpu.power_w,
    }


def trial_to_json(trial: TrialRecord) -> dict[str, Any]:
    """The trial, its setting and its cost side by side."""
    setting = trial.setting
    return {
        "workload": trial.workload,
        "gpu": trial.gpu,
        "simulated": trial.simulated,
        "choice_kind": trial.choice_kind,
        "choice": dict(trial.choice),
        "setting": None
        if setting is None
        else {"sm_mhz": setting.sm_mhz, "mem_mhz": setting.mem_mhz, "power_limit_w": setting.power_limit_w},
        "time_s": trial.cost.time_s,
        "energy_j": trial.cost.energy_j,
        "time_error_s": trial.cost.time_error_s,
        "energy_error_j": trial.cost.energy_error_j,
    }


def trace_to_json(trace: TraceSummary) -> dict[str, Any]:
    """The summary, field by field."""
    return {name: getattr(trace, name) for name in TraceSummary.__dataclass_fields__}


def _run_from_json(document: Mapping[str, Any]) -> Run:
    return Run(
        id=document["id"],
        kind=document["kind"],
        name=document["name"],
        started_at=datetime.fromisoformat(document["started_at"]),
        time_s=document["time_s"],
        energy_j=document["energy_j"],
        energy_error_j=document["energy_error_j"],
        simulated=document["simulated"],
        host=document["host"],
        version=document["version"],
        note=document["note"],
        details=document["details"],
        gpus=tuple(_gpu_from_json(gpu) for gpu in document["gpus"]),
    )


def _gpu_from_json(document: Mapping[str, Any]) -> RunGpu:
    return RunGpu(
        uuid=document["uuid"],
        name=document["name"],
        simulated=document["simulated"],
        time_s=document["time_s"],
        energy_j=document["energy_j"],
        energy_error_j=document["energy_error_j"],
    )


def _trial_from_json(document: Mapping[str, Any]) -> TrialRecord:
    setting = document["setting"]
    return TrialRecord(
        workload=document["workload"],
        gpu=document["gpu"],
        simulated=document["simulated"],
        choice_kind=document["choice_kind"],
        choice=document["choice"],
        setting=None if setting is None else Setting(setting["sm_mhz"], setting["mem_mhz"], setting["power_limit_w"]),
        cost=Measurement(
            document["time_s"], document["energy_j"], document["time_error_s"], document["energy_error_j"]
        ),
    )


def _trace_from_json(document: Mapping[str, Any]) -> TraceSummary:
    known: dict[str, Any] = {name: document[name] for name in TraceSummary.__dataclass_fields__}
    return TraceSummary(**known)
