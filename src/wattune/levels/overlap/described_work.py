"""The partitions and passes of a described model as loads that a simulated GPU plays, in place of kernels.

A partition by itself has no joins with others; a whole pass has them (`simulated_stages`). So what is measured of both
differs as it does on real GPUs, and a calibration is more than 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattune.levels.overlap.partitions import PartitionedModel
from wattune.levels.overlap.simulated_stages import (
    CostTable,
    partition_cost_table,
    played_cost_table,
    sequentially,
)
from wattune.levels.overlap.space import PartitionChoice
from wattune.levels.overlap.trial_file import PassChoice
from wattune.physics.gpu_model import GpuModel
from wattune.physics.load_table import LoadTable, LoadTables


@dataclass(frozen=True, slots=True, eq=False)
class DescribedWork:
    """What a GPU of the catalogue does for a model, split into nanobatches and not."""

    gpu: GpuModel
    split: PartitionedModel
    whole: PartitionedModel

    def partition(self, name: str, choice: PartitionChoice) -> LoadTables:
        """Return a partition by itself."""
        return self._tables(name, partition_cost_table(self.split.partition(name), self.gpu, self._everywhere(choice)))

    def run_pass(self, choice: PassChoice, layers: int) -> LoadTables:
        """Return a whole pass through so many layers."""
        model = self.split if choice.settings else self.whole
        total = CostTable(*np.zeros((3, len(self.gpu.clocks[0].sm_mhz))))
        for own in model.partitions:
            count = own.per_layer(choice.instruction)
            setting = choice.choices.get(own.name) or sequentially()(own, choice.sm_mhz)
            if count:
                total = total.plus(played_cost_table(own, self.gpu, self._everywhere(setting)).times(layers * count))
        return self._tables(choice.instruction, total)

    def _everywhere(self, choice: PartitionChoice) -> list[PartitionChoice]:
        return [replace(choice, sm_mhz=clock) for clock in self.gpu.clocks[0].sm_mhz]

    def _tables(self, name: str, cost: CostTable) -> LoadTables:
        """Tabulate a cost at every core clock as a load, the same at all memory clocks."""
        known = np.array(self.gpu.clocks[0].sm_mhz, dtype=np.float64)
        tables = []
        for mem_mhz, own in zip(self.gpu.mem_clocks_mhz, self.gpu.clocks, strict=True):
            clocks = np.array(own.sm_mhz, dtype=np.float64)
            time_s = np.interp(clocks, known, cost.time_s)[np.newaxis]
            tables.append(
                LoadTable(
                    name=name,
                    mem_mhz=mem_mhz,
                    sm_mhz=own.sm_mhz,
                    duration_s=time_s,
                    power_w=np.interp(clocks, known, cost.energy_j / cost.time_s)[np.newaxis],
                    sm_util=np.ones(1),
                    mem_util=np.zeros_like(time_s),
                )
            )
        return tuple(tables)
