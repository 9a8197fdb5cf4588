"""The time-energy frontier: each choice on it is slower and cheaper than the one before.

Notation: T time, E energy, (T*, E*) a reference point that every frontier point is compared with. A point dominates
another when it is no worse in both and better in one. Hypervolume is the area between the frontier and the reference
(Zitzler and Thiele 1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from wattune.core.errors import Infeasible
from wattune.core.measurement import Measurement

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Trial(Generic[C]):
    """A choice and its cost."""

    choice: C
    cost: Measurement


History = tuple[Trial[C], ...]


@dataclass(frozen=True, slots=True)
class Frontier(Generic[C]):
    """Trials, fastest first, each slower and cheaper than the one before."""

    trials: tuple[Trial[C], ...]

    def __post_init__(self) -> None:
        for faster, slower in pairwise(self.trials):
            if not (faster.cost.time_s < slower.cost.time_s and faster.cost.energy_j > slower.cost.energy_j):
                raise ValueError(
                    "a frontier goes from fast and expensive to slow and cheap; use Frontier.of to make one"
                )

    @classmethod
    def of(cls, trials: Iterable[Trial[C]]) -> Frontier[C]:
        """Keep the trials that no other trial dominates; of equal ones, the first."""
        frontier: list[Trial[C]] = []
        for trial in sorted(trials, key=lambda trial: (trial.cost.time_s, trial.cost.energy_j)):
            if not frontier or trial.cost.energy_j < frontier[-1].cost.energy_j:
                frontier.append(trial)
        return cls(tuple(frontier))

    def __iter__(self) -> Iterator[Trial[C]]:
        return iter(self.trials)

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def fastest(self) -> Trial[C]:
        return self._some()[0]

    @property
    def cheapest(self) -> Trial[C]:
        return self._some()[-1]

    def within(self, deadline_s: float) -> Trial[C]:
        """Return the trial of least energy that takes no longer than `deadline_s`."""
        for trial in reversed(self._some()):
            if trial.cost.time_s <= deadline_s:
                return trial
        raise Infeasible(
            f"no choice on the frontier takes {deadline_s:g} s or less",
            hint=f"the fastest choice takes {self.fastest.cost.time_s:g} s; allow at least that",
        )

    def hypervolume(self, reference: Measurement) -> float:
        """Return the area (J·s) that the frontier dominates, up to the reference point."""
        area, ceiling_j = 0.0, reference.energy_j
        for trial in self.trials:
            width_s = reference.time_s - trial.cost.time_s
            height_j = ceiling_j - trial.cost.energy_j
            if width_s > 0 and height_j > 0:
                area += width_s * height_j
                ceiling_j = trial.cost.energy_j
        return area

    @property
    def knee(self) -> Trial[C]:
        """The trial that lies furthest below the line from the fastest to the cheapest, both axes scaled to 1."""
        first, last = self.fastest.cost, self.cheapest.cost
        span_s, span_j = last.time_s - first.time_s, first.energy_j - last.energy_j
        if len(self.trials) < 3:
            return self.cheapest

        def below_chord(trial: Trial[C]) -> float:
            across = (trial.cost.time_s - first.time_s) / span_s
            down = (first.energy_j - trial.cost.energy_j) / span_j
            return down - across

        return max(self.trials, key=below_chord)

    def _some(self) -> tuple[Trial[C], ...]:
        if not self.trials:
            raise Infeasible("the frontier is empty", hint="measure at least one setting")
        return self.trials
