"""The policies that can tune a program while it runs, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wattune.core.errors import InputError
from wattune.core.gpu_spec import GpuSpec
from wattune.core.objective import LeastEnergy, Objective
from wattune.core.setting import DRIVER_DEFAULT
from wattune.core.window import Order, Purpose, RunPolicy, Window

if TYPE_CHECKING:
    from wattune.levels.run.gpoeo.models import ClockPredictor
    from wattune.levels.run.odpp.policy import Corrections

OURS = "wattune"
POLICIES = (OURS, "gpoeo", "odpp", "mf-gpoeo", "zeus", "default")
"""Ours, published rules, and none: the GPU is only looked at."""

COUNTING = ("gpoeo",)
"""Policies that look at counters once and predict from them."""

_LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Leaves everything to the driver."""

    name: str = "default"

    def step(self, seen: tuple[Window, ...], spec: GpuSpec) -> Order:
        """Another look at what the driver does."""
        del seen, spec
        return Order(setting=DRIVER_DEFAULT, purpose=Purpose.BASELINE, least_s=_LOOK_S, most_s=_LOOK_S, settle_s=0.0)


def policy_named(
    name: str,
    objective: Objective,
    *,
    models: ClockPredictor | None = None,
    corrections: Corrections | None = None,
) -> RunPolicy:
    """The policy of that name for an objective; one line says which there are.

    `models` are what gpoeo predicts with, `corrections` what odpp corrects with; both do without as best they can.
    """
    if name == OURS:
        from wattune.levels.run.policy import CurvePolicy

        return CurvePolicy(objective=objective)
    if name == "default":
        return DefaultPolicy()
    if name in POLICIES:
        return _published(name, _slowdown(name, objective), models, corrections)
    raise InputError(f"there is no policy {name!r}", hint=f"choose one of {', '.join(POLICIES)}")


def slowdown_limit_of(objective: Objective) -> float | None:
    """The slowdown that an objective allows; None where it names none."""
    return objective.slowdown if isinstance(objective, LeastEnergy) else None


def _slowdown(name: str, objective: Objective) -> float:
    slowdown_limit = slowdown_limit_of(objective)
    if slowdown_limit is None:
        raise InputError(
            f"{name} knows no objective but least energy at a slowdown", hint="give it --max-slowdown 5%, say"
        )
    return slowdown_limit


def _published(name: str, slowdown: float, models: ClockPredictor | None, corrections: Corrections | None) -> RunPolicy:
    if name == "gpoeo":
        from wattune.levels.run.gpoeo.policy import GpoeoPolicy

        return GpoeoPolicy(models, slowdown=slowdown)
    if name == "odpp":
        from wattune.levels.run.odpp.policy import OdppPolicy

        return OdppPolicy(corrections, slowdown=slowdown)
    if name == "mf-gpoeo":
        from wattune.levels.run.mf_gpoeo.policy import MfGpoeoPolicy

        return MfGpoeoPolicy(slowdown=slowdown)
    from wattune.levels.run.zeus_limit import MaxSlowdown, ZeusLimitPolicy

    return ZeusLimitPolicy(MaxSlowdown(1.0 + slowdown))
