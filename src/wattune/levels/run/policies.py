"""The policies that can tune a running program, by name, and what some of them learn beforehand.

`POLICIES` is the one registry: commands, the Python interface and benchmarks make policies from it. Implementations are
imported when a policy is made, so that listing the names costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wattune.core.errors import DeviceNotFound, InputError

if TYPE_CHECKING:
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.objective import Objective
    from wattune.core.window import RunPolicy
    from wattune.levels.run.gpoeo.models import ClockPredictor
    from wattune.levels.run.odpp import Corrections


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """The functions that make a policy and train it beforehand."""

    make: Callable[[Objective, Any], RunPolicy]
    """From an objective and what `learn` returned, or None."""
    learn: Callable[[str], object] | None = None
    """Train on simulated programs on a GPU of the catalogue; takes some seconds."""
    missing: Callable[[], str | None] = lambda: None
    """Name what has to be installed before it can learn."""
    unlearned: str = ""
    """The behaviour of the policy without learning, in words."""


def policy_named(name: str, objective: Objective, *, learned: object = None) -> RunPolicy:
    """Make the policy of that name; `learned` is what `learn` returned for it."""
    from wattune.core.objective import Deadline

    if isinstance(objective, Deadline):
        raise InputError(
            "a running program cannot be tuned for a deadline, since the length of its work is unknown",
            hint="limit its slowdown instead: --max-slowdown 5% (slowdown=0.05 in Python)",
        )
    return _entry(name).make(objective, learned)


def learn(name: str, gpu: str) -> object:
    """Return what a policy learns on a GPU of the catalogue; None for a policy that does not learn."""
    train = _entry(name).learn
    return None if train is None else train(gpu)


def trained_policy(
    name: str, objective: Objective, spec: GpuSpec, *, on_learning: Callable[[str], None]
) -> tuple[RunPolicy, tuple[str, ...]]:
    """Make a policy with what it learns for a GPU, and return a note where it could not learn.

    `on_learning` is called with a line for the user before the learning, which takes some seconds.
    """
    entry = _entry(name)
    policy = policy_named(name, objective)
    if entry.learn is None:
        return policy, ()
    gpu, missing = _catalogue_name(spec), entry.missing()
    if gpu is None or missing is not None:
        why = missing or f"there is no {spec.name} in the catalogue"
        return policy, (f"{name} learned nothing beforehand, because {why}: {entry.unlearned}",)
    on_learning(f"{name} learns from simulated programs on a {spec.name}, which takes some seconds")
    return policy_named(name, objective, learned=entry.learn(gpu)), ()


def slowdown_limit_of(objective: Objective) -> float | None:
    """Return the slowdown that an objective allows; None where it sets no such limit."""
    from wattune.core.objective import LeastEnergy

    return objective.slowdown if isinstance(objective, LeastEnergy) else None


def _entry(name: str) -> PolicyEntry:
    if name not in POLICIES:
        raise InputError(f"there is no policy {name!r}", hint=f"choose one of {', '.join(POLICIES)}")
    return POLICIES[name]


def _catalogue_name(spec: GpuSpec) -> str | None:
    from wattune.physics.catalog import load_model

    try:
        return load_model(spec.name.removesuffix(" (simulated)")).name
    except DeviceNotFound:
        return None


def _slowdown(name: str, objective: Objective) -> float:
    slowdown_limit = slowdown_limit_of(objective)
    if slowdown_limit is None:
        raise InputError(
            f"{name} knows no objective but least energy at a slowdown", hint="give it --max-slowdown 5%, say"
        )
    return slowdown_limit


def _wattune(objective: Objective, _: object) -> RunPolicy:
    from wattune.levels.run.policy import CurvePolicy

    return CurvePolicy(objective=objective)


def _gpoeo(objective: Objective, models: ClockPredictor | None) -> RunPolicy:
    from wattune.levels.run.gpoeo.policy import GpoeoPolicy

    return GpoeoPolicy(models, slowdown=_slowdown("gpoeo", objective))


def _odpp(objective: Objective, corrections: Corrections | None) -> RunPolicy:
    from wattune.levels.run.odpp import OdppPolicy

    return OdppPolicy(corrections, slowdown=_slowdown("odpp", objective))


def _mf_gpoeo(objective: Objective, _: object) -> RunPolicy:
    from wattune.levels.run.mf_gpoeo import MfGpoeoPolicy

    return MfGpoeoPolicy(slowdown=_slowdown("mf-gpoeo", objective))


def _zeus(objective: Objective, _: object) -> RunPolicy:
    from wattune.levels.run.procedure import ZeusLimitPolicy

    return ZeusLimitPolicy(_slowdown("zeus", objective))


def _default(_: Objective, __: object) -> RunPolicy:
    from wattune.levels.run.procedure import DefaultPolicy

    return DefaultPolicy()


def _train_gpoeo(gpu: str) -> object:
    from wattune.levels.run.gpoeo.training import trained_models

    return trained_models(gpu)


def _train_odpp(gpu: str) -> object:
    from wattune.levels.run.odpp import trained_corrections

    return trained_corrections(gpu)


def _missing_trees() -> str | None:
    from wattune.search.boosted_trees import MISSING, installed

    return None if installed() else MISSING


POLICIES = {
    "wattune": PolicyEntry(_wattune),
    "gpoeo": PolicyEntry(_gpoeo, _train_gpoeo, _missing_trees, "its search begins at the highest clock"),
    "odpp": PolicyEntry(_odpp, _train_odpp, unlearned="its curve goes through all clocks it measures"),
    "mf-gpoeo": PolicyEntry(_mf_gpoeo),
    "zeus": PolicyEntry(_zeus),
    "default": PolicyEntry(_default),
}
"""wattune's own policy, published ones, and none: the program is only measured."""
