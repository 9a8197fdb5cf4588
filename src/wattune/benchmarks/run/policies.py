"""The rules that are played side by side, by name."""

from __future__ import annotations

from importlib.util import find_spec

from wattune.benchmarks.run.play import FixedSetting
from wattune.core.objective import LeastEnergy
from wattune.core.window import RunPolicy
from wattune.levels.run.policies import learn, policy_named

OURS, DEFAULT, ORACLE = "wattune", "default", "oracle"
GPOEO = "gpoeo"

POLICIES = (DEFAULT, GPOEO, "odpp", "mf-gpoeo", "zeus", OURS, ORACLE)
"""Every name, in the order of tables."""


def make_policy(name: str, gpu: str, *, slowdown: float) -> RunPolicy:
    """Make the policy of that name for a GPU of the catalogue; `case` makes the oracle, which knows the truth."""
    if name == DEFAULT:
        return FixedSetting(DEFAULT)
    return policy_named(name, LeastEnergy(slowdown), learned=learn(name, gpu))


def available() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of policies that can be played here, and a line for each that cannot."""
    if find_spec("lightgbm") is None:
        left = tuple(name for name in POLICIES if name != GPOEO)
        return left, ("gpoeo is left out, because its models need LightGBM: pip install 'wattune[boost]'",)
    return POLICIES, ()
