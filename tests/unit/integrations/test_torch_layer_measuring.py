"""Layers of a PyTorch model, measured on a simulated GPU and run by themselves on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from torch import nn  # noqa: E402

from fakes import FakeGpu  # noqa: E402
from wattune.core.errors import InputError  # noqa: E402
from wattune.core.setting import DRIVER_DEFAULT, Setting  # noqa: E402
from wattune.devices.simulated import SimulatedGpu  # noqa: E402
from wattune.integrations.torch.layers import TorchLayers, measure_layers, trace_layers  # noqa: E402
from wattune.levels.layer.costs import simulated_costs  # noqa: E402
from wattune.levels.layer.table_file import parse_table  # noqa: E402
from wattune.physics.catalog import load_model  # noqa: E402

SETTINGS = [DRIVER_DEFAULT, Setting(1200), Setting(795)]


class Net(nn.Module):
    """Layers in place and with state, one of them called twice, and one with named arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.drop, self.out, self.scale = nn.Dropout(0.5), nn.Linear(8, 2), Scale()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.relu(self.norm(self.conv(images)))
        return self.scale(numbers=self.relu(self.out(self.drop(hidden.mean((2, 3))))))


class Scale(nn.Module):
    def forward(self, *, numbers: torch.Tensor) -> torch.Tensor:
        return 2 * numbers


def images():
    return torch.randn(4, 3, 8, 8)


def test_layers_are_measured_on_a_simulated_gpu():
    gpu, model = SimulatedGpu(load_model("a4000")), Net()
    found = measure_layers(model, images(), gpu, SETTINGS)
    workload = trace_layers(model, images())
    expected = simulated_costs(gpu.model, workload)
    assert found.costs.names == expected.names
    assert found.costs.simulated
    assert (found.costs.workload, found.costs.gpu) == ("Net:4", "NVIDIA RTX A4000")
    assert found.costs.settings == tuple(SETTINGS)
    column = expected.settings.index(Setting(795))
    assert found.costs.time_s[:, 2] == pytest.approx(expected.time_s[:, column], rel=1e-3)
    assert found.costs.energy_j[:, 2] == pytest.approx(expected.energy_j[:, column], rel=0.1)  # another temperature
    assert parse_table(found.csv, file="layers.csv").time_s == pytest.approx(found.costs.time_s)


def test_a_model_on_the_cpu_cannot_be_measured_on_a_real_gpu():
    with pytest.raises(InputError, match=r"on cpu, where Fake GPU \(simulated\) does not run them"):
        measure_layers(Net(), images(), FakeGpu(), [DRIVER_DEFAULT])


def test_every_layer_runs_by_itself_any_number_of_times():
    model, batch = Net(), images()
    optimizer = torch.optim.Adam(model.parameters())
    names = [phase.name for phase in trace_layers(model, batch).phases]
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    layers = TorchLayers(model, batch, names=names, optimizer=optimizer)
    assert list(layers.names) == names
    assert "forward/relu#2" in names
    for name in names:
        layers.prepare(name)(3)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert TorchLayers(model, batch, names=names).names == tuple(names[:-1])


def test_measuring_leaves_the_model_as_it_was():
    model = Net().eval()
    batch = images()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.random.get_rng_state()

    class Runner:
        names = ("forward/norm",)
        gpu = SimulatedGpu(load_model("a4000"))

        def prepare(self, name):
            run = TorchLayers(model, batch, names=["forward/norm", "forward/drop"]).prepare(name)
            workload = trace_layers(model, batch)
            return lambda times: (run(1), self.gpu.run(workload, iterations=times))

        def wait(self, seconds):
            self.gpu.idle(seconds)

    runner = Runner()
    measure_layers(model, batch, runner.gpu, [Setting(900)], runner=runner)
    assert not model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random)
