"""Made-up tables: the public ones, changed in stated ways, so that policies meet jobs that nobody tuned them for.

A made-up GPU has other power limits, another cost of each iteration and another draw than the one it was made from.
Each of its jobs gets one change more: another default, fewer sizes, another target, sizes beyond the default that
never reach the target, or epochs that do not depend on the batch size, with the smallest or the largest one best.
Everything follows from the number of the GPU. Constants of the policy were chosen on odd numbers only, so that even
ones show how it does on what it was not made for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, log2
from statistics import median

import numpy as np

from wattune.core.job import JobGpu
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune_bench.job.trace import TraceWorkload, Training

NUMBERS = (1, 2, 3, 4)
"""Made-up GPUs for each public one."""

_LIMITS_W = (
    (125.0, 150.0, 175.0, 200.0, 225.0, 250.0),
    (100.0, 125.0, 150.0, 175.0, 200.0, 225.0, 250.0, 260.0),
    (150.0, 200.0, 250.0, 300.0, 350.0),
)
_FIXED, _CROWDED = (0.02, 1.0), (0.01, 0.2)
"""Range of the time that each iteration gets on top at the default size, as a share; the same for large batches."""

_IDLE = 0.2
"""Share of the highest limit that the GPU draws during the time on top."""

_UNLIKE = 0.03
"""Standard deviation of the cost of single sizes around their curve."""

_SLOPE = (0.02, 0.08)
"""Range of the cost of an epoch per octave of the batch size, where epochs do not depend on it."""

_STALL_SLOWER, _STALL_SHORT = (1.0, 2.0), (0, 1, 2)
"""Of sizes that never reach the target: times the epochs, and recorded metrics before the target that they miss too."""

_PATIENCE = 3
_MOSTLY = 0.8
"""Share of the trainings at the default size that must reach the target."""

Random = np.random.Generator


def is_held_out(workload: TraceWorkload) -> bool:
    """Return True for a made-up GPU that no constant was chosen on."""
    return int(workload.gpu.name.rpartition("~")[2]) % 2 == 0


def made_up(workloads: Sequence[TraceWorkload], numbers: Sequence[int]) -> tuple[TraceWorkload, ...]:
    """Return the jobs of the made-up GPUs of these numbers, made from each public one."""
    gpus = dict.fromkeys(workload.gpu.name for workload in workloads)
    return tuple(
        changed
        for gpu in gpus
        for number in numbers
        for changed in _of_gpu([workload for workload in workloads if workload.gpu.name == gpu], number)
    )


def _of_gpu(workloads: Sequence[TraceWorkload], number: int) -> list[TraceWorkload]:
    # The digits of the name make the draws of two GPUs differ.
    random = np.random.default_rng([number, *workloads[0].gpu.name.encode()])
    limits_w = _LIMITS_W[random.integers(len(_LIMITS_W))]
    fixed, crowded = (_between(random, limits) for limits in (_FIXED, _CROWDED))
    order = random.permutation(len(_CHANGES))
    found = []
    for place, workload in enumerate(workloads):
        own = np.random.default_rng([number, place, *workload.name.encode()])
        job_change = list(_CHANGES)[order[place % len(order)]]
        changed = _CHANGES[job_change](workload, own)
        if changed is None or not _is_fair(changed):
            job_change, changed = "as recorded", workload
        other = _other_gpu(changed, f"{workload.gpu.name}~{number}", limits_w, fixed, crowded, own)
        found.append(replace(other, notes=(f"{other.name} on {other.gpu.name}, made up: {job_change}",)))
    return found


def _between(random: Random, limits: tuple[float, float]) -> float:
    """Draw a number whose logarithm is uniform."""
    return float(np.exp(random.uniform(*np.log(limits))))


def _other_gpu(
    workload: TraceWorkload, name: str, limits_w: Sequence[float], fixed: float, crowded: float, random: Random
) -> TraceWorkload:
    gpu = JobGpu(name=name, simulated=workload.gpu.simulated, max_power_w=limits_w[-1])
    default = workload.job.default_batch_size
    epochs = {}
    for size, cells in workload.epochs.items():
        longer = (1 + fixed * default / size + crowded * size / default) / (1 + fixed + crowded)
        longer *= float(np.exp(_UNLIKE * random.standard_normal()))
        epochs[size] = _on_limits(cells, limits_w, longer=longer)
    return replace(workload, gpu=gpu, epochs=epochs)


def _on_limits(
    cells: Mapping[Setting, Measurement], limits_w: Sequence[float], *, longer: float
) -> dict[Setting, Measurement]:
    """Return the cost of an epoch at other limits: the range of limits is stretched, and idle time is added."""
    known_w = np.array([setting.power_limit_w or 0.0 for setting in cells])
    times_s = np.array([cost.time_s for cost in cells.values()])
    powers_w = np.array([cost.power_w for cost in cells.values()])
    at_w = known_w[0] + (np.array(limits_w) - limits_w[0]) / (limits_w[-1] - limits_w[0]) * (known_w[-1] - known_w[0])
    busy_s, busy_w = np.interp(at_w, known_w, times_s), np.interp(at_w, known_w, powers_w) * np.array(limits_w) / at_w
    added_s = (longer - 1.0) * busy_s
    # Time that falls away was idle time too, but no GPU draws less than when it idles.
    energies_j = np.maximum(busy_w * busy_s + added_s * _IDLE * limits_w[-1], 0.5 * busy_w * (busy_s + added_s))
    return {
        Setting(power_limit_w=limit_w): Measurement(float(time_s), float(energy_j))
        for limit_w, time_s, energy_j in zip(limits_w, busy_s + added_s, energies_j, strict=True)
    }


def _default_moved(workload: TraceWorkload, random: Random) -> TraceWorkload | None:
    sizes = workload.job.batch_sizes
    place = sizes.index(workload.job.default_batch_size)
    others = [size for size in sizes[max(place - 3, 0) : place + 3] if size != sizes[place]]
    return replace(workload, job=replace(workload.job, default_batch_size=int(random.choice(others))))


def _sizes_thinned(workload: TraceWorkload, random: Random) -> TraceWorkload | None:
    sizes = workload.job.batch_sizes
    place = sizes.index(workload.job.default_batch_size)
    kept = sizes[place % 2 :: 2]
    del random
    if len(kept) < 3:
        return None
    job = replace(workload.job, batch_sizes=kept)
    return replace(workload, job=job, epochs={size: workload.epochs[size] for size in kept})


def _other_target(workload: TraceWorkload, random: Random) -> TraceWorkload | None:
    trainings = workload.trainings[workload.job.default_batch_size]
    metrics = sorted({metric for training in trainings for _, metric in training.steps} - {workload.job.target})
    needed = {}
    for metric in metrics:
        job = replace(workload.job, target=metric, max_epochs=10**6)
        lengths = [replace(workload, job=job).length(training) for training in trainings]
        reached = [epochs for epochs, is_reached in lengths if is_reached]
        # A target that is reached at once leaves nothing to learn from.
        if len(reached) >= _MOSTLY * len(trainings) and median(reached) >= 3:
            needed[metric] = median(reached)
    if not needed:
        return None
    metric = float(random.choice(list(needed)))
    job = replace(workload.job, target=metric, max_epochs=ceil(_PATIENCE * needed[metric]))
    return replace(workload, job=job)


def _stalled(workload: TraceWorkload, random: Random, *, above: bool) -> TraceWorkload | None:
    """Return the job with slower trainings that stall before the target, at all sizes on one side of the default."""
    default = workload.job.default_batch_size
    beyond = [size for size in workload.job.batch_sizes if (size > default if above else size < default)]
    if not beyond:
        return None
    slower, short = _between(random, _STALL_SLOWER), int(random.choice(_STALL_SHORT))
    trainings = {
        size: tuple(_short_of(workload, training, short).slower(slower) for training in some)
        if size in beyond
        else some
        for size, some in workload.trainings.items()
    }
    return replace(workload, trainings=trainings)


def _short_of(workload: TraceWorkload, training: Training, short: int) -> Training:
    """Return a training that never gets to the last recorded metrics before the target."""
    before = [(epoch, metric) for epoch, metric in training.steps if not workload.job.reaches(metric)]
    return Training(tuple(before[: max(len(before) - short, 1)]))


def _flat(workload: TraceWorkload, random: Random, *, smallest_best: bool) -> TraceWorkload:
    """Return the job with the default's trainings at every size, and costs that rise or fall gently with the size."""
    default = workload.job.default_batch_size
    slope = _between(random, _SLOPE) * (1 if smallest_best else -1)
    epochs = {
        size: {setting: cost / (1.0 / (1.0 + slope) ** log2(size / default)) for setting, cost in default_cells.items()}
        for size in workload.job.batch_sizes
        for default_cells in [workload.epochs[default]]
    }
    trainings = dict.fromkeys(workload.job.batch_sizes, workload.trainings[default])
    return replace(workload, epochs=epochs, trainings=trainings)


_CHANGES: dict[str, Callable[[TraceWorkload, Random], TraceWorkload | None]] = {
    "another default": _default_moved,
    "every second size": _sizes_thinned,
    "another target": _other_target,
    "larger sizes never reach the target": lambda workload, random: _stalled(workload, random, above=True),
    "smaller sizes never reach the target": lambda workload, random: _stalled(workload, random, above=False),
    "flat epochs, smallest best": lambda workload, random: _flat(workload, random, smallest_best=True),
    "flat epochs, largest best": lambda workload, random: _flat(workload, random, smallest_best=False),
}


def _is_fair(workload: TraceWorkload) -> bool:
    """Return True where the default nearly always reaches the target: nobody keeps one that does not."""
    trainings = workload.trainings[workload.job.default_batch_size]
    reached = sum(workload.length(training)[1] for training in trainings)
    return reached >= _MOSTLY * len(trainings)
