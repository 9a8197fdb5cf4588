"""Measure the stage profile of a pipeline while it trains: one clock after another, then the GPUs are restored.

Every rank measures its instructions at a clock as `tuner` does, all ranks exchange what they found, and the same rows
follow on each. A file that already has a clock for every kind of instruction is continued: only the rest is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wattune.core.csv_input import csv_text
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Trial
from wattune.core.setting import Setting
from wattune.levels.pipeline.online import OnlinePlanning, PlanProfiled, PlanProfiling, Progress, Readings
from wattune.plans.plan import StageChoice
from wattune.plans.stage_profile import REQUIRED, StageProfile

Rows = Mapping[str, Sequence[Trial[Setting]]]
"""The trials of each kind of instruction."""


@dataclass(frozen=True, slots=True)
class StageProfiling:
    """Profile with the settings of a planning, and plan nothing."""

    planning: OnlinePlanning

    def step(self, progress: Progress, readings: Readings) -> Progress:
        """Return the progress after one more iteration, given the readings of all ranks."""
        if not isinstance(progress, PlanProfiling):
            return progress
        after = self.planning.collected(progress, readings)
        if after.place < len(self.planning.settings):
            return after
        trials = tuple((kind, trial) for kind, own in self.planning.means(after).items() for trial in own)
        return PlanProfiled(trials, fmean(after.waiting_w) if after.waiting_w else None)

    def rows(self, progress: Progress) -> Rows:
        """Return the rows that a progress has: those of every clock that is measured."""
        match progress:
            case PlanProfiling():
                return self.planning.means(progress)
            case PlanProfiled():
                found: dict[str, tuple[Trial[Setting], ...]] = {}
                for kind, trial in progress.trials:
                    found[kind] = (*found.get(kind, ()), trial)
                return found
            case _:
                return {}


def profile_csv(rows: Rows, *, simulated: bool, gpu: str | None = None, waiting_w: float | None = None) -> str:
    """Write rows as a stage profile, by stage and instruction, highest clock first; with the GPU where it is known."""
    known = {"gpu": gpu, "waiting_w": waiting_w}
    extra = {name: str(value) for name, value in known.items() if value is not None}
    lines: list[tuple[object, ...]] = [(*REQUIRED, "simulated", *extra)]
    for kind in sorted(rows, key=lambda kind: (int(kind.partition(".")[0]), kind)):
        stage, _, instruction = kind.partition(".")
        for trial in sorted(rows[kind], key=lambda trial: -(trial.choice.sm_mhz or 0)):
            cost, label = trial.cost, "yes" if simulated else "no"
            cells = (repr(cost.time_s), repr(cost.energy_j), label, *extra.values())
            lines.append((stage, instruction, trial.choice.sm_mhz, *cells))
    return csv_text(lines)


def rows_of(profile: StageProfile | None) -> dict[str, tuple[Trial[Setting], ...]]:
    """Return the rows of a profile that was begun; none where there is none."""
    if profile is None:
        return {}
    plain = all(trial.choice == StageChoice(Setting(trial.choice.setting.sm_mhz)) for _, trial in _trials(profile))
    if not plain:
        raise InputError(
            f"{profile.file} has more than core clocks, which a profile of a running pipeline has not",
            hint="choose another file",
        )
    return {
        kind: tuple(Trial(own.choice.setting, own.cost) for own in trials) for kind, trials in profile.options.items()
    }


def remaining(planning: OnlinePlanning, rows: Rows, *, simulated: bool, begun: StageProfile | None) -> OnlinePlanning:
    """Return the planning with only the clocks that the rows lack for some kind of instruction."""
    if begun is not None and begun.simulated != simulated:
        raise InputError(f"{begun.file} mixes simulated and measured rows with this GPU", hint="choose another file")
    kinds = {operation.kind for operation in planning.graph.operations}
    strange = sorted(set(rows) - kinds)
    if strange:
        raise PlanError(f"the profile has {strange[0]}, which this pipeline does not run", hint="choose another file")
    known = {kind: {trial.choice for trial in rows.get(kind, ())} for kind in kinds}
    left = tuple(setting for setting in planning.settings if any(setting not in own for own in known.values()))
    return replace(planning, settings=left)


def merged(rows: Rows, new: Rows) -> dict[str, tuple[Trial[Setting], ...]]:
    """Return the rows of both; where both have a setting, the new one."""
    found = dict[str, tuple[Trial[Setting], ...]]()
    for kind in dict.fromkeys((*rows, *new)):
        by_setting = {trial.choice: trial for trial in (*rows.get(kind, ()), *new.get(kind, ()))}
        found[kind] = tuple(by_setting.values())
    return found


def _trials(profile: StageProfile) -> list[tuple[str, Trial[StageChoice]]]:
    return [(kind, trial) for kind, trials in profile.options.items() for trial in trials]
