"""What `wattune run` and `wattune attach` are asked for: an objective, and what may be set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from wattune.control.allowed_settings import MEM_CLOCK, POWER_LIMIT, SM_CLOCK
from wattune.core.errors import InputError
from wattune.core.objective import LeastEnergy, Objective, parse_objective, parse_share
from wattune.levels.run.policies import trained_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wattune.core.gpu_spec import GpuSpec
    from wattune.core.objective import Objective
    from wattune.core.window import RunPolicy
    from wattune.devices.gpu import Gpu


DEFAULT_SLOWDOWN = "5%"
KNOB_NAMES = {"sm-clock": SM_CLOCK, "mem-clock": MEM_CLOCK, "power-limit": POWER_LIMIT}


def wanted_objective(slowdown: str | None, objective: str | None, gpus: Sequence[Gpu]) -> Objective:
    """The objective of a command line; the highest power limit of one GPU weighs time, since one GPU is looked at."""
    if slowdown is not None and objective is not None:
        raise click.UsageError("--max-slowdown and --objective exclude each other")
    if objective is not None:
        from wattune.levels.job.gpus import highest_limit_w

        return parse_objective(objective, max_power_w=max(map(highest_limit_w, gpus)))
    return LeastEnergy(_share(slowdown or DEFAULT_SLOWDOWN))


def objective_text(slowdown: str | None, objective: str | None) -> str:
    """The objective as it would be written on a command line."""
    return objective or f"energy:{slowdown or DEFAULT_SLOWDOWN}"


def knobs_named(names: str | None) -> frozenset[str]:
    """The knobs of a list such as `sm-clock,power-limit`; all of them without a list."""
    if names is None:
        return frozenset(KNOB_NAMES.values())
    asked = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in asked if name not in KNOB_NAMES]
    if unknown or not asked:
        raise InputError(
            f"there is no knob {unknown[0] if unknown else names!r}", hint=f"choose of {', '.join(KNOB_NAMES)}"
        )
    return frozenset(KNOB_NAMES[name] for name in asked)


def _share(text: str) -> float:
    try:
        return parse_share(text)
    except ValueError:
        raise InputError(f"{text!r} is no slowdown", hint="write a share such as 5% or 0.05") from None


def is_played(gpus: Sequence[Gpu]) -> bool:
    """Whether these GPUs are simulated in this process."""
    from wattune.devices.gpu import PlaysWorkloads

    return any(isinstance(gpu, PlaysWorkloads) for gpu in gpus)


def live_policy(name: str, objective: Objective, spec: GpuSpec) -> tuple[RunPolicy, tuple[str, ...]]:
    """Make the policy of that name for a GPU, and return a note where it could not learn what it should."""
    return trained_policy(name, objective, spec, on_learning=lambda line: click.echo(f"wattune: {line}", err=True))
