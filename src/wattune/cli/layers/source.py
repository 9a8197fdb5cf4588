"""What `wattune layers plan` plans with: the costs of layers and of switching, and where each comes from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wattune.cli.layers.network import layers_of, precision_of
from wattune.cli.output import print_error
from wattune.config import load_config
from wattune.core.errors import InputError, StoreError
from wattune.core.objective import parse_seconds
from wattune.core.workload import Workload
from wattune.levels.layer.costs import STEP, LayerCosts, simulated_costs
from wattune.levels.layer.planner import RooflineTimes
from wattune.levels.layer.switch_latency import KIND, latest_switching
from wattune.levels.layer.switching import SwitchCost
from wattune.levels.layer.table_file import cost_table, read_table
from wattune.levels.layer.transfer import transferred, widened
from wattune.levels.layer.view.roofline import LayersAt, lower_pair
from wattune.physics.catalog import load_model
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


def simulated_layers(
    name: str, gpu: str, *, scope: str, batch_size: int | None, precision: str | None, all_reduce: int | None
) -> LayerSource:
    """Compute the layers of a network on a GPU of the catalogue."""
    model, workload = load_model(gpu), layers_of(name, batch_size=batch_size, precision=precision)
    costs = simulated_costs(model, workload, all_reduce_gpus=all_reduce or 1)
    traced = f"; layers traced from {name}" if ".py:" in name else ""
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
    table: Path, name: str, gpu: str, *, scope: str, batch_size: int | None, precision: str | None
) -> LayerSource:
    """Read the layers of a network from a table of measurements."""
    model = load_model(gpu)
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


def transferred_layers(
    table: Path, name: str, gpu: str, *, scope: str, batch_size: int | None, precision: str | None
) -> LayerSource:
    """Read measured layers, and predict them at all other settings of the GPU."""
    like = simulated_layers(name, gpu, scope=STEP, batch_size=batch_size, precision=precision, all_reduce=None)
    partial, known = widened(read_table(table), like.costs, limit_w=like.model.default_limit_w)
    found = transferred(partial, known, roofline=like.roofline)
    return replace(
        like,
        costs=found.costs.only(scope),
        scope=scope,
        origin=f"measured, from {table}: {found.measured} of {found.costs.time_s.size} ({100 * found.share:.1f} %); "
        f"the others predicted, expected errors {100 * found.time_error:.1f} % in time, "
        f"{100 * found.energy_error:.1f} % in energy",
    )


def switching_of(
    source: LayerSource, *, latency: str | None, stall: str | None, dwell: float | None
) -> tuple[SwitchCost, str]:
    """Return the cost of switching and its origin: given, or else measured on such a GPU, or else the catalogue's."""
    known = SwitchCost.of(source.model.spec(), source.model.change)
    if latency is not None:
        cost, origin = known.at(_seconds("--switch-latency", latency)), "latency as given"
    else:
        cost, origin = _measured(source, known) or (known, _catalogue(source.model))
    if stall is not None:
        # A change of the memory clock never stalls shorter than one of the core clock.
        stall_s = _seconds("--switch-stall", stall)
        cost, origin = (
            replace(cost, sm_stall_s=stall_s, mem_stall_s=max(cost.mem_stall_s, stall_s)),
            f"{origin}, stall as given",
        )
    return (cost if dwell is None else replace(cost, dwell=dwell)), origin


def _seconds(option: str, text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError:
        raise InputError(f"{option} {text}: not a time of 0 or more", hint=f"write for example {option} 10ms") from None


def _catalogue(model: GpuModel) -> str:
    if model.switching.sm_s is None:
        return "not known for this GPU and counted as slow; measure it: wattune layers switch-latency"
    return "from the catalogue"


def _measured(source: LayerSource, known: SwitchCost) -> tuple[SwitchCost, str] | None:
    """Return what `wattune layers switch-latency` measured on a real GPU of this model, else on a simulated one."""
    from wattune.store.worker import StoreWorker

    try:
        runs = StoreWorker(load_config().store_url).call(lambda store: store.runs(kind=KIND))
    except StoreError as error:
        print_error(error, kind="warning")
        return None
    spec = source.model.spec()
    real = latest_switching(runs, replace(spec, simulated=False), known=known)
    if real is not None:
        return real, "measured on such a GPU"
    found = latest_switching(runs, spec, known=known) if source.costs.simulated else None
    return None if found is None else (found, "measured on the simulated GPU")
