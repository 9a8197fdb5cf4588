"""The policy that a command line names, with what published rules learned on other programs of the same GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattune.core.errors import DeviceNotFound
from wattune.levels.run.policies import policy_named

if TYPE_CHECKING:
    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.objective import Objective
    from wattune.core.run_window import RunPolicy
    from wattune.levels.run.gpoeo.models import GearPredictor
    from wattune.levels.run.odpp.policy import Corrections

LEARNED = {"gpoeo": "its search begins at the highest clock", "odpp": "its curve goes through all clocks it measures"}
"""The policies that learn, and what they do without."""


def live_policy(name: str, objective: Objective, spec: GpuSpec) -> tuple[RunPolicy, tuple[str, ...]]:
    """The policy of that name for a part, and a note where it could not learn what it should.

    What it learns from are simulated programs on the part of that name in the catalogue.
    """
    policy = policy_named(name, objective)
    if name not in LEARNED:
        return policy, ()
    key, missing = _key(spec), _missing(name)
    if key is None or missing is not None:
        why = missing or f"there is no {spec.name} in the catalogue"
        return policy, (f"{name} learned nothing beforehand, because {why}: {LEARNED[name]}",)
    click.echo(f"wattune: {name} learns from simulated programs on a {spec.name}, which takes some seconds", err=True)
    models, corrections = _learned(name, key)
    return policy_named(name, objective, models=models, corrections=corrections), ()


def _key(spec: GpuSpec) -> str | None:
    """The name of a part that the catalogue has; None where it has none like it."""
    from wattune.physics.catalog import load_model

    try:
        return load_model(spec.name.removesuffix(" (simulated)")).name
    except DeviceNotFound:
        return None


def _missing(name: str) -> str | None:
    """What is not installed and has to be for a policy to learn."""
    from wattune.search.boosted_trees import MISSING, installed

    return MISSING if name == "gpoeo" and not installed() else None


def _learned(name: str, key: str) -> tuple[GearPredictor | None, Corrections | None]:
    if name == "gpoeo":
        from wattune.levels.run.gpoeo.training import trained_models

        return trained_models(key), None
    from wattune.levels.run.odpp.training import trained_corrections

    return None, trained_corrections(key)
