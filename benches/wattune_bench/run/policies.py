"""The policies that are played side by side, by name."""

from __future__ import annotations

from functools import lru_cache

from wattune.core.errors import InputError
from wattune.core.objective import LeastEnergy
from wattune.core.window import RunPolicy
from wattune.levels.run.own_policy import is_own
from wattune.levels.run.policies import POLICIES as SHIPPED
from wattune.levels.run.policies import learn, policy_named

OURS, DEFAULT, ORACLE, GPOEO = "wattune", "default", "oracle", "gpoeo"

POLICIES = (DEFAULT, *(name for name in SHIPPED if name not in (DEFAULT, OURS)), OURS, ORACLE)
"""Every name, in the order of tables."""


def make_policy(name: str, gpu: str, *, slowdown: float) -> RunPolicy:
    """Make a shipped policy for a GPU of the catalogue, with what it learns beforehand."""
    return policy_named(name, LeastEnergy(slowdown), learned=_learned(name, gpu))


def check_own(names: tuple[str, ...], slowdown: float) -> None:
    """Raise where a name is not that of a policy written elsewhere, or where that cannot be made."""
    for name in names:
        if name in POLICIES:
            raise InputError(
                f"{name} cannot be chosen for a table",
                hint="wattune, a grid search and the oracle are always played; --policy package.module:Name adds yours",
            )
        policy_named(name, LeastEnergy(slowdown))


@lru_cache(maxsize=4)
def _learned(name: str, gpu: str) -> object:
    return learn(name, gpu)


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
    missing = {name: SHIPPED[name].missing() for name in chosen if name in SHIPPED}
    lines = tuple(f"{name} is left out, because {what}" for name, what in missing.items() if what is not None)
    return tuple(name for name in chosen if missing.get(name) is None), lines
