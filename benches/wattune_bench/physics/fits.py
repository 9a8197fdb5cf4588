"""Fits judged on measurements that they have not seen: clocks, settings, power limits and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from scipy.interpolate import PchipInterpolator

from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.fit.overlap_curve import Places, fit_overlap, fit_residuals
from wattune.physics.gpu_parts import Floats
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate
from wattune_bench.datasets import zeus_profiles, zeus_tables
from wattune_bench.datasets.clock_sweep import SOURCE as CLOCK_SOURCE
from wattune_bench.datasets.clock_sweep import read_clock_sweeps
from wattune_bench.datasets.overlap_sweep import SOURCE as OVERLAP_SOURCE
from wattune_bench.datasets.overlap_sweep import OverlapSweep, read_overlap_sweep
from wattune_bench.datasets.stage_profiles import SOURCE as STAGE_SOURCE
from wattune_bench.datasets.stage_profiles import StageSweep, read_stage_profile
from wattune_bench.datasets.zeus_tables import LimitCurve
from wattune_bench.physics.clock_curves import fit_power, fit_stage
from wattune_bench.physics.judgement import GroupErrors, Judgement, grouped, never_falling, never_rising, relative
from wattune_bench.physics.limit_fit import fit_limits

_POWER_GOAL = 2.0
_EACH = "each clock in turn"
_REST = "all other clocks"


@dataclass(frozen=True, slots=True)
class Stress:
    """A load that keeps one unit busy, measured by others: requested clock in MHz to mean power in W."""

    gpu: str
    load: str
    power_w: dict[int, float]
    capped: tuple[int, ...]
    """Requested clocks at which the power limit held the GPU back."""


# Means of steady intervals of published runs; the last clock of each is held back by the power limit.
_STRESS = (
    Stress("a100", "DGEMM", {510: 128, 810: 168, 1005: 197.5, 1110: 249, 1200: 300, 1305: 370, 1410: 399}, (1410,)),
    Stress("a40", "SGEMM", {900: 203, 1200: 238, 1740: 299}, (1740,)),
    Stress(
        "a4000",
        "FP32 kernel",
        {405: 43.9, 585: 52.1, 780: 59.0, 960: 65.0, 1155: 72.2, 1335: 79.9, 1530: 103.0, 1710: 133.8, 2100: 139.2},
        (2100,),
    ),
)
_STRESS_SOURCE = {
    "a100": "runs published with arXiv 2607.00819",
    "a40": "runs published with arXiv 2607.00819",
    "a4000": "KernelTuner/kernel_tuner",
}
# The form has four parameters, so it is judged only where at least five points are left.
_FEWEST = 6


def judge_clock_sweep(file: Path) -> list[Judgement]:
    """Predict each clock of a sweep from the others; a sweep of a few clocks is not judged."""
    return [
        _left_out(f"{file.stem}: {sweep.gpu}, {sweep.kernel}", sweep.sm_mhz, sweep.power_w, source=CLOCK_SOURCE)
        for sweep in read_clock_sweeps(file)
        if len(sweep.sm_mhz) >= _FEWEST
    ]


def judge_stress() -> list[Judgement]:
    """Predict published stress points from each other where there are enough, and by the catalogue."""
    found = []
    for stress in _STRESS:
        free = {mhz: power_w for mhz, power_w in stress.power_w.items() if mhz not in stress.capped}
        if len(free) >= _FEWEST and stress.gpu != "a4000":
            sm_mhz, power_w = np.array(list(free), dtype=np.float64), np.array(list(free.values()))
            found.append(_left_out(f"{stress.gpu} {stress.load}", sm_mhz, power_w, source=_STRESS_SOURCE[stress.gpu]))
        found.append(_by_catalogue(stress))
    return found


def _left_out(dataset: str, sm_mhz: Floats, power_w: Floats, *, source: str) -> Judgement:
    ours, plain = [], []
    for place in range(len(sm_mhz)):
        others = np.arange(len(sm_mhz)) != place
        ours.append(float(fit_power(sm_mhz[others], power_w[others]).power_w(sm_mhz[[place]])[0]))
        plain.append(float(PchipInterpolator(sm_mhz[others], power_w[others])(sm_mhz[place])))
    return Judgement(
        dataset=dataset,
        quantity="power",
        fitted_on=_REST,
        judged_on=_EACH,
        errors=relative(np.array(ours), power_w),
        baseline="PCHIP",
        baseline_errors=relative(np.array(plain), power_w),
        goal_percent=_POWER_GOAL,
        source=source,
    )


def _by_catalogue(stress: Stress) -> Judgement:
    model = load_model(stress.gpu)
    # Pure arithmetic on the pipe whose rate the load has: FP64 tensor cores of an A100 are as fast as its FP32.
    tables = tabulate(model, Workload(name=stress.load, phases=(Phase(name="multiply", flops=1e14, pipe=Pipe.FP32),)))
    mean_w = tuple(table.mean_power_w for table in tables)
    points = [loaded_point(model, Setting(sm_mhz=mhz), mean_w) for mhz in stress.power_w]
    ours = np.array([mean_w[point.row][point.column] for point in points])
    return Judgement(
        dataset=f"{stress.gpu} (simulated) {stress.load}",
        quantity="power",
        fitted_on="the catalogue, which was set with these points",
        judged_on="all clocks, the power limit acting",
        errors=relative(ours, np.array(list(stress.power_w.values()))),
        goal_percent=_POWER_GOAL,
        source=_STRESS_SOURCE[stress.gpu],
    )


_SETTINGS = 30
_SEEDS = range(8)
_TIME_GOAL = 3.0
_ENERGY_GOAL = 1.5
# Of the mean of three repeats, by their scatter in the published sweep.
_TIME_NOISE = 0.003
_ENERGY_NOISE = 0.007


def judge_overlap(file: Path) -> list[Judgement]:
    """Judge time and energy over several draws of thirty settings, beside a plain Gaussian process."""
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
            errors=np.concatenate([parts[place] for parts in ours]),
            baseline="Gaussian process",
            baseline_errors=np.concatenate([parts[place] for parts in plain]),
            goal_percent=goal_percent,
            source=OVERLAP_SOURCE,
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


_STAGES_GOAL = 0.7
_CLOCKS = 4


def judge_stages(file: Path) -> list[Judgement]:
    """Judge time and energy of all operations of a profile, in all and by instruction; each is fitted alone."""
    sweeps = [sweep for sweep in read_stage_profile(file) if len(sweep.sm_mhz) > _CLOCKS]
    highest_mhz = max((float(sweep.sm_mhz.max()) for sweep in sweeps), default=0.0)
    errors = sorted(((sweep.instruction, _stage_errors(sweep, highest_mhz)) for sweep in sweeps), key=itemgetter(0))
    common = Judgement(
        dataset=file.stem,
        fitted_on=f"{_CLOCKS} clocks of each operation, evenly spaced",
        judged_on="all other clocks",
        baseline="PCHIP",
        goal_percent=_STAGES_GOAL,
        source=STAGE_SOURCE,
    )
    return grouped(common, ("time", "energy"), errors) if errors else []


def _stage_errors(sweep: StageSweep, highest_mhz: float) -> tuple[tuple[Floats, ...], ...]:
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
        (relative(energy_j, measured_j), relative(plain_j, measured_j)),
    )


_LIMIT_GOAL = 2.0
_BATCH_GOAL = 6.0
_LIMITS = 3
_QUANTITIES = ("time per epoch", "mean power")


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
    errors: list[GroupErrors] = []
    for place, (curve, known) in enumerate(zip(curves, used, strict=True)):
        left = np.setdiff1d(np.arange(len(curve.limit_w)), known)
        quantities = zip(
            fit.predict(place, curve.limit_w[left]),
            (curve.time_s, curve.power_w),
            (never_rising, never_falling),
            strict=True,
        )
        own = []
        for ours, values, monotone in quantities:
            plain = PchipInterpolator(curve.limit_w[known], values[known])(curve.limit_w[left])
            own.append(tuple(relative(one, values[left]) for one in (ours, plain, monotone(values)[left])))
        errors.append((curve.workload, tuple(own)))
    common = Judgement(
        dataset=dataset,
        fitted_on="3 limits of each batch size: lowest, middle, highest",
        judged_on="all other limits",
        baseline="PCHIP",
        goal_percent=goal_percent,
        source=source,
    )
    return grouped(common, _QUANTITIES, errors)


def _judge_batch_sizes(curves: Sequence[LimitCurve], dataset: str) -> list[Judgement]:
    """Leave out one batch size of every workload at a time; workloads with a single one are not judged."""
    groups = [
        [place for place, curve in enumerate(curves) if curve.workload == name]
        for name in dict.fromkeys(curve.workload for curve in curves)
    ]
    groups = [places for places in groups if len(places) > 1]
    errors: list[GroupErrors] = []
    for turn in range(max((len(places) for places in groups), default=0)):
        left = [places[turn] for places in groups if turn < len(places)]
        used = [[] if place in left else range(len(curve.limit_w)) for place, curve in enumerate(curves)]
        fit = fit_limits(curves, used)
        for place in left:
            curve = curves[place]
            time_s, power_w = fit.predict(place, curve.limit_w)
            plain_time, plain_power = _from_neighbours(curves, place)
            time, power = relative(time_s, curve.time_s), relative(power_w, curve.power_w)
            errors.append((curve.workload, ((time, plain_time), (power, plain_power))))
    common = Judgement(
        dataset=dataset,
        fitted_on="all limits of the other batch sizes",
        judged_on="each batch size in turn",
        baseline="PCHIP over log batch size",
        goal_percent=_BATCH_GOAL,
        source=zeus_tables.SOURCE,
    )
    return grouped(common, _QUANTITIES, errors) if errors else []


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
