"""Overlap settings that were not measured, from thirty that were."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattune.benchmarks.datasets.overlap_sweep import SOURCE, OverlapSweep, read_overlap_sweep
from wattune.benchmarks.physics.judgement import Judgement, joined, relative
from wattune.physics.fit.overlap_curve import Places, fit_overlap
from wattune.physics.fit.residual_process import fit_residuals
from wattune.physics.load_table import Floats

_SETTINGS = 30
_SEEDS = range(8)
_TIME_GOAL = 3.0
_ENERGY_GOAL = 1.5
# Of the mean of three repeats, by their scatter in the published sweep.
_TIME_NOISE = 0.003
_ENERGY_NOISE = 0.007


def judge_overlap(file: Path) -> list[Judgement]:
    """Time and energy over several draws of thirty settings, beside a plain Gaussian process on the same draws."""
    sweep = read_overlap_sweep(file)
    if len(sweep.settings) <= _SETTINGS:
        return []
    draws = [np.random.default_rng(seed).permutation(len(sweep.settings)) for seed in _SEEDS]
    ours = [_ours(sweep, draw[:_SETTINGS], draw[_SETTINGS:]) for draw in draws]
    plain = [_plain(sweep, draw[:_SETTINGS], draw[_SETTINGS:]) for draw in draws]
    return [
        Judgement(
            dataset=file.stem,
            quantity=quantity,
            fitted_on=f"{_SETTINGS} settings drawn at random, seeds 0 to {len(draws) - 1}",
            judged_on=f"the other {len(sweep.settings) - _SETTINGS} settings",
            errors=joined([parts[place] for parts in ours]),
            baseline="Gaussian process",
            baseline_errors=joined([parts[place] for parts in plain]),
            goal_percent=goal_percent,
            source=SOURCE,
        )
        for place, (quantity, goal_percent) in enumerate((("time", _TIME_GOAL), ("energy", _ENERGY_GOAL)))
    ]


def _ours(sweep: OverlapSweep, used: Places, left: Places) -> tuple[Floats, Floats]:
    settings = sweep.settings
    curve = fit_overlap(settings.taken(used), sweep.time_s[used], sweep.energy_j[used], scale=settings)
    time_s, energy_j = curve.predict(settings.taken(left))
    return relative(time_s, sweep.time_s[left]), relative(energy_j, sweep.energy_j[left])


def _plain(sweep: OverlapSweep, used: Places, left: Places) -> tuple[Floats, Floats]:
    features = sweep.settings.features(sweep.settings)
    errors = []
    for values, noise_sd in ((sweep.time_s, _TIME_NOISE), (sweep.energy_j, _ENERGY_NOISE)):
        known = np.log(values[used])
        process = fit_residuals(features[used], known - known.mean(), noise_sd=noise_sd)
        errors.append(relative(np.exp(known.mean() + process.predict(features[left])), values[left]))
    return errors[0], errors[1]
