"""Every kind of GPU passes the same contract."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.devices.gpu import Gpu
from wattune.devices.simulated import SimulatedGpu
from wattune.devices.table import TableGpu
from wattune.physics.catalog import catalog_names, load_model
from wattune.testing.gpu_contract import GpuContract

TRAINING = Workload(
    name="training",
    phases=(
        Phase(name="multiply", flops=4e12, pipe=Pipe.FP16, dram_bytes=1e9, launches=50),
        Phase(name="add", flops=1e9, dram_bytes=2e10, launches=20, host_stall_s=0.005),
    ),
)

SWEEP = """workload,sm_mhz,mem_mhz,power_limit_w,time_s,energy_j
training,,,,0.10,30.0
training,1410,,,0.10,30.0
training,1005,,,0.12,24.0
training,510,,,0.20,27.0
training,,,200,0.11,21.0
training,,,400,0.10,30.0
"""


@pytest.mark.parametrize("name", catalog_names())
class TestSimulated(GpuContract):
    @pytest.fixture
    def gpu(self, name: str) -> Gpu:  # type: ignore[override]
        return SimulatedGpu(load_model(name))

    def work(self, gpu: Gpu) -> None:
        simulated = cast(SimulatedGpu, gpu)
        before_s = gpu.count().time_s
        # Long against a refresh of the counter, which may be missed or counted twice.
        while gpu.count().time_s < before_s + 5:
            simulated.run(TRAINING, iterations=20)


class TestTable(GpuContract):
    @pytest.fixture
    def gpu(self, tmp_path: Path) -> Gpu:
        file = tmp_path / "sweep.csv"
        file.write_text(SWEEP)
        return TableGpu.load(file, noise=0.01, seed=1)

    def work(self, gpu: Gpu) -> None:
        cast(TableGpu, gpu).run("training", iterations=20)

    def settings(self, gpu: Gpu) -> tuple[Setting, ...]:
        return cast(TableGpu, gpu).settings
