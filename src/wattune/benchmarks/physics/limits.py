"""Power limits that were not measured, and batch sizes that were not measured, from those that were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.benchmarks.datasets import zeus_profiles, zeus_tables
from wattune.benchmarks.physics.judgement import Judgement, joined, never_falling, never_rising, relative
from wattune.physics.fit.limit_fit import fit_limits
from wattune.physics.fit.limit_prior import LimitCurve
from wattune.physics.gpu_parts import Floats

_LIMIT_GOAL = 2.0
_BATCH_GOAL = 6.0
_LIMITS = 3
_THREE = "3 limits of each batch size: lowest, middle, highest"
_OTHERS = "all other limits"
_SIZES = "all limits of the other batch sizes"
_LEFT = "each batch size in turn"


def judge_table(file: Path) -> list[Judgement]:
    """Limits and batch sizes of one power table, in all and by workload."""
    curves = [curve for curve in zeus_tables.read_power_table(file) if len(curve.limit_w) > _LIMITS]
    if not curves:
        return []
    unseen = _judge_limits(curves, file.stem, zeus_tables.SOURCE, _LIMIT_GOAL)
    return [*unseen, *_judge_batch_sizes(curves, file.stem)]


def judge_profiles(files: Sequence[Path]) -> list[Judgement]:
    """Limits of single sweeps, those of one GPU fitted together; their noise leaves no room for a goal."""
    found = []
    for gpu in sorted({file.stem.partition("+")[0] for file in files}):
        curves = [zeus_profiles.read_limit_profile(file) for file in files if file.stem.partition("+")[0] == gpu]
        usable = [curve for curve in curves if len(curve.limit_w) > _LIMITS]
        if usable:
            found += _judge_limits(usable, f"{gpu} profiles", zeus_profiles.SOURCE, None)[:2]
    return found


@dataclass(slots=True)
class _Errors:
    """Errors of time and power, a part per curve."""

    time: list[Floats] = field(default_factory=list)
    power: list[Floats] = field(default_factory=list)

    def add(self, time: Floats, power: Floats) -> None:
        self.time.append(time)
        self.power.append(power)


def _judge_limits(
    curves: Sequence[LimitCurve], dataset: str, source: str, goal_percent: float | None
) -> list[Judgement]:
    used = [_three(curve) for curve in curves]
    fit = fit_limits(curves, used)
    ours, plain, floor = _Errors(), _Errors(), _Errors()
    for place, (curve, known) in enumerate(zip(curves, used, strict=True)):
        left = [index for index in range(len(curve.limit_w)) if index not in known]
        time_s, power_w = curve.time_s[left], curve.power_w[left]
        predicted_s, predicted_w = fit.predict(place, curve.limit_w[left])
        ours.add(relative(predicted_s, time_s), relative(predicted_w, power_w))
        between = [_interpolated(curve, known, left, values) for values in (curve.time_s, curve.power_w)]
        plain.add(relative(between[0], time_s), relative(between[1], power_w))
        floor.add(
            relative(never_rising(curve.time_s)[left], time_s), relative(never_falling(curve.power_w)[left], power_w)
        )

    def judged(name: str, places: Sequence[int]) -> list[Judgement]:
        return [
            Judgement(
                dataset=name,
                quantity=quantity,
                fitted_on=_THREE,
                judged_on=_OTHERS,
                errors=_some(mine, places),
                baseline="PCHIP",
                baseline_errors=_some(other, places),
                floor_errors=_some(least, places),
                goal_percent=goal_percent,
                source=source,
            )
            for quantity, mine, other, least in (
                ("time per epoch", ours.time, plain.time, floor.time),
                ("mean power", ours.power, plain.power, floor.power),
            )
        ]

    return judged(dataset, range(len(curves))) + _by_workload(curves, dataset, judged)


def _judge_batch_sizes(curves: Sequence[LimitCurve], dataset: str) -> list[Judgement]:
    """One batch size of every workload is left out at a time; workloads with a single one are not judged."""
    groups = [places for places in _workloads(curves).values() if len(places) > 1]
    ours, plain = _Errors(), _Errors()
    judged_places: list[int] = []
    for turn in range(max((len(places) for places in groups), default=0)):
        left = [places[turn] for places in groups if turn < len(places)]
        used = [[] if place in left else range(len(curve.limit_w)) for place, curve in enumerate(curves)]
        fit = fit_limits(curves, used)
        for place in left:
            curve = curves[place]
            time_s, power_w = fit.predict(place, curve.limit_w)
            ours.add(relative(time_s, curve.time_s), relative(power_w, curve.power_w))
            plain.add(*_from_neighbours(curves, place))
        judged_places += left

    def judged(name: str, places: Sequence[int]) -> list[Judgement]:
        order = [judged_places.index(place) for place in places if place in judged_places]
        return [
            Judgement(
                dataset=name,
                quantity=quantity,
                fitted_on=_SIZES,
                judged_on=_LEFT,
                errors=_some(mine, order),
                baseline="PCHIP over log batch size",
                baseline_errors=_some(other, order),
                goal_percent=_BATCH_GOAL,
                source=zeus_tables.SOURCE,
            )
            for quantity, mine, other in (
                ("time per epoch", ours.time, plain.time),
                ("mean power", ours.power, plain.power),
            )
        ]

    return judged(dataset, range(len(curves))) + _by_workload(curves, dataset, judged) if judged_places else []


def _by_workload(
    curves: Sequence[LimitCurve], dataset: str, judged: Callable[[str, Sequence[int]], list[Judgement]]
) -> list[Judgement]:
    """The same for each workload alone, without a goal."""
    rows = [row for name, places in _workloads(curves).items() for row in judged(f"{dataset}: {name}", places)]
    return [replace(row, goal_percent=None) for row in rows]


def _workloads(curves: Sequence[LimitCurve]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for place, curve in enumerate(curves):
        groups.setdefault(curve.workload, []).append(place)
    return groups


def _three(curve: LimitCurve) -> tuple[int, ...]:
    count = len(curve.limit_w)
    return 0, count // 2, count - 1


def _some(parts: Sequence[Floats], places: Sequence[int]) -> Floats:
    return joined([parts[place] for place in places])


def _interpolated(curve: LimitCurve, known: Sequence[int], left: Sequence[int], values: Floats) -> Floats:
    between = PchipInterpolator(curve.limit_w[list(known)], values[list(known)])
    return np.asarray(between(curve.limit_w[list(left)]))


def _from_neighbours(curves: Sequence[LimitCurve], place: int) -> tuple[Floats, Floats]:
    """Errors of monotone interpolation over the other batch sizes, limit by limit; straight on beyond the last."""
    curve = curves[place]
    others = [other for other in curves if other.workload == curve.workload and other is not curve]
    time: list[float] = []
    power: list[float] = []
    for index, limit_w in enumerate(curve.limit_w):
        known = [(other, np.flatnonzero(other.limit_w == limit_w)) for other in others]
        known = [(other, spots) for other, spots in known if len(spots)]
        if len(known) < 2:
            continue
        octaves = np.log2([other.batch_size for other, _ in known])
        asked = float(np.log2(curve.batch_size))
        for errors, values, measured in (
            (time, [other.time_s[spots[0]] for other, spots in known], curve.time_s[index]),
            (power, [other.power_w[spots[0]] for other, spots in known], curve.power_w[index]),
        ):
            errors.append(np.exp(_carried_on(octaves, np.log(values), asked)) / measured - 1.0)
    return np.array(time), np.array(power)


def _carried_on(places: Floats, values: Floats, asked: float) -> float:
    if places[0] <= asked <= places[-1]:
        return float(PchipInterpolator(places, values)(asked))
    first, second = (0, 1) if asked < places[0] else (-1, -2)
    slope = (values[second] - values[first]) / (places[second] - places[first])
    return float(values[first] + slope * (asked - places[first]))
