"""Errors of a fit on measurements that it has not seen, beside a baseline that saw the same and beside the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wattune.physics.gpu_parts import Floats
from wattune_bench.result import Goal, Row, at_most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """Relative errors of one quantity of one dataset; None where there is no baseline, floor or goal."""

    dataset: str
    quantity: str = ""
    fitted_on: str
    judged_on: str
    errors: Floats = field(default_factory=lambda: np.array([]))
    source: str
    baseline: str | None = None
    baseline_errors: Floats | None = None
    floor_errors: Floats | None = None
    """Errors of the best monotone curve through all points: no physical form can do much better."""
    goal_percent: float | None = None

    @property
    def row(self) -> Row:
        return {
            "dataset": self.dataset,
            "quantity": self.quantity,
            "fitted_on": self.fitted_on,
            "judged_on": self.judged_on,
            "mape_percent": _percent(self.errors),
            "baseline": self.baseline or "none",
            "baseline_percent": _percent(self.baseline_errors),
            "noise_floor_percent": _percent(self.floor_errors),
            "goal_percent": self.goal_percent,
            "source": self.source,
        }

    @property
    def goal(self) -> Goal | None:
        if self.goal_percent is None:
            return None
        name = f"{self.dataset}: {self.quantity}, {self.judged_on}"
        return at_most(name, _percent(self.errors), self.goal_percent, unit=" %")


GroupErrors = tuple[str, tuple[tuple[Floats, ...], ...]]
"""A group, and for each quantity the errors by us, by the baseline and, where known, by the floor."""


def grouped(common: Judgement, quantities: Sequence[str], errors: Sequence[GroupErrors]) -> list[Judgement]:
    """Judge all errors together, then those of each group without a goal."""
    parts = [(common, [own for _, own in errors])]
    for group in dict.fromkeys(name for name, _ in errors):
        judgement = replace(common, dataset=f"{common.dataset}: {group}", goal_percent=None)
        parts.append((judgement, [own for name, own in errors if name == group]))
    found = []
    for judgement, some in parts:
        for place, quantity in enumerate(quantities):
            ours, plain, *floor = (np.concatenate(column) for column in zip(*(own[place] for own in some), strict=True))
            floor_errors = floor[0] if floor else None
            found.append(
                replace(judgement, quantity=quantity, errors=ours, baseline_errors=plain, floor_errors=floor_errors)
            )
    return found


def relative(predicted: Floats, measured: Floats) -> Floats:
    """Return prediction over measurement, minus 1."""
    return np.asarray(predicted / measured - 1.0)


def never_rising(values: Floats) -> Floats:
    """Return the nearest values (least squares of logarithms) that never rise: neighbours that do are pooled."""
    pools: list[tuple[float, int]] = []
    for value in np.log(values):
        mean, count = float(value), 1
        while pools and pools[-1][0] < mean:
            before, size = pools.pop()
            mean, count = (mean * count + before * size) / (count + size), count + size
        pools.append((mean, count))
    return np.asarray(np.exp(np.repeat([mean for mean, _ in pools], [count for _, count in pools])))


def never_falling(values: Floats) -> Floats:
    """Return the nearest values that never fall."""
    return never_rising(values[::-1])[::-1]


def _percent(errors: Floats | None) -> float | None:
    return None if errors is None or len(errors) == 0 else float(100.0 * np.mean(np.abs(errors)))
