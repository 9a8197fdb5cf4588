"""What plans of layers are made from: layers of a simulated GPU, measured ones, or a mixture, and their origin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wattune.core.workload import Workload
from wattune.levels.layer.costs import STEP, LayerCosts, simulated_costs
from wattune.levels.layer.planner import RooflineTimes
from wattune.levels.layer.table_file import cost_table, read_table
from wattune.levels.layer.transfer import transferred, widened
from wattune.levels.layer.view.roofline import LayersAt, lower_pair
from wattune.physics.gpu_model import GpuModel


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayerSource:
    """The layers of a network on a GPU."""

    model: GpuModel
    costs: LayerCosts
    scope: str
    workload: Workload | None
    """None for measured layers, whose operations are not known."""
    batch_size: int | None
    precision: str | None
    origin: str

    @property
    def roofline(self) -> RooflineTimes | None:
        return None if self.workload is None else RooflineTimes.of(self.model, self.workload, self.costs)

    @property
    def places(self) -> tuple[LayersAt, ...]:
        """The layers at the default clocks and at lower ones."""
        if self.workload is None:
            return ()
        pairs = (self.costs.clocks_mhz[0], lower_pair(self.costs.clocks_mhz))
        return tuple(LayersAt.of(self.model, self.workload, pair, scope=self.scope) for pair in pairs)


def precision_of(workload: Workload) -> str:
    """Return the arithmetic of most operations."""
    flops: dict[str, float] = {}
    for phase in workload.phases:
        flops[phase.pipe.value] = flops.get(phase.pipe.value, 0.0) + phase.flops
    return max(flops, key=lambda name: flops[name])


def simulated_layers(
    model: GpuModel, workload: Workload, *, scope: str, all_reduce: int | None = None, traced_from: str | None = None
) -> LayerSource:
    """Compute the layers of a network on a GPU of the catalogue."""
    costs = simulated_costs(model, workload, all_reduce_gpus=all_reduce or 1)
    traced = "" if traced_from is None else f"; layers traced from {traced_from}"
    return LayerSource(
        model=model,
        costs=costs.only(scope),
        scope=scope,
        workload=workload,
        batch_size=workload.batch_size,
        precision=precision_of(workload),
        origin=f"simulated by the model of the GPU at its settled temperature{traced}",
    )


def measured_layers(
    table: Path, model: GpuModel, name: str, *, scope: str, batch_size: int | None, precision: str | None
) -> LayerSource:
    """Read the layers of a network from a complete table of measurements."""
    waiting_w = float(model.context_idle_w(np.array([float(model.max_mhz)]), model.default_mem_mhz)[0])
    workload = name if batch_size is None or ":" in name else f"{name}:{batch_size}"
    return LayerSource(
        model=model,
        costs=cost_table(table, gpu=model.name, waiting_w=waiting_w, workload=workload).only(scope),
        scope=scope,
        workload=None,
        batch_size=batch_size,
        precision=precision,
        origin=f"measured, from {table}",
    )


def transferred_layers(table: Path, model: GpuModel, workload: Workload, *, scope: str) -> LayerSource:
    """Read measured layers, and predict them at all other settings of the GPU."""
    like = simulated_layers(model, workload, scope=STEP)
    partial, known = widened(read_table(table), like.costs, limit_w=model.default_limit_w)
    found = transferred(partial, known, roofline=like.roofline)
    return replace(
        like,
        costs=found.costs.only(scope),
        scope=scope,
        origin=f"measured, from {table}: {found.measured} of {found.costs.time_s.size} ({100 * found.share:.1f} %); "
        f"the others predicted, expected errors {100 * found.time_error:.1f} % in time, "
        f"{100 * found.energy_error:.1f} % in energy",
    )
