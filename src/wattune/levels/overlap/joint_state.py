"""All partitions of a model in a search: what was measured of them, and what is expected at all of their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wattune.core.frontier import History
from wattune.levels.overlap.joint_surrogate import JointSurrogate, SettingGrid, fit_joint
from wattune.levels.overlap.partitions import KernelPartition
from wattune.levels.overlap.search import Floats, PartitionSpace, Places, observed
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.stream_terms import StreamTerms, model_terms
from wattune.plans.schedules import BACKWARD, FORWARD

DIRECTIONS = (FORWARD, BACKWARD)


@dataclass(frozen=True, slots=True, eq=False)
class JointPart:
    """A partition, its space, what a model expects of its streams, and what was measured."""

    partition: KernelPartition
    space: PartitionSpace[PartitionChoice]
    terms: StreamTerms
    history: History[PartitionChoice] = ()
    most: int | None = None
    """Trials that it may have."""

    @property
    def open(self) -> bool:
        """Whether it may be measured further."""
        return self.most is None or len(self.history) < self.most


@dataclass(frozen=True, slots=True, eq=False)
class JointState:
    """All partitions with what is expected of them; arrays have the settings of one partition after another."""

    parts: Sequence[JointPart]
    surrogate: JointSurrogate
    grid: SettingGrid
    measured: NDArray[np.bool_]
    logs: Floats
    """(settings, 2): measured where there is a measurement, expected elsewhere."""
    starts: Places = field(init=False)
    """Of the settings of each partition."""

    def __post_init__(self) -> None:
        sizes = [len(part.space) for part in self.parts]
        object.__setattr__(self, "starts", np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64))

    @classmethod
    def of(cls, parts: Sequence[JointPart]) -> JointState:
        """Fit the surrogate to all histories."""
        seen = [observed(part.space, part.history) for part in parts]
        terms = model_terms([part.terms for part in parts])
        grid = SettingGrid.of(terms, [choice for part in parts for choice in part.space.choices])
        starts = np.concatenate([[0], terms.ends[:-1]])
        places = np.concatenate([start + own.places for start, own in zip(starts, seen, strict=True)]).astype(np.int64)
        values, noise = (np.concatenate(own) for own in zip(*((one.logs, one.variance) for one in seen), strict=True))
        surrogate = fit_joint(terms, grid, places, values, noise)
        logs, measured = surrogate.logs.copy(), np.zeros(len(grid.clock), dtype=bool)
        logs[places], measured[places] = values, True
        return cls(parts, surrogate, grid, measured, logs)

    @property
    def allowed(self) -> NDArray[np.bool_]:
        """Settings that are measured or can be."""
        closed = np.array([not part.open for part in self.parts])
        return np.asarray(self.measured | ~closed[self.grid.partition])

    def by_part(self, values: Floats) -> list[Floats]:
        return np.split(values, self.starts[1:])

    def choices(self, places: Sequence[int]) -> tuple[tuple[PartitionChoice, ...], ...]:
        """Return settings by partition, in their order."""
        found: list[list[PartitionChoice]] = [[] for _ in self.parts]
        for place in places:
            own = int(self.grid.partition[place])
            found[own].append(self.parts[own].space.choices[place - self.starts[own]])
        return tuple(tuple(own) for own in found)

    @property
    def cells(self) -> tuple[Places, Places]:
        """Return the cell of every setting, and where cells start; settings are in the order of their clocks."""
        changes = np.diff(self.grid.clock) != 0
        changes |= np.diff(self.grid.partition) != 0
        return np.concatenate([[0], np.cumsum(changes)]), np.concatenate([[0], np.flatnonzero(changes) + 1])

    @property
    def above_best(self) -> Floats:
        """(settings,): logarithm of expected time over the least of the cell."""
        cells, starts = self.cells
        return np.asarray(self.logs[:, 0] - np.minimum.reduceat(self.logs[:, 0], starts)[cells])

    @property
    def shares(self) -> Floats:
        """(partitions,): of the time of a layer, the larger of forward and backward."""
        fastest_s = np.array([np.exp(own[:, 0].min()) for own in self.by_part(self.logs)])
        found = np.zeros(len(self.parts))
        for direction in DIRECTIONS:
            times_s = fastest_s * [part.partition.per_layer(direction) for part in self.parts]
            found = np.maximum(found, times_s / max(float(times_s.sum()), 1e-30))
        return found
