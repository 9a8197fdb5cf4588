"""From a few layers measured at a few settings to all layers at all settings: a posterior per class of layers.

`response.layer_curves` predicts; this file says which layers are alike, what to measure, and how sure the result is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattune.core.errors import InputError
from wattune.core.setting import DRIVER_DEFAULT, Setting
from wattune.levels.layer.costs import Floats, Ints, LayerCosts
from wattune.levels.layer.planner import RooflineTimes
from wattune.levels.layer.table_file import LayerTable
from wattune.response.layer_curves import LayerMeasurements, pairs_to_measure, predict_layers

PAIRS = 10
"""Settings at which each layer is measured unless another number is given; plans of simulated layers are then within a
point of those made from all measurements (`wattune bench layers`)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Costs of which only some were measured."""

    costs: LayerCosts
    measured: int
    """Number of (layer, setting) measurements."""
    time_error: float
    """Expected relative error of a layer's time where it was predicted, weighted by time."""
    energy_error: float

    @property
    def share(self) -> float:
        """Share of all (layer, setting) pairs that were measured."""
        return self.measured / self.costs.time_s.size


def layer_class(name: str) -> str:
    """Return the class of a layer by its name: its pass and its kind, such as `backward conv`."""
    pass_, _, path = name.partition("/")
    kind = re.split(r"[/.]", path)[-1] if path else pass_
    plain = re.sub(r"[#\d]+.*$", "", kind)
    return f"{pass_} {plain or kind}"


def columns_to_measure(clocks_mhz: Sequence[tuple[int, int]], count: int = PAIRS) -> tuple[int, ...]:
    """Choose the settings, by the clocks that they lead to, that say most about all others."""
    cores, memories = sorted({core for core, _ in clocks_mhz}), sorted({memory for _, memory in clocks_mhz})
    if count > len(clocks_mhz):
        raise InputError(f"there are {len(clocks_mhz)} settings, not {count}", hint="measure fewer")
    known = np.array(clocks_mhz, dtype=np.float64)
    chosen: list[int] = []
    for pair in pairs_to_measure(_spread(cores), memories, count):
        # A pair that the GPU does not reach, under its power limit or at all, is replaced by the nearest.
        distance = np.abs(np.log(known / np.array(pair, dtype=np.float64))).sum(axis=1)
        distance[chosen] = np.inf
        chosen.append(int(np.argmin(distance)))
    return tuple(sorted(chosen))


def _spread(clocks_mhz: list[int], most: int = 12) -> list[int]:
    """Return at most so many of the clocks, evenly spread, with both ends."""
    places = np.unique(np.linspace(0, len(clocks_mhz) - 1, most).round().astype(int))
    return [clocks_mhz[place] for place in places.tolist()]


def transferred(partial: LayerCosts, known: Ints | Floats, *, roofline: RooflineTimes | None = None) -> Transfer:
    """Predict what was not measured; `known` is (layers, settings), not 0 where the costs were measured.

    The other entries of `partial` are not read.
    """
    is_known = np.asarray(known, dtype=np.bool_)
    if not partial.clocks_mhz:
        raise InputError("the clocks of the settings are not known", hint="name both clocks of every setting")
    clocks = np.array(partial.clocks_mhz, dtype=np.float64)
    highest = int(np.argmax(clocks[:, 0] * 1e6 + clocks[:, 1]))
    demand = None
    if roofline is not None:
        demand = np.column_stack([roofline.compute_s[:, highest], roofline.memory_s[:, highest]])
    found = predict_layers(
        LayerMeasurements(
            names=partial.names,
            classes=tuple(map(layer_class, partial.names)),
            sm_mhz=clocks[:, 0],
            mem_mhz=clocks[:, 1],
            time_s=np.where(is_known, partial.time_s, np.nan),
            energy_j=np.where(is_known, partial.energy_j, np.nan),
            demand=demand,
        )
    )
    weights = np.where(is_known, 0.0, found.time_s)
    total_s = float(weights.sum()) or 1.0
    return Transfer(
        replace(partial, time_s=found.time_s, energy_j=found.energy_j),
        int(is_known.sum()),
        float((weights * found.time_error).sum()) / total_s,
        float((weights * found.energy_error).sum()) / total_s,
    )


CAPPED = 0.98
"""A layer that draws this share of the power limit, measured alone, ran at a lower clock than its setting says."""


def widened(table: LayerTable, like: LayerCosts, *, limit_w: float) -> tuple[LayerCosts, Floats]:
    """Arrange a measured table with gaps in the settings of other costs; return it and what of it is known.

    `like` has the same layers, such as those of the simulated GPU; its numbers are not used. Measurements at the power
    limit do not count, nor those at clocks that the whole step does not reach under that limit. Where a layer meets it
    at the default, the default means another clock for each layer, and does not count at all.
    """
    if table.names != like.names:
        missing = [name for name in like.names if name not in table.names] or list(table.names)
        raise InputError(
            f"the table has {len(table.names)} layers and {like.workload} has {len(like.names)}",
            hint=f"they differ in {missing[0]}; list the layers in the order in which they run",
        )
    known = np.zeros(like.time_s.shape)
    time_s, energy_j = np.ones(like.time_s.shape), np.ones(like.time_s.shape)
    capped = table.energy_j / table.time_s >= CAPPED * limit_w
    for column, setting in enumerate(table.settings):
        target = _column_of(setting, like)
        if target is None or (setting == DRIVER_DEFAULT and capped[:, column].any()):
            continue
        has = np.isfinite(table.time_s[:, column]) & ~capped[:, column]
        known[has, target] = 1.0
        time_s[has, target], energy_j[has, target] = table.time_s[has, column], table.energy_j[has, column]
    if not known.any():
        raise InputError(
            f"no measurement of the table is at clocks that {like.gpu} is planned at",
            hint=f"measure core clocks up to {like.clocks_mhz[0][0]} MHz, which it reaches under its power limit",
        )
    return replace(like, simulated=table.simulated, time_s=time_s, energy_j=energy_j), known


def _column_of(setting: Setting, like: LayerCosts) -> int | None:
    """Return the place of the setting that leads to the same clocks; None where there is none."""
    if setting in like.settings:
        return like.settings.index(setting)
    clocks = (setting.sm_mhz, setting.mem_mhz or like.clocks_mhz[0][1])
    return next((place for place, own in enumerate(like.clocks_mhz) if own == clocks), None)
