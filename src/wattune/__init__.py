"""wattune: train the same model for fewer joules.

The names below are the public ones; `docs/reference/python.md` says what each is. They are imported when first used, so
that `import wattune` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wattune._version import __version__

_HOME = {
    "ConfigError": "wattune.core.errors",
    "Count": "wattune.core.reading",
    "Deadline": "wattune.core.objective",
    "DeviceBusy": "wattune.core.errors",
    "DeviceError": "wattune.core.errors",
    "DeviceLost": "wattune.core.errors",
    "DeviceNotFound": "wattune.core.errors",
    "EnergyDelay": "wattune.core.objective",
    "Frontier": "wattune.core.frontier",
    "Gpu": "wattune.devices.gpu",
    "GpuSpec": "wattune.core.gpu_spec",
    "Infeasible": "wattune.core.errors",
    "InputError": "wattune.core.errors",
    "Knob": "wattune.control.sweep",
    "LeastCarbon": "wattune.core.objective",
    "LeastCost": "wattune.core.objective",
    "LeastEnergy": "wattune.core.objective",
    "LeastMoney": "wattune.core.objective",
    "Measurement": "wattune.core.measurement",
    "NoPermission": "wattune.core.errors",
    "NotSupported": "wattune.core.errors",
    "Objective": "wattune.core.objective",
    "Operation": "wattune.core.workgraph",
    "Outcome": "wattune.core.job",
    "Phase": "wattune.core.workload",
    "Pipe": "wattune.core.workload",
    "Plan": "wattune.core.plan",
    "PlanError": "wattune.core.errors",
    "PowerBudget": "wattune.core.objective",
    "Ranks": "wattune.control.ranks",
    "Reading": "wattune.core.reading",
    "RecurringRun": "wattune.levels.job.handle",
    "Sampler": "wattune.devices.sampler",
    "Setting": "wattune.core.setting",
    "SettingRefused": "wattune.core.errors",
    "SimulatedGpu": "wattune.devices.simulated",
    "Span": "wattune.devices.meter",
    "Step": "wattune.core.plan",
    "StoreError": "wattune.core.errors",
    "Throttle": "wattune.core.reading",
    "Trace": "wattune.core.reading",
    "Trial": "wattune.core.frontier",
    "Tuning": "wattune.levels.run.session",
    "WattuneError": "wattune.core.errors",
    "WorkGraph": "wattune.core.workgraph",
    "Workload": "wattune.core.workload",
    "load_model": "wattune.physics.catalog",
    "make_workload": "wattune.workloads.catalog",
    "measured": "wattune.devices.meter",
    "open_gpu": "wattune.api",
    "open_gpus": "wattune.api",
    "recurring_job": "wattune.api",
    "sweep": "wattune.control.sweep",
    "sweep_settings": "wattune.control.sweep",
    "tuned": "wattune.api",
}

__all__ = [
    "ConfigError",
    "Count",
    "Deadline",
    "DeviceBusy",
    "DeviceError",
    "DeviceLost",
    "DeviceNotFound",
    "EnergyDelay",
    "Frontier",
    "Gpu",
    "GpuSpec",
    "Infeasible",
    "InputError",
    "Knob",
    "LeastCarbon",
    "LeastCost",
    "LeastEnergy",
    "LeastMoney",
    "Measurement",
    "NoPermission",
    "NotSupported",
    "Objective",
    "Operation",
    "Outcome",
    "Phase",
    "Pipe",
    "Plan",
    "PlanError",
    "PowerBudget",
    "Ranks",
    "Reading",
    "RecurringRun",
    "Sampler",
    "Setting",
    "SettingRefused",
    "SimulatedGpu",
    "Span",
    "Step",
    "StoreError",
    "Throttle",
    "Trace",
    "Trial",
    "Tuning",
    "WattuneError",
    "WorkGraph",
    "Workload",
    "__version__",
    "load_model",
    "make_workload",
    "measured",
    "open_gpu",
    "open_gpus",
    "recurring_job",
    "sweep",
    "sweep_settings",
    "tuned",
]

if TYPE_CHECKING:
    from wattune.api import open_gpu, open_gpus, recurring_job, tuned
    from wattune.control.ranks import Ranks
    from wattune.control.sweep import Knob, sweep, sweep_settings
    from wattune.core.errors import (
        ConfigError,
        DeviceBusy,
        DeviceError,
        DeviceLost,
        DeviceNotFound,
        Infeasible,
        InputError,
        NoPermission,
        NotSupported,
        PlanError,
        SettingRefused,
        StoreError,
        WattuneError,
    )
    from wattune.core.frontier import Frontier, Trial
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.job import Outcome
    from wattune.core.measurement import Measurement
    from wattune.core.objective import (
        Deadline,
        EnergyDelay,
        LeastCarbon,
        LeastCost,
        LeastEnergy,
        LeastMoney,
        Objective,
        PowerBudget,
    )
    from wattune.core.plan import Plan, Step
    from wattune.core.reading import Count, Reading, Throttle, Trace
    from wattune.core.setting import Setting
    from wattune.core.workgraph import Operation, WorkGraph
    from wattune.core.workload import Phase, Pipe, Workload
    from wattune.devices.gpu import Gpu
    from wattune.devices.meter import Span, measured
    from wattune.devices.sampler import Sampler
    from wattune.devices.simulated import SimulatedGpu
    from wattune.levels.job.handle import RecurringRun
    from wattune.levels.run.session import Tuning
    from wattune.physics.catalog import load_model
    from wattune.workloads.catalog import make_workload


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wattune' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
