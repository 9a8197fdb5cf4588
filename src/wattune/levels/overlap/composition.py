"""The frontier of a microbatch, composed exactly from the frontiers of its partitions.

Notation
    F_i(f)  frontier of partition i at the core clock f, which occurs m_i times in a microbatch
    F(f)    Minkowski sum of all m_i·F_i(f), without dominated points
    F       the points of all F(f) that no other dominates

Time and energy of partitions that run one after the other are additive, so a point that another dominates within its
partition is never part of a sum that none dominates. Pruning after every addition therefore loses nothing. All
occurrences of a partition have the same setting, as in schedules of Kareus, hence m·F and not a sum of m frontiers.
Kareus multiplies times and energies by 1.15; here a factor measured on whole layers is given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.hypervolume import front_places

Floats = NDArray[np.float64]
C = TypeVar("C", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Composed(Generic[C]):
    """The choice of every partition, in the order of the partitions, and their common clock."""

    sm_mhz: int
    choices: tuple[C, ...]


@dataclass(frozen=True, slots=True)
class Part(Generic[C]):
    """A partition's trials and how often it runs in a microbatch."""

    name: str
    trials: tuple[Trial[C], ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured over composed time and energy of a short run of whole layers; 1 where none was made."""

    time: float = 1.0
    energy: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.time < np.inf and 0 < self.energy < np.inf):
            raise InputError("a calibration has finite factors above 0", hint="1 leaves the sums as they are")


UNCALIBRATED = Calibration()


def compose(
    parts: Sequence[Part[C]], clock_of: Callable[[C], int], *, calibration: Calibration = UNCALIBRATED
) -> Frontier[Composed[C]]:
    """Compose the frontier of all parts together at any common clock; `InputError` names clocks that parts lack."""
    by_clock = [_by_clock(part, clock_of) for part in parts]
    clocks = _common_clocks(parts, by_clock)
    trials: list[Trial[Composed[C]]] = []
    for sm_mhz in clocks:
        points, picks = _composed([groups[sm_mhz] for groups in by_clock], [part.count for part in parts])
        for (time_s, energy_j), rows in zip(points, picks, strict=True):
            chosen = tuple(groups[sm_mhz][row].choice for groups, row in zip(by_clock, rows, strict=True))
            cost = Measurement(time_s * calibration.time, energy_j * calibration.energy)
            trials.append(Trial(Composed(sm_mhz, chosen), cost))
    return Frontier.of(trials)


def compose_points(parts: Sequence[tuple[Floats, int]]) -> Floats:
    """Return the (n, 2) frontier of parts at one clock, each (k, 2) seconds and joules and how often it runs."""
    return reduce(_summed, (points[front_places(points)] * count for points, count in parts))


def _summed(first: Floats, second: Floats) -> Floats:
    every = (first[:, None, :] + second[None, :, :]).reshape(-1, 2)
    return np.asarray(every[front_places(every)])


def _composed(groups: Sequence[Sequence[Trial[C]]], counts: Sequence[int]) -> tuple[Floats, NDArray[np.int64]]:
    """Return points and, for each, the row of every part that it is made of."""
    points, picks = np.zeros((1, 2)), np.zeros((1, 0), dtype=np.int64)
    for trials, count in zip(groups, counts, strict=True):
        own = np.array([[trial.cost.time_s, trial.cost.energy_j] for trial in trials])
        rows = front_places(own)
        every = (points[:, None, :] + count * own[rows][None, :, :]).reshape(-1, 2)
        kept = front_places(every)
        before, added = np.divmod(kept, len(rows))
        points, picks = every[kept], np.column_stack([picks[before], rows[added]])
    return points, picks


def _by_clock(part: Part[C], clock_of: Callable[[C], int]) -> Mapping[int, list[Trial[C]]]:
    groups: dict[int, list[Trial[C]]] = {}
    for trial in part.trials:
        groups.setdefault(clock_of(trial.choice), []).append(trial)
    return groups


def _common_clocks(parts: Sequence[Part[C]], by_clock: Sequence[Mapping[int, list[Trial[C]]]]) -> list[int]:
    every = sorted({clock for groups in by_clock for clock in groups})
    if not every:
        raise InputError("there is nothing to compose", hint="measure the partitions first")
    for part, groups in zip(parts, by_clock, strict=True):
        missing = [str(clock) for clock in every if clock not in groups]
        if missing:
            raise InputError(
                f"partition {part.name} was not measured at {', '.join(missing)} MHz, where others were",
                hint="measure it there, or leave these clocks out of the other partitions",
            )
    return every
