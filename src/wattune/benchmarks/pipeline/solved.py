"""What a solver found for one pipeline: run in a process of its own, then timed again from the profile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.plan import Plan
from wattune.levels.kernel.planned import PlannedPipeline, Source, default_trial, timed
from wattune.levels.kernel.shape import PipelineShape
from wattune.levels.kernel.stage_profile import StageProfile

LATE = 1e-9
"""Share of its time by which a plan may be late, for the last digits of sums in another order."""

PATIENCE_S = 3600.0
"""Seconds after which a solver is stopped."""


@dataclass(frozen=True, slots=True)
class Solved:
    """One run of a solver: how long it took, how much memory, and each plan as predicted and as timed again."""

    shape: PipelineShape
    solve_s: float
    peak_mb: float | None
    predicted: tuple[Measurement, ...]
    trials: tuple[Trial[Plan], ...]
    bounds_j: tuple[float, ...]
    """One per plan; none for a solver that gives none."""

    @property
    def late(self) -> int:
        """How many plans really take longer than predicted."""
        pairs = zip(self.predicted, self.trials, strict=True)
        return sum(trial.cost.time_s > predicted.time_s * (1 + LATE) for predicted, trial in pairs)

    @property
    def gaps_percent(self) -> tuple[float, ...]:
        """How far the energy of each plan, timed again, lies above its bound."""
        pairs = zip(self.trials, self.bounds_j, strict=True)
        return tuple(100 * (trial.cost.energy_j / bound_j - 1) for trial, bound_j in pairs)

    def planned(self, profile: StageProfile, *, blocking_power_w: float) -> PlannedPipeline:
        """The plans as a frontier beside the default."""
        bounded = (
            Trial(replace(trial.choice, bound_j=bound_j), trial.cost)
            for trial, bound_j in zip(self.trials, self.bounds_j, strict=True)
        )
        return PlannedPipeline(
            self.shape,
            blocking_power_w,
            Source(profile.file, "", profile.simulated),
            default_trial(self.trials[0].choice.graph, profile, blocking_power_w=blocking_power_w),
            Frontier.of(bounded),
            "wattune",
        )


def solve(
    solver: str,
    text: str,
    profile: StageProfile,
    *,
    microbatches: int,
    blocking_power_w: float,
    points: int | None,
    repetitions: int = 1,
    patience_s: float = PATIENCE_S,
) -> Solved:
    """What a solver finds for 1F1B over the stages of a profile; an error where it gives up."""
    task = {
        "profile": text,
        "name": profile.file,
        "schedule": "1f1b",
        "microbatches": microbatches,
        "blocking_power_w": blocking_power_w,
        "points": points,
        "repetitions": repetitions,
    }
    shape = profile.shape("1f1b", microbatches)
    return _read(_run(solver, task, patience_s), shape, profile, blocking_power_w)


def _run(solver: str, task: dict[str, Any], patience_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "wattune.benchmarks.pipeline.probe", solver]
    what = f"{task['name']} × {task['microbatches']} microbatches"
    try:
        done = subprocess.run(
            command, input=json.dumps(task), capture_output=True, text=True, check=False, timeout=patience_s
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{solver} took more than {patience_s:g} s for {what}", hint="try --quick") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"{solver} gave up on {what}: {reason}", hint="try another profile")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _read(found: dict[str, Any], shape: PipelineShape, profile: StageProfile, blocking_power_w: float) -> Solved:
    graph = shape.graph
    options = [profile.options[operation.kind] for operation in graph.operations]
    predicted = tuple(Measurement(plan["time_s"], plan["energy_j"]) for plan in found["plans"])
    trials = tuple(
        timed(
            graph,
            (own[place] for own, place in zip(options, plan["options"], strict=True)),
            blocking_power_w=blocking_power_w,
        )
        for plan in found["plans"]
    )
    bounds_j = tuple(plan["bound_j"] for plan in found["plans"] if "bound_j" in plan)
    return Solved(shape, found["solve_s"], found["peak_mb"], predicted, trials, bounds_j)


@dataclass(frozen=True, slots=True)
class EqualTime:
    """Plans of a peer held against a frontier at equal time."""

    compared: int
    costlier: int
    """How many of the peer's plans spend less than the frontier's best that takes no longer."""
    worst_percent: float
    """The most that the frontier spends above a plan of the peer; negative where it always spends less."""
    saving_percent: float
    """What the frontier spends less, on average."""
    faster: int
    """How many of the peer's plans are faster than the frontier's fastest."""


def at_equal_time(planned: PlannedPipeline, peer: Iterable[Measurement]) -> EqualTime:
    """The frontier's plan for the time of each of the peer's plans, beside that plan."""
    differences, faster = [], 0
    for cost in peer:
        if cost.time_s < planned.frontier.fastest.cost.time_s * (1 - LATE):
            faster += 1
            continue
        own = planned.frontier.within(cost.time_s * (1 + LATE)).cost
        differences.append(100 * (own.energy_j / cost.energy_j - 1))
    mean = sum(differences) / len(differences) if differences else 0.0
    costlier = sum(difference > 0 for difference in differences)
    return EqualTime(len(differences), costlier, max(differences, default=0.0), -mean, faster)
