"""The cases of `wattune bench pipeline`, and what a solver found for one, timed again from the profile."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import sin
from pathlib import Path
from typing import Any

import numpy as np

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline.planned import PlannedPipeline, Source, default_trial
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.plans.plan import Plan
from wattune.plans.shape import PipelineShape
from wattune.plans.stage_profile import StageProfile, parse_stage_profile
from wattune_bench.datasets import stage_profiles
from wattune_bench.datasets.find import data_files, text_of, with_columns

BLOCKING_POWER_W = {"a100": 83.64, "a40": 70.38}
"""Watts of a GPU that waits in NCCL for its neighbour; SOSP'24 artifact of Perseus."""

SHARE_OF_LEAST = 0.38
"""Power of a GPU that waits, as a share of the least power of any instruction: 0.37 and 0.40 on A100 and A40."""

SLOWDOWN = 1.2
"""The straggler of Figure 7 of the paper."""

STRAGGLER_MICROBATCHES = 96


@dataclass(frozen=True, slots=True)
class Published:
    """Results of the paper's emulation for one model on one GPU (Table 6 and Figure 7)."""

    saving_percent: Mapping[int, float]
    """Intrinsic saving by number of microbatches."""
    straggler_saving_percent: float
    slowest: float
    """T*/T: the time of least energy as a multiple of the fastest."""


PUBLISHED = {
    ("gpt3175b", "a100"): Published({12: 15.20, 24: 14.19, 48: 13.62, 96: 13.32}, 27.0, 1.15),
    ("gpt3175b", "a40"): Published({12: 11.81, 24: 10.22, 48: 9.34, 96: 8.88}, 23.6, 1.11),
    ("bloom176b", "a100"): Published({12: 10.47, 24: 7.06, 48: 5.23, 96: 4.28}, 29.9, 1.20),
    ("bloom176b", "a40"): Published({12: 6.97, 24: 4.49, 48: 3.12, 96: 2.41}, 21.1, 1.14),
}


@dataclass(frozen=True, slots=True)
class PipelineCase:
    """A profile as text and parsed, the power of a GPU that waits, and what is published about it."""

    name: str
    text: str
    profile: StageProfile
    blocking_power_w: float
    published: Published | None


def find_cases(data: Path) -> tuple[tuple[PipelineCase, ...], tuple[str, ...]]:
    """The profiles of a folder, and a remark for each whose blocking power is not known from a measurement."""
    cases, remarks = [], []
    for file in with_columns(data_files(data), stage_profiles.COLUMNS):
        text = text_of(file)
        name = file.stem.removeprefix("stage_profile_")
        profile = parse_stage_profile(text, file=file.name)
        gpu = _gpu(file.stem)
        if gpu is not None:
            cases.append(PipelineCase(name, text, profile, BLOCKING_POWER_W[gpu], _published(file.stem, gpu)))
            continue
        blocking_power_w = _likely_blocking_power_w(profile)
        known = " or ".join(BLOCKING_POWER_W)
        remarks.append(
            f"{file.name}: its name has no {known}, so a waiting GPU is taken to draw {blocking_power_w:.1f} W, "
            f"{SHARE_OF_LEAST:.0%} of the least power in the file, as on these two."
        )
        cases.append(PipelineCase(name, text, profile, blocking_power_w, None))
    if not cases:
        raise InputError(
            f"{data} has no stage profile",
            hint="it is a CSV file such as stage_profile_MODEL_a100.csv with stage,instruction,frequency,time,energy",
        )
    return tuple(cases), tuple(remarks)


def _gpu(stem: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", stem.lower())
    return next((gpu for gpu in BLOCKING_POWER_W if gpu in words), None)


def _likely_blocking_power_w(profile: StageProfile) -> float:
    """The power of a waiting GPU that nobody has measured, from the least that any row draws."""
    least_w = min(trial.cost.power_w for trials in profile.options.values() for trial in trials)
    return SHARE_OF_LEAST * least_w


def _published(stem: str, gpu: str) -> Published | None:
    plain = re.sub(r"[^a-z0-9]", "", stem.lower())
    return next((own for (model, part), own in PUBLISHED.items() if part == gpu and model in plain), None)


def made_up_profile(profile: StageProfile, *, stages: int, clocks: int) -> str:
    """A profile of so many uneven stages and clocks, drawn through the curves of a measured one."""
    lines = ["stage,instruction,frequency,time,energy"]
    for stage in range(stages):
        share = 1 + 0.06 * sin(2.4 * stage)
        for instruction in ("forward", "backward"):
            trials = profile.options[f"{stage % profile.stages}.{instruction}"]
            rows = sorted((t.choice.setting.sm_mhz or 0, t.cost.time_s, t.cost.energy_j) for t in trials)
            known_mhz, times_s, energies_j = np.array(rows).T
            for mhz in np.linspace(known_mhz[0], known_mhz[-1], clocks).round():
                time_s, energy_j = (share * float(np.interp(mhz, known_mhz, own)) for own in (times_s, energies_j))
                lines.append(f"{stage},{instruction},{mhz:.0f},{time_s!r},{energy_j!r}")
    return "\n".join(lines) + "\n"


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
        """The number of plans that really take longer than predicted."""
        pairs = zip(self.predicted, self.trials, strict=True)
        return sum(trial.cost.time_s > predicted.time_s * (1 + LATE) for predicted, trial in pairs)

    @property
    def gaps_percent(self) -> tuple[float, ...]:
        """The energy of each plan, timed again, above its bound."""
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
    points: int | None = None,
    times_s: tuple[float, ...] = (),
    patience_s: float = PATIENCE_S,
) -> Solved:
    """Run a solver on 1F1B over the stages of a profile; raise where it gives up."""
    task = {
        "profile": text,
        "name": profile.file,
        "schedule": "1f1b",
        "microbatches": microbatches,
        "blocking_power_w": blocking_power_w,
        "points": points,
        "times_s": times_s,
    }
    shape = profile.shape("1f1b", microbatches)
    return _read(_run(solver, task, patience_s), shape, profile, blocking_power_w)


def _run(solver: str, task: dict[str, Any], patience_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "wattune_bench.pipeline.probe", solver]
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


def peer_times_s(peer: Solved, count: int) -> tuple[float, ...]:
    """The times of so many of the peer's plans that none of its others beats, evenly spaced in energy.

    Evenly spaced in time they would be too far apart where the frontier is steep.
    """
    costs = [trial.cost for trial in Frontier.of(peer.trials)]
    energies_j = np.array([cost.energy_j for cost in costs])
    wanted_j = np.linspace(energies_j[0], energies_j[-1], count)
    places = np.searchsorted(-energies_j, -wanted_j)
    return tuple(costs[place].time_s for place in sorted(set(places.tolist())))


@dataclass(frozen=True, slots=True)
class EqualTime:
    """Plans of a peer held against a frontier at equal time."""

    compared: int
    costlier: int
    """The number of the peer's plans that spend less than the frontier's best that takes no longer."""
    worst_percent: float
    """The most that the frontier spends above a plan of the peer; negative where it always spends less."""
    saving_percent: float
    """Energy that the frontier saves on average."""
    faster: int
    """The number of the peer's plans that are faster than the frontier's fastest."""


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
