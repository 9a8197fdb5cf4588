"""The GPU contract on the emulated NVML library, for every GPU of the catalogue that has NVML."""

import pytest

from wattune.devices.open import Surroundings, open_gpu
from wattune.physics.catalog import catalog_names, load_model
from wattune.physics.spend import tabulate
from wattune.testing.gpu_contract import GpuContract
from wattune.workloads.catalog import make_workload

NVIDIA = [name for name in catalog_names() if not name.startswith("mi")]


@pytest.fixture(params=NVIDIA)
def part(request):
    return request.param


class TestNvmlGpu(GpuContract):
    @pytest.fixture
    def gpu(self, part, emulated_node, tmp_path):
        self.node = emulated_node(part)
        self.tables = tabulate(load_model(part), make_workload("resnet50"))
        with open_gpu("nvml:0", Surroundings(tmp_path / "state")) as gpu:
            yield gpu

    def work(self, gpu):
        self.node.play(0, self.tables)
        self.node.run(0, 40)
        self.node.idle(0)
