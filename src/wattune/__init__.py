"""wattune: train the same model for fewer joules.

The names below are the public ones; `docs/reference/python.md` describes each. They are imported when first used, so
that `import wattune` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from wattune._version import __version__ as __version__

if TYPE_CHECKING:
    from wattune.api import open_gpu as open_gpu
    from wattune.api import open_gpus as open_gpus
    from wattune.api import recurring_job as recurring_job
    from wattune.api import tuned as tuned
    from wattune.control.ranks import Ranks as Ranks
    from wattune.core.errors import ConfigError as ConfigError
    from wattune.core.errors import DeviceBusy as DeviceBusy
    from wattune.core.errors import DeviceError as DeviceError
    from wattune.core.errors import DeviceLost as DeviceLost
    from wattune.core.errors import DeviceNotFound as DeviceNotFound
    from wattune.core.errors import Infeasible as Infeasible
    from wattune.core.errors import InputError as InputError
    from wattune.core.errors import NoPermission as NoPermission
    from wattune.core.errors import NotSupported as NotSupported
    from wattune.core.errors import PlanError as PlanError
    from wattune.core.errors import SettingRefused as SettingRefused
    from wattune.core.errors import StoreError as StoreError
    from wattune.core.errors import WattuneError as WattuneError
    from wattune.core.frontier import Frontier as Frontier
    from wattune.core.frontier import Trial as Trial
    from wattune.core.gpu_spec import GpuSpec as GpuSpec
    from wattune.core.job import Outcome as Outcome
    from wattune.core.measurement import Measurement as Measurement
    from wattune.core.objective import Deadline as Deadline
    from wattune.core.objective import EnergyDelay as EnergyDelay
    from wattune.core.objective import LeastCarbon as LeastCarbon
    from wattune.core.objective import LeastCost as LeastCost
    from wattune.core.objective import LeastEnergy as LeastEnergy
    from wattune.core.objective import LeastMoney as LeastMoney
    from wattune.core.objective import Objective as Objective
    from wattune.core.objective import PowerBudget as PowerBudget
    from wattune.core.reading import Count as Count
    from wattune.core.reading import Reading as Reading
    from wattune.core.reading import Throttle as Throttle
    from wattune.core.reading import Trace as Trace
    from wattune.core.setting import Setting as Setting
    from wattune.core.window import Order as Order
    from wattune.core.window import Purpose as Purpose
    from wattune.core.window import Window as Window
    from wattune.core.workload import Phase as Phase
    from wattune.core.workload import Pipe as Pipe
    from wattune.core.workload import Workload as Workload
    from wattune.devices.gpu import Gpu as Gpu
    from wattune.devices.meter import Span as Span
    from wattune.devices.meter import measured as measured
    from wattune.devices.sampler import Sampler as Sampler
    from wattune.devices.simulated import SimulatedGpu as SimulatedGpu
    from wattune.levels.job.session import RecurringRun as RecurringRun
    from wattune.levels.run.own_policy import Policy as Policy
    from wattune.levels.run.session import Tuning as Tuning
    from wattune.physics.catalog import load_model as load_model
    from wattune.plans.plan import Operation as Operation
    from wattune.plans.plan import Plan as Plan
    from wattune.plans.plan import Step as Step
    from wattune.plans.plan import WorkGraph as WorkGraph
    from wattune.sweeps.settings import Knob as Knob
    from wattune.sweeps.settings import sweep as sweep
    from wattune.sweeps.settings import sweep_settings as sweep_settings
    from wattune.workloads.catalog import make_workload as make_workload

_PUBLIC = {
    "wattune.api": "open_gpu open_gpus recurring_job tuned",
    "wattune.control.ranks": "Ranks",
    "wattune.sweeps.settings": "Knob sweep sweep_settings",
    "wattune.core.errors": "ConfigError DeviceBusy DeviceError DeviceLost DeviceNotFound Infeasible InputError"
    " NoPermission NotSupported PlanError SettingRefused StoreError WattuneError",
    "wattune.core.frontier": "Frontier Trial",
    "wattune.core.gpu_spec": "GpuSpec",
    "wattune.core.job": "Outcome",
    "wattune.core.measurement": "Measurement",
    "wattune.core.objective": "Deadline EnergyDelay LeastCarbon LeastCost LeastEnergy LeastMoney Objective PowerBudget",
    "wattune.plans.plan": "Operation Plan Step WorkGraph",
    "wattune.core.reading": "Count Reading Throttle Trace",
    "wattune.core.setting": "Setting",
    "wattune.core.window": "Order Purpose Window",
    "wattune.core.workload": "Phase Pipe Workload",
    "wattune.devices.gpu": "Gpu",
    "wattune.devices.meter": "Span measured",
    "wattune.devices.sampler": "Sampler",
    "wattune.devices.simulated": "SimulatedGpu",
    "wattune.levels.job.session": "RecurringRun",
    "wattune.levels.run.own_policy": "Policy",
    "wattune.levels.run.session": "Tuning",
    "wattune.physics.catalog": "load_model",
    "wattune.workloads.catalog": "make_workload",
}
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}

__all__ = sorted((*_HOME, "__version__"))


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wattune' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
