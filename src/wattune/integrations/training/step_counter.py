"""The energy of the steps of one process, without the evaluations and checkpoints between them.

The counters of GPUs stand still between two refreshes (100 ms on many), so steps are not measured one by one: the
energy is read when somebody asks for it, and divided by the steps since the last answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

from wattune.core.measurement import Measurement
from wattune.core.reading import Count
from wattune.core.refresh import spent_j
from wattune.devices.gpu import Gpu
from wattune.devices.meter import UNKNOWN_LIMIT_W

MOST_ERROR = 0.1
"""Largest error of a figure that is given out, as a share of it. A counter that moves every 100 ms gets there within
about a second of steps; until then the steps are added up."""


@dataclass(frozen=True, slots=True)
class StepsCost:
    """Some steps, and what all GPUs of a job together took for them."""

    steps: int
    cost: Measurement

    @property
    def is_certain(self) -> bool:
        """Return whether the error is small enough for the figure to be given out."""
        error_j, energy_j = self.cost.energy_error_j, self.cost.energy_j
        return self.steps > 0 and energy_j > 0 and error_j is not None and error_j <= MOST_ERROR * energy_j

    def __add__(self, other: StepsCost) -> StepsCost:
        return StepsCost(self.steps + other.steps, self.cost + other.cost)


NOTHING = StepsCost(0, Measurement(0.0, 0.0, 0.0, 0.0))

SIZE = 3


class StepCounter:
    """Reads the energy counters of some GPUs around steps. Paused until the first `resume`."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._gpus = tuple(gpus)
        self._since: list[Count] | None = None
        self._before = (0.0, 0.0, 0.0)
        self.steps = 0
        """Steps since the last `take`."""

    def resume(self) -> None:
        """Count from here on; more calls in a row do no harm."""
        if self._since is None:
            self._since = [gpu.count() for gpu in self._gpus]

    def pause(self) -> None:
        """Count nothing until `resume`."""
        if self._since is not None:
            self._before = self._until([gpu.count() for gpu in self._gpus])
            self._since = None

    def peek(self) -> tuple[tuple[float, float, float], list[Count]]:
        """Return seconds, joules and squared error of all since the last `take`, and the counts that they end with."""
        now = [gpu.count() for gpu in self._gpus]
        return self._until(now), now

    def take(self, now: list[Count]) -> None:
        """Begin again at these counts."""
        self._before, self.steps = (0.0, 0.0, 0.0), 0
        if self._since is not None:
            self._since = now

    def _until(self, now: Sequence[Count]) -> tuple[float, float, float]:
        if self._since is None:
            return self._before
        time_s, energy_j, error_j2 = self._before
        parts = [_spent(gpu, before, after) for gpu, before, after in zip(self._gpus, self._since, now, strict=True)]
        time_s += max((after.time_s - before.time_s for before, after in zip(self._since, now, strict=True)), default=0)
        return time_s, energy_j + sum(part[0] for part in parts), error_j2 + sum(part[1] ** 2 for part in parts)


def _spent(gpu: Gpu, before: Count, after: Count) -> tuple[float, float]:
    """Return joules and their error; nothing with the error of full power where the counter has not moved."""
    limits = gpu.spec.power_limits
    highest_w = limits.max_w if limits else UNKNOWN_LIMIT_W
    return spent_j(before, after, gpu.refresh) or (0.0, highest_w * max(after.time_s - before.time_s, 0.0))


def steps_cost(steps: int, sums: Sequence[float], maxima: Sequence[float]) -> StepsCost | None:
    """Return what all ranks took for some steps, from the sums and maxima of what each did; None where one failed."""
    if not all(map(isfinite, (*sums, *maxima))):
        return None
    return StepsCost(steps, Measurement(maxima[0], sums[1], None, sqrt(sums[2])))


FAILED = (inf,) * SIZE
"""What a rank contributes whose GPUs could not be read."""
