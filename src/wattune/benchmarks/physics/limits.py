"""Power limits and batch sizes that were not measured, predicted from those that were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.benchmarks.datasets import zeus_profiles, zeus_tables
from wattune.benchmarks.datasets.zeus_tables import LimitCurve
from wattune.benchmarks.physics.judgement import Judgement, joined, never_falling, never_rising, relative
from wattune.benchmarks.physics.limit_fit import fit_limits
from wattune.physics.gpu_parts import Floats

_LIMIT_GOAL = 2.0
_BATCH_GOAL = 6.0
_LIMITS = 3
_QUANTITIES = ("time per epoch", "mean power")

_Errors = tuple[tuple[Floats, ...], tuple[Floats, ...]]
"""Of time and of power at the points of one curve, each by us, by the baseline and, where known, by the floor."""


def judge_table(file: Path) -> list[Judgement]:
    """Judge limits and batch sizes of one power table, in all and by workload."""
    curves = [curve for curve in zeus_tables.read_power_table(file) if len(curve.limit_w) > _LIMITS]
    if not curves:
        return []
    unseen = _judge_limits(curves, file.stem, zeus_tables.SOURCE, _LIMIT_GOAL)
    return [*unseen, *_judge_batch_sizes(curves, file.stem)]


def judge_profiles(files: Sequence[Path]) -> list[Judgement]:
    """Judge limits of single sweeps, those of one GPU fitted together; their noise leaves no room for a goal."""
    found = []
    for gpu in sorted({file.stem.partition("+")[0] for file in files}):
        curves = [zeus_profiles.read_limit_profile(file) for file in files if file.stem.partition("+")[0] == gpu]
        usable = [curve for curve in curves if len(curve.limit_w) > _LIMITS]
        if usable:
            found += _judge_limits(usable, f"{gpu} profiles", zeus_profiles.SOURCE, None)[:2]
    return found


def _judge_limits(
    curves: Sequence[LimitCurve], dataset: str, source: str, goal_percent: float | None
) -> list[Judgement]:
    """Predict every limit of each curve from its lowest, middle and highest."""
    used = [[0, len(curve.limit_w) // 2, len(curve.limit_w) - 1] for curve in curves]
    fit = fit_limits(curves, used)
    errors: dict[int, _Errors] = {}
    for place, (curve, known) in enumerate(zip(curves, used, strict=True)):
        left = np.setdiff1d(np.arange(len(curve.limit_w)), known)
        quantities = zip(
            fit.predict(place, curve.limit_w[left]),
            (curve.time_s, curve.power_w),
            (never_rising, never_falling),
            strict=True,
        )
        time, power = (
            tuple(
                relative(predicted, values[left])
                for predicted in (
                    ours,
                    PchipInterpolator(curve.limit_w[known], values[known])(curve.limit_w[left]),
                    monotone(values)[left],
                )
            )
            for ours, values, monotone in quantities
        )
        errors[place] = time, power
    common = Judgement(
        dataset=dataset,
        quantity="",
        fitted_on="3 limits of each batch size: lowest, middle, highest",
        judged_on="all other limits",
        errors=np.array([]),
        baseline="PCHIP",
        goal_percent=goal_percent,
        source=source,
    )
    return _in_all_and_by_workload(common, curves, errors)


def _judge_batch_sizes(curves: Sequence[LimitCurve], dataset: str) -> list[Judgement]:
    """Leave out one batch size of every workload at a time; workloads with a single one are not judged."""
    groups = [places for places in _by_workload(curves).values() if len(places) > 1]
    errors: dict[int, _Errors] = {}
    for turn in range(max((len(places) for places in groups), default=0)):
        left = [places[turn] for places in groups if turn < len(places)]
        used = [[] if place in left else range(len(curve.limit_w)) for place, curve in enumerate(curves)]
        fit = fit_limits(curves, used)
        for place in left:
            curve = curves[place]
            time_s, power_w = fit.predict(place, curve.limit_w)
            plain_time, plain_power = _from_neighbours(curves, place)
            errors[place] = (
                (relative(time_s, curve.time_s), plain_time),
                (relative(power_w, curve.power_w), plain_power),
            )
    common = Judgement(
        dataset=dataset,
        quantity="",
        fitted_on="all limits of the other batch sizes",
        judged_on="each batch size in turn",
        errors=np.array([]),
        baseline="PCHIP over log batch size",
        goal_percent=_BATCH_GOAL,
        source=zeus_tables.SOURCE,
    )
    return _in_all_and_by_workload(common, curves, errors) if errors else []


def _in_all_and_by_workload(
    common: Judgement, curves: Sequence[LimitCurve], errors: dict[int, _Errors]
) -> list[Judgement]:
    """Judge all curves together, then each workload without a goal."""
    parts = [(common, list(errors))]
    for name, places in _by_workload(curves).items():
        own = replace(common, dataset=f"{common.dataset}: {name}", goal_percent=None)
        parts.append((own, [place for place in places if place in errors]))
    found = []
    for judgement, places in parts:
        for number, quantity in enumerate(_QUANTITIES):
            columns = zip(*(errors[place][number] for place in places), strict=True)
            ours, plain, *floor = [joined(column) for column in columns] or [joined([]), joined([])]
            found.append(
                replace(
                    judgement,
                    quantity=quantity,
                    errors=ours,
                    baseline_errors=plain,
                    floor_errors=floor[0] if floor else None,
                )
            )
    return found


def _by_workload(curves: Sequence[LimitCurve]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for place, curve in enumerate(curves):
        groups.setdefault(curve.workload, []).append(place)
    return groups


def _from_neighbours(curves: Sequence[LimitCurve], place: int) -> tuple[Floats, Floats]:
    """Return errors of monotone interpolation over the other batch sizes, limit by limit; linear beyond the last."""
    curve = curves[place]
    others = [other for other in curves if other.workload == curve.workload and other is not curve]
    found: list[tuple[float, float]] = []
    for index, limit_w in enumerate(curve.limit_w):
        known = [(other, spots[0]) for other in others if len(spots := np.flatnonzero(other.limit_w == limit_w))]
        if len(known) < 2:
            continue
        octaves, asked = np.log2([other.batch_size for other, _ in known]), float(np.log2(curve.batch_size))
        time = _extended(octaves, np.log([other.time_s[spot] for other, spot in known]), asked)
        power = _extended(octaves, np.log([other.power_w[spot] for other, spot in known]), asked)
        found.append((np.exp(time) / curve.time_s[index] - 1.0, np.exp(power) / curve.power_w[index] - 1.0))
    errors = np.array(found).reshape(-1, 2)
    return errors[:, 0], errors[:, 1]


def _extended(places: Floats, values: Floats, asked: float) -> float:
    """Interpolate; beyond the ends, continue the line through the last two points."""
    if places[0] <= asked <= places[-1]:
        return float(PchipInterpolator(places, values)(asked))
    first, second = (0, 1) if asked < places[0] else (-1, -2)
    slope = (values[second] - values[first]) / (places[second] - places[first])
    return float(values[first] + slope * (asked - places[first]))
