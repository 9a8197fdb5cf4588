"""The models of GPOEO: eight boosted models that predict time and energy at a clock from counters at one clock.

Source: Wang et al., "GPOEO", IEEE TPDS 2022, and the program that its authors released. The models predict energy and
time at a clock relative to the reference clock, one pair for each of three bands of the core clock and one for the
memory clock. The released program uses the models of the low core clocks for the memory clock; here the memory clock
has its own models, as in the paper.

Inputs: the clock relative to the reference, then the counters in the order of `FEATURES`. The original reads seventeen
events of one GPU; these four are available from any current profiler. The trees are LightGBM's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wattune.core.gpu_spec import GpuSpec
from wattune.core.setting import Setting
from wattune.response.boosted_trees import DEFAULT_GROWTH, Floats, Growth, grow

FEATURES = ("tensor", "fp32", "dram", "sm")

# On the RTX 3080 Ti: 1800 of 2055 MHz, with bands that end below 1020 and 1425 MHz.
_REFERENCE_SHARE = 1800 / 2055
BANDS = (0.0, 1020 / 1800, 1425 / 1800, np.inf)
# The reference memory clock is the second highest, 9251 MHz, where that is about as fast as the highest.
_NEAR = 0.95

Model = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Time and energy relative to the reference; one value per setting."""

    time: Floats
    energy: Floats


class ClockPredictor(Protocol):
    """Predicts time and energy of settings from counters at a reference."""

    @property
    def reference(self) -> Setting:
        """The setting at which counters must be read."""

    def __hash__(self) -> int: ...

    def predict(self, features: Mapping[str, float], settings: Sequence[Setting]) -> Predicted:
        """Predict time and energy of each setting relative to the reference."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PredictionTable:
    """Workloads at the clocks of one GPU; times and energies are relative to the reference."""

    reference: Setting
    names: tuple[str, ...]
    features: Floats
    """(workloads, features)"""
    sm_mhz: tuple[int, ...]
    time: Floats
    """(workloads, core clocks)"""
    energy: Floats
    mem_mhz: tuple[int, ...]
    """Ascending; empty where the memory clock cannot be set."""
    mem_time: Floats
    """(workloads, memory clocks)"""
    mem_energy: Floats


_Pair = tuple[Model, Model]
"""The models of a band: logarithms of time and of energy."""


@dataclass(frozen=True, slots=True, eq=False)
class GpoeoModels:
    """The eight models of one GPU; six where its memory clock cannot be set."""

    reference: Setting
    top: Setting
    """The clocks that the driver default counts as."""
    core: tuple[_Pair, ...]
    memory: _Pair | None

    def predict(self, features: Mapping[str, float], settings: Sequence[Setting]) -> Predicted:
        """Predict time and energy relative to the reference; the effects of core and memory clock multiply."""
        if any(setting.power_limit_w is not None for setting in settings):
            raise ValueError("the models predict clocks, not power limits")
        counters = np.array([features[name] for name in FEATURES])
        columns = [self._core(counters, settings)]
        if self.memory is not None:
            columns.append(self._memory(self.memory, counters, settings))
        time, energy = (np.prod([column[row] for column in columns], axis=0) for row in (0, 1))
        return Predicted(time, energy)

    def _core(self, counters: Floats, settings: Sequence[Setting]) -> Floats:
        clocks = np.array([setting.sm_mhz or self.top.sm_mhz for setting in settings], dtype=np.float64)
        relative = clocks / float(self.reference.sm_mhz or 1)
        found = np.ones((2, len(settings)))
        for pair, (low, high) in zip(self.core, pairwise(BANDS), strict=True):
            inside = (relative >= low) & (relative < high)
            if inside.any():
                found[:, inside] = _predicted(pair, counters, relative[inside])
        return found

    def _memory(self, pair: _Pair, counters: Floats, settings: Sequence[Setting]) -> Floats:
        clocks = np.array([setting.mem_mhz or self.top.mem_mhz for setting in settings], dtype=np.float64)
        reference = float(self.reference.mem_mhz or 1)
        found = _predicted(pair, counters, clocks / reference)
        found[:, clocks == reference] = 1.0
        return found


def reference_setting(spec: GpuSpec) -> Setting:
    """Return the clocks at which counters are read: 1800 and 9251 MHz on the RTX 3080 Ti, similar shares elsewhere."""
    clocks = spec.sm_clocks_mhz
    sm_mhz = min(clocks, key=lambda mhz: abs(mhz - _REFERENCE_SHARE * clocks[-1]))
    mem_mhz = spec.mem_clocks_mhz
    if not spec.can_lock_mem or len(mem_mhz) < 2:
        return Setting(sm_mhz)
    return Setting(sm_mhz, mem_mhz[1] if mem_mhz[1] >= _NEAR * mem_mhz[0] else mem_mhz[0])


def train(table: PredictionTable, *, growth: Growth = DEFAULT_GROWTH) -> GpoeoModels:
    """Train the models of a table."""
    core = tuple(
        _pair(table.features, relative, (table.time[:, inside], table.energy[:, inside]), growth=growth)
        for inside, relative in band_columns(table)
    )
    memory = None
    if table.mem_mhz:
        relative = np.array(table.mem_mhz) / float(table.reference.mem_mhz or 1)
        memory = _pair(table.features, relative, (table.mem_time, table.mem_energy), growth=growth)
    top = Setting(table.sm_mhz[-1], table.mem_mhz[-1] if table.mem_mhz else None)
    return GpoeoModels(table.reference, top, core, memory)


def band_columns(table: PredictionTable) -> list[tuple[NDArray[np.intp], Floats]]:
    """Return the columns of each band, from low to high, with their relative clocks."""
    relative = np.array(table.sm_mhz) / float(table.reference.sm_mhz or 1)
    # A band without clocks gets the nearest clock, so that there are always three bands.
    found = []
    for low, high in pairwise(BANDS):
        inside = np.flatnonzero((relative >= low) & (relative < high))
        if not len(inside):
            inside = np.array([len(relative) - 1 if low > relative[-1] else int(np.searchsorted(relative, low))])
        found.append((inside, relative[inside]))
    return found


def _pair(features: Floats, relative: Floats, targets: tuple[Floats, Floats], *, growth: Growth) -> _Pair:
    """Fit logarithms of time and energy, so that a relative error weighs the same at all clocks."""
    inputs = _inputs(features, relative)
    time, energy = (grow(inputs, np.log(target.ravel()), growth=growth) for target in targets)
    return time, energy


def _inputs(features: Floats, relative: Floats) -> Floats:
    """Return (workloads × clocks, 1 + features)."""
    workloads, clocks = len(features), len(relative)
    return np.column_stack([np.tile(relative, workloads), np.repeat(features, clocks, axis=0)])


def _predicted(pair: _Pair, counters: Floats, relative: Floats) -> Floats:
    """Return (2, clocks): time and energy."""
    inputs = _inputs(counters[np.newaxis, :], relative)
    return np.array([np.exp(model(inputs)) for model in pair])
