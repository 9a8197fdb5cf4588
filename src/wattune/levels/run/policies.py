"""The policies that can tune a running program, by name.

Commands, the Python interface and benches make policies here. Implementations are imported when a policy is made, so
that listing the names costs nothing. Policies written elsewhere, such as those of the benches, are named
`package.module:Name`, or by an entry point of the group `wattune.policies` (`levels/run/own_policy.py`), and run in a
process of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from wattune.core.errors import InputError

if TYPE_CHECKING:
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.objective import Objective
    from wattune.core.window import RunPolicy


POLICIES = ("wattune", "gpoeo", "default")
"""wattune's own policy, the published one, and none: the program is only measured."""


def policy_named(name: str, objective: Objective) -> RunPolicy:
    """Make the policy of that name; one that learns does so at its first step."""
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

            return GpoeoPolicy(slowdown_of(name, objective))
        case "default":
            from wattune.levels.run.procedure import DefaultPolicy

            return DefaultPolicy()
    from wattune.levels.run.own_policy import check_name
    from wattune.levels.run.policy_process import HostedPolicy

    check_name(name)
    return HostedPolicy(name, objective)


def learn_beforehand(policy: RunPolicy, spec: GpuSpec, *, on_learning: Callable[[str], None]) -> tuple[str, ...]:
    """Let a policy learn what it would learn at its first step, and return a note where it cannot.

    `on_learning` is called with a line for the user before the learning, which takes some seconds.
    """
    learn = getattr(policy, "learned_beforehand", None)
    return () if learn is None else tuple(learn(spec, on_learning))


def slowdown_limit_of(objective: Objective) -> float | None:
    """Return the slowdown that an objective allows; None where it sets no such limit."""
    from wattune.core.objective import LeastEnergy

    return objective.slowdown if isinstance(objective, LeastEnergy) else None


def slowdown_of(name: str, objective: Objective) -> float:
    """Return the slowdown that an objective allows; InputError for the policy of that name where it sets none."""
    slowdown_limit = slowdown_limit_of(objective)
    if slowdown_limit is None:
        raise InputError(
            f"{name} knows no objective but least energy at a slowdown", hint="give it --max-slowdown 5%, say"
        )
    return slowdown_limit
