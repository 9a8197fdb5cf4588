"""The policies that are played side by side, by name."""

from __future__ import annotations

from wattune.core.errors import InputError
from wattune.core.objective import LeastEnergy
from wattune.core.window import RunPolicy
from wattune.levels.run.own_policy import is_own
from wattune.levels.run.policies import policy_named
from wattune.physics.gpu_model import GpuModel
from wattune.response.boosted_trees import MISSING, installed
from wattune_bench.run.mf_gpoeo import MfGpoeoPolicy
from wattune_bench.run.odpp import OdppPolicy
from wattune_bench.run.zeus_limit import ZeusLimitPolicy

OURS, DEFAULT, ORACLE, GPOEO = "wattune", "default", "oracle", "gpoeo"

PEERS = {"odpp": OdppPolicy.of, "mf-gpoeo": MfGpoeoPolicy.of, "zeus": ZeusLimitPolicy.of}
"""Published policies that wattune does not ship; its commands find them by the entry points of this distribution."""
POLICIES = (DEFAULT, GPOEO, *PEERS, OURS, ORACLE)
"""Every name, in the order of tables."""


def make_policy(name: str, model: GpuModel, *, slowdown: float) -> RunPolicy:
    """Make a policy that knows already what it learns about a GPU."""
    objective = LeastEnergy(slowdown)
    policy = PEERS[name](objective) if name in PEERS else policy_named(name, objective)
    if name in POLICIES:
        policy.step((), model.spec())
    return policy


def check_own(names: tuple[str, ...], slowdown: float) -> None:
    """Raise where a name is not that of a policy written elsewhere, or where that cannot be made."""
    for name in names:
        if name in POLICIES:
            raise InputError(
                f"{name} cannot be chosen for a table",
                hint="wattune, a grid search and the oracle are always played; --policy package.module:Name adds yours",
            )
        policy_named(name, LeastEnergy(slowdown))


def chosen_policies(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the policies of these names that can be played here, all where none is named, and a line per missing one.

    Raises `InputError` for a name that no policy has.
    """
    own = [name for name in dict.fromkeys(names) if name not in POLICIES]
    for name in own:
        if not is_own(name):
            hint = f"choose from {', '.join(POLICIES)}, or your own: package.module:Name"
            raise InputError(f"there is no policy {name!r}", hint=hint)
        policy_named(name, LeastEnergy(0.05))
    chosen = [*(name for name in POLICIES if not names or name in names), *own]
    if installed() or GPOEO not in chosen:
        return tuple(chosen), ()
    return tuple(name for name in chosen if name != GPOEO), (f"{GPOEO} is left out, because {MISSING}",)
