"""Parts of a job's rows as JSON, and what the spill file holds of runs that ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wattune.core.job import JobGpu, Outcome, metric_value
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.core.trial import Trial
from wattune.store.job_records import RunEnd, Totals, moment

Document = dict[str, Any]


def gpu_to_json(gpu: JobGpu) -> Document:
    """What tells one part from another."""
    return {"gpu": gpu.name, "simulated": gpu.simulated, "gpus": gpu.count, "max_power_w": gpu.max_power_w}


def trial_to_json(trial: Trial[Setting]) -> Document:
    """The setting and its cost side by side."""
    return (setting_to_json(trial.choice) or {}) | (cost_to_json(trial.cost) or {})


def end_to_json(end: RunEnd) -> Document:
    """How a run ended, as `end_from_json` reads it."""
    return {
        "run_id": end.run_id,
        "outcome": end.outcome.value,
        "ended_at": end.ended_at.isoformat(),
        "cost": cost_to_json(end.cost),
        "profiling": cost_to_json(end.profiling),
        "setting": setting_to_json(end.setting),
        "metrics": [metric_value(metric) for metric in end.metrics],
    }


def end_from_json(document: Mapping[str, Any]) -> RunEnd:
    """The ending that a document describes; KeyError, TypeError, ValueError or InputError where it is none."""
    cost, profiling, setting = document["cost"], document["profiling"], document["setting"]
    totals = Totals.of(
        None if cost is None else cost_from_json(cost),
        None if profiling is None else cost_from_json(profiling),
        None if setting is None else setting_from_json(setting),
    )
    return RunEnd(
        run_id=str(document["run_id"]),
        outcome=Outcome(document["outcome"]),
        ended_at=moment(datetime.fromisoformat(document["ended_at"])),
        cost=totals.cost,
        profiling=totals.profiling,
        setting=totals.setting,
        metrics=tuple(metric_value(metric) for metric in document["metrics"]),
    )


def cost_to_json(cost: Measurement | None) -> Document | None:
    """Seconds and joules with their errors."""
    return None if cost is None else {name: getattr(cost, name) for name in Measurement.__dataclass_fields__}


def setting_to_json(setting: Setting | None) -> Document | None:
    """Clocks and limit; null in one of them leaves it to the driver."""
    return None if setting is None else {name: getattr(setting, name) for name in Setting.__dataclass_fields__}


def cost_from_json(document: Mapping[str, Any]) -> Measurement:
    """The measurement that a document of `cost_to_json` holds; what else is in it does no harm."""
    return Measurement(*(document[name] for name in Measurement.__dataclass_fields__))


def setting_from_json(document: Mapping[str, Any]) -> Setting:
    """The setting that a document of `setting_to_json` holds; what else is in it does no harm."""
    return Setting(*(document[name] for name in Setting.__dataclass_fields__))
