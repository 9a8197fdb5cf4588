"""The policies that can tune a running program, by name, and what some of them learn beforehand.

`POLICIES` is the one registry: commands, the Python interface and benches make policies from it. Implementations are
imported when a policy is made, so that listing the names costs nothing. Policies written elsewhere are named
`package.module:Name`, or by an entry point of the group `wattune.policies` (`levels/run/own_policy.py`), and run in a
process of their own.
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


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy of the registry, and whether it learns from simulated programs beforehand."""

    unlearned: str = ""
    """For a policy that learns: its behaviour without learning, in words."""
    grows_trees: bool = False
    """True for a policy that needs LightGBM to learn."""

    def missing(self) -> str | None:
        """Return what has to be installed before it can learn, in words; None where nothing is missing."""
        if not self.grows_trees:
            return None
        from wattune.response.boosted_trees import MISSING, installed

        return None if installed() else MISSING


POLICIES = {
    "wattune": PolicyEntry(),
    "gpoeo": PolicyEntry("its search begins at the highest clock", grows_trees=True),
    "odpp": PolicyEntry("its curve goes through all clocks it measures"),
    "mf-gpoeo": PolicyEntry(),
    "zeus": PolicyEntry(),
    "default": PolicyEntry(),
}
"""wattune's own policy, published ones, and none: the program is only measured."""


def policy_named(name: str, objective: Objective, *, learned: Any = None) -> RunPolicy:
    """Make the policy of that name; `learned` is what `learn` returned for it."""
    from wattune.core.objective import Deadline

    if isinstance(objective, Deadline):
        raise InputError(
            "a running program cannot be tuned for a deadline, since the length of its work is unknown",
            hint="limit its slowdown instead: --max-slowdown 5% (slowdown=0.05 in Python)",
        )
    match name:
        case "wattune":
            from wattune.levels.run.policy import CurvePolicy

            return CurvePolicy(objective=objective)
        case "gpoeo":
            from wattune.levels.run.gpoeo.policy import GpoeoPolicy

            return GpoeoPolicy(learned, slowdown=_slowdown(name, objective))
        case "odpp":
            from wattune.levels.run.odpp import OdppPolicy

            return OdppPolicy(learned, slowdown=_slowdown(name, objective))
        case "mf-gpoeo":
            from wattune.levels.run.mf_gpoeo import MfGpoeoPolicy

            return MfGpoeoPolicy(slowdown=_slowdown(name, objective))
        case "zeus":
            from wattune.levels.run.procedure import ZeusLimitPolicy

            return ZeusLimitPolicy(_slowdown(name, objective))
        case "default":
            from wattune.levels.run.procedure import DefaultPolicy

            return DefaultPolicy()
    from wattune.levels.run.own_policy import check_name
    from wattune.levels.run.policy_process import HostedPolicy

    check_name(name)
    return HostedPolicy(name, objective)


def learn(name: str, gpu: str) -> object:
    """Train a policy on simulated programs on a GPU of the catalogue, in some seconds; None if it does not learn."""
    match name:
        case "gpoeo":
            from wattune.levels.run.gpoeo.training import trained_models

            return trained_models(gpu)
        case "odpp":
            from wattune.levels.run.odpp import trained_corrections

            return trained_corrections(gpu)
        case _:
            return None


def trained_policy(
    name: str, objective: Objective, spec: GpuSpec, *, on_learning: Callable[[str], None]
) -> tuple[RunPolicy, tuple[str, ...]]:
    """Make a policy with what it learns for a GPU, and return a note where it could not learn.

    `on_learning` is called with a line for the user before the learning, which takes some seconds.
    """
    policy, entry = policy_named(name, objective), POLICIES.get(name)
    if entry is None or not entry.unlearned:
        return policy, ()
    gpu, missing = _catalogue_name(spec), entry.missing()
    if gpu is None or missing is not None:
        why = missing or f"there is no {spec.name} in the catalogue"
        return policy, (f"{name} learned nothing beforehand, because {why}: {entry.unlearned}",)
    on_learning(f"{name} learns from simulated programs on a {spec.name}, which takes some seconds")
    return policy_named(name, objective, learned=learn(name, gpu)), ()


def slowdown_limit_of(objective: Objective) -> float | None:
    """Return the slowdown that an objective allows; None where it sets no such limit."""
    from wattune.core.objective import LeastEnergy

    return objective.slowdown if isinstance(objective, LeastEnergy) else None


def _catalogue_name(spec: GpuSpec) -> str | None:
    from wattune.physics.catalog import load_model

    try:
        return load_model(spec.model_name).name
    except DeviceNotFound:
        return None


def _slowdown(name: str, objective: Objective) -> float:
    slowdown_limit = slowdown_limit_of(objective)
    if slowdown_limit is None:
        raise InputError(
            f"{name} knows no objective but least energy at a slowdown", hint="give it --max-slowdown 5%, say"
        )
    return slowdown_limit
