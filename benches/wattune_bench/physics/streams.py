"""The mechanism of two streams, fitted to some settings of an overlap sweep and judged on the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattune.physics.fit.overlap_curve import Places, fit_overlap
from wattune.physics.fit.overlap_streams import fit_streams
from wattune.physics.gpu_parts import Floats
from wattune_bench.datasets.overlap_sweep import SOURCE, OverlapSweep, read_overlap_sweep
from wattune_bench.physics.judgement import Judgement, relative

_SETTINGS = 30
_SEEDS = range(8)
_GOALS = (("time of two streams", 3.0), ("energy of two streams", 1.5))


def judge_streams(file: Path) -> list[Judgement]:
    """Judge time and energy over several draws of thirty settings, beside the curve that models residuals too."""
    sweep = read_overlap_sweep(file)
    if len(sweep.settings) <= _SETTINGS:
        return []
    draws = [np.random.default_rng(seed).permutation(len(sweep.settings)) for seed in _SEEDS]
    errors = [_errors(sweep, draw[:_SETTINGS], draw[_SETTINGS:]) for draw in draws]
    return [
        Judgement(
            dataset=file.stem,
            quantity=quantity,
            fitted_on=f"{_SETTINGS} settings drawn at random, seeds 0 to {len(draws) - 1}",
            judged_on=f"the other {len(sweep.settings) - _SETTINGS} settings",
            errors=np.concatenate([ours[place] for ours, _ in errors]),
            baseline="curve with a Gaussian process of its residuals",
            baseline_errors=np.concatenate([plain[place] for _, plain in errors]),
            goal_percent=goal_percent,
            source=SOURCE,
        )
        for place, (quantity, goal_percent) in enumerate(_GOALS)
    ]


def _errors(sweep: OverlapSweep, used: Places, left: Places) -> tuple[list[Floats], list[Floats]]:
    known, asked = sweep.settings.taken(used), sweep.settings.taken(left)
    measured = (sweep.time_s[left], sweep.energy_j[left])
    found = []
    for fit in (fit_streams, fit_overlap):
        predicted = fit(known, sweep.time_s[used], sweep.energy_j[used], scale=sweep.settings).predict(asked)
        found.append([relative(ours, real) for ours, real in zip(predicted, measured, strict=True)])
    return found[0], found[1]
