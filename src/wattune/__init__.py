"""wattune: train the same model for fewer joules.

The names below are the public ones. They are imported when first used, so that `import wattune` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Count": "wattune.core.reading",
    "Deadline": "wattune.core.objective",
    "EnergyDelay": "wattune.core.objective",
    "Frontier": "wattune.core.frontier",
    "GpuSpec": "wattune.core.gpu_spec",
    "LeastCost": "wattune.core.objective",
    "LeastEnergy": "wattune.core.objective",
    "Measurement": "wattune.core.measurement",
    "Phase": "wattune.core.workload",
    "Plan": "wattune.core.plan",
    "PowerBudget": "wattune.core.objective",
    "Reading": "wattune.core.reading",
    "Setting": "wattune.core.setting",
    "Trial": "wattune.core.trial",
    "WattuneError": "wattune.core.errors",
    "WorkGraph": "wattune.core.workgraph",
    "Workload": "wattune.core.workload",
}

__all__ = [
    "Count",
    "Deadline",
    "EnergyDelay",
    "Frontier",
    "GpuSpec",
    "LeastCost",
    "LeastEnergy",
    "Measurement",
    "Phase",
    "Plan",
    "PowerBudget",
    "Reading",
    "Setting",
    "Trial",
    "WattuneError",
    "WorkGraph",
    "Workload",
    "__version__",
]

if TYPE_CHECKING:
    from wattune.core.errors import WattuneError
    from wattune.core.frontier import Frontier
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.measurement import Measurement
    from wattune.core.objective import Deadline, EnergyDelay, LeastCost, LeastEnergy, PowerBudget
    from wattune.core.plan import Plan
    from wattune.core.reading import Count, Reading
    from wattune.core.setting import Setting
    from wattune.core.trial import Trial
    from wattune.core.workgraph import WorkGraph
    from wattune.core.workload import Phase, Workload


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'wattune' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
