"""Pipeline stages at clocks that were not measured, from four that were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.benchmarks.datasets.stage_profiles import SOURCE, StageSweep, read_stage_profile
from wattune.benchmarks.physics.judgement import Judgement, joined, never_rising, relative
from wattune.physics.fit.stage_curve import fit_stage
from wattune.physics.load_table import Floats

_GOAL = 0.7
_CLOCKS = 4


def judge_stages(file: Path) -> list[Judgement]:
    """Time and energy of all operations of a profile, in all and by instruction; each is fitted alone."""
    sweeps = [sweep for sweep in read_stage_profile(file) if len(sweep.sm_mhz) > _CLOCKS]
    highest_mhz = max((float(sweep.sm_mhz.max()) for sweep in sweeps), default=0.0)
    errors = [(sweep.instruction, _errors(sweep, highest_mhz)) for sweep in sweeps]
    if not errors:
        return []
    instructions = sorted({instruction for instruction, _ in errors})
    found = _judged(file.stem, [parts for _, parts in errors])
    for instruction in instructions:
        own = _judged(f"{file.stem}: {instruction}", [parts for name, parts in errors if name == instruction])
        found += [replace(judgement, goal_percent=None) for judgement in own]
    return found


_Parts = tuple[tuple[Floats, Floats, Floats], tuple[Floats, Floats, Floats | None]]
"""Of time and of energy: ours, the baseline's, and the floor's."""


def _errors(sweep: StageSweep, highest_mhz: float) -> _Parts:
    used = np.round(np.linspace(0, len(sweep.sm_mhz) - 1, _CLOCKS)).astype(int)
    left = np.setdiff1d(np.arange(len(sweep.sm_mhz)), used)
    curve = fit_stage(sweep.sm_mhz[used], sweep.time_s[used], sweep.energy_j[used], highest_mhz=highest_mhz)
    time_s, energy_j = curve.predict(sweep.sm_mhz[left])
    plain_s, plain_j = (
        PchipInterpolator(sweep.sm_mhz[used], values[used])(sweep.sm_mhz[left])
        for values in (sweep.time_s, sweep.energy_j)
    )
    measured_s, measured_j = sweep.time_s[left], sweep.energy_j[left]
    floor = relative(never_rising(sweep.time_s)[left], measured_s)
    return (
        (relative(time_s, measured_s), relative(plain_s, measured_s), floor),
        (relative(energy_j, measured_j), relative(plain_j, measured_j), None),
    )


def _judged(dataset: str, errors: list[_Parts]) -> list[Judgement]:
    found = []
    for place, quantity in enumerate(("time", "energy")):
        floors = [parts[place][2] for parts in errors]
        found.append(
            Judgement(
                dataset=dataset,
                quantity=quantity,
                fitted_on=f"{_CLOCKS} clocks of each operation, evenly spaced",
                judged_on="all other clocks",
                errors=joined([parts[place][0] for parts in errors]),
                baseline="PCHIP",
                baseline_errors=joined([parts[place][1] for parts in errors]),
                floor_errors=joined([floor for floor in floors if floor is not None]),
                goal_percent=_GOAL,
                source=SOURCE,
            )
        )
    return found
