"""The rules that are played side by side, by name."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from wattune.benchmarks.run.play import FixedSetting
from wattune.core.errors import InputError
from wattune.core.objective import LeastEnergy
from wattune.core.window import RunPolicy
from wattune.levels.run.mf_gpoeo.policy import MfGpoeoPolicy
from wattune.levels.run.odpp.policy import OdppPolicy
from wattune.levels.run.policy import CurvePolicy
from wattune.levels.run.zeus_limit import MaxSlowdown, ZeusLimitPolicy

if TYPE_CHECKING:
    from wattune.levels.run.gpoeo.models import GpoeoModels

OURS, DEFAULT, ORACLE = "wattune", "default", "oracle"
GPOEO = "gpoeo"

POLICIES = (DEFAULT, GPOEO, "odpp", "mf-gpoeo", "zeus", OURS, ORACLE)
"""Every name, in the order of tables."""


def make_policy(name: str, gpu: str, *, slowdown: float) -> RunPolicy:
    """The policy of that name for a GPU of the catalogue; the oracle is made by whoever knows the truth."""
    match name:
        case "default":
            return FixedSetting(DEFAULT)
        case "gpoeo":
            return _gpoeo(gpu, slowdown)
        case "odpp":
            return _odpp(gpu, slowdown)
        case "mf-gpoeo":
            return MfGpoeoPolicy(slowdown)
        case "zeus":
            return ZeusLimitPolicy(MaxSlowdown(1.0 + slowdown))
        case "wattune":
            return CurvePolicy(objective=LeastEnergy(slowdown))
        case _:
            raise InputError(f"there is no policy {name!r}", hint=f"choose from {', '.join(POLICIES)}")


def available() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of policies that can be played here, and a line for each that cannot."""
    if find_spec("lightgbm") is None:
        left = tuple(name for name in POLICIES if name != GPOEO)
        return left, ("gpoeo is left out, because its models need LightGBM: pip install 'wattune[boost]'",)
    return POLICIES, ()


def _odpp(gpu: str, slowdown: float) -> RunPolicy:
    from wattune.levels.run.odpp.training import trained_corrections

    return OdppPolicy(trained_corrections(gpu), slowdown)


def _gpoeo(gpu: str, slowdown: float) -> RunPolicy:
    from wattune.levels.run.gpoeo.policy import GpoeoPolicy

    return GpoeoPolicy(_models(gpu), slowdown)


@lru_cache(maxsize=2)
def _models(gpu: str) -> GpoeoModels:
    from wattune.levels.run.gpoeo.training import trained_models

    return trained_models(gpu)
