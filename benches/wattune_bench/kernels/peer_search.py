"""Optuna's TPE and NSGA-II as searchers of a partition; the `bench` extra installs Optuna.

Both get every knob as a categorical or an integer among the values that appear. What they propose beyond the space is
told to them as failed; what they propose again is told with its known cost and does not count as a measurement.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattune.core.frontier import History, Trial
from wattune.core.measurement import Measurement
from wattune.levels.overlap.search import END, LAUNCH, C, PartitionSpace

TPE, NSGA = "optuna-tpe", "optuna-nsga2"
MISSING = "Optuna is not installed here, so its rows are left out: pip install './benches[peers]'"
_POPULATION = 20
_PATIENCE = 2
"""Proposals per choice of the space after which a search is given up: NSGA-II ends in repeating itself."""


def installed() -> bool:
    """Return whether Optuna is installed."""
    return importlib.util.find_spec("optuna") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptunaSearch:
    """A search by one of Optuna's samplers, which keep their own state."""

    seed: int
    name: str

    def run(
        self,
        space: PartitionSpace[C],
        measure: Callable[[C], Measurement],
        *,
        until: Callable[[History[C]], bool],
    ) -> History[C]:
        """Measure what the sampler asks for until `until` is satisfied, all is measured or nothing new comes."""
        study, grid, axes = self._study(), _grid(space), _axes(space)
        history: History[C] = ()
        known: dict[int, Measurement] = {}
        for _ in range(_PATIENCE * len(space)):
            trial = study.ask()
            place = grid.get(tuple(_suggested(trial, *axis) for axis in axes))
            if place is None:
                study.tell(trial, state=_failed())
                continue
            if place not in known:
                known[place] = measure(space.choices[place])
                history = (*history, Trial(space.choices[place], known[place]))
            study.tell(trial, (known[place].time_s, known[place].energy_j))
            if until(history) or len(known) == len(space):
                break
        return history

    def _study(self) -> Any:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if self.name == TPE:
            sampler: Any = optuna.samplers.TPESampler(seed=self.seed, multivariate=False)
        else:
            sampler = optuna.samplers.NSGAIISampler(seed=self.seed, population_size=_POPULATION)
        return optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)


def _failed() -> Any:
    import optuna

    return optuna.trial.TrialState.FAIL


def _axes(space: PartitionSpace[C]) -> list[tuple[str, list[float], bool]]:
    """Name, values, and whether they are categories; launch and end are one knob, the window."""
    axes = [("window", [float(row) for row in range(len(_windows(space)))], True)] if LAUNCH in space.names else []
    for name, values in zip(space.names, space.features.T, strict=True):
        if name not in (LAUNCH, END):
            axes.append((name, [float(value) for value in np.unique(values)], False))
    return axes


def _windows(space: PartitionSpace[C]) -> list[tuple[float, ...]]:
    columns = [column for column, name in enumerate(space.names) if name in (LAUNCH, END)]
    return sorted({tuple(map(float, row)) for row in space.features[:, columns]})


def _grid(space: PartitionSpace[C]) -> dict[tuple[float, ...], int]:
    windows = {window: float(place) for place, window in enumerate(_windows(space))}
    columns = [column for column, name in enumerate(space.names) if name in (LAUNCH, END)]
    others = [column for column in range(len(space.names)) if column not in columns]
    head = [(windows[tuple(map(float, row[columns]))],) if columns else () for row in space.features]
    return {
        (*first, *map(float, row[others])): place
        for place, (first, row) in enumerate(zip(head, space.features, strict=True))
    }


def _suggested(trial: Any, name: str, values: list[float], categories: bool) -> float:
    if categories:
        return float(trial.suggest_categorical(name, values))
    return values[int(trial.suggest_int(name, 0, len(values) - 1))]
