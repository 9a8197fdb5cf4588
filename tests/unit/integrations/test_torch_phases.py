"""The phases of a training step in PyTorch: what is reported, and a whole run in virtual time."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from wattune import tuned  # noqa: E402
from wattune.core.setting import DRIVER_DEFAULT  # noqa: E402
from wattune.core.workload import Phase, Workload  # noqa: E402
from wattune.devices.simulated import SimulatedGpu  # noqa: E402
from wattune.integrations.torch.layers import mark_phases  # noqa: E402
from wattune.physics.catalog import load_model  # noqa: E402


class Heard:
    def __init__(self):
        self.names = []

    def phase(self, name, *, stamp=None):
        assert stamp is None
        self.names.append(name)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(inplace=True), torch.nn.Linear(8, 2))


def train(model, optimizer, *, steps=2, passes=1):
    inputs = torch.arange(32.0).reshape(4, 8)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(passes):
            model(inputs).square().mean().backward()
        optimizer.step()


def test_the_phases_of_a_step_are_reported_in_order():
    heard, model = Heard(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mark_phases(heard, model, optimizer):
        train(model, optimizer)
    train(model, optimizer)
    assert heard.names == ["forward", "backward", "optimizer"] * 2


def test_accumulated_gradients_are_phases_of_one_step():
    heard, model = Heard(), network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mark_phases(heard, model, optimizer):
        train(model, optimizer, steps=1, passes=2)
    assert heard.names == ["forward", "backward", "forward", "backward", "optimizer"]


def test_evaluation_is_not_reported():
    heard, model = Heard(), network()
    with mark_phases(heard, model):
        model.eval()
        model(torch.ones(4, 8))
        model.train()
        with torch.no_grad():
            model(torch.ones(4, 8))
    assert heard.names == []


class Wrapped(torch.nn.Module):
    """A model with a submodule called model, as language models have."""

    def __init__(self):
        super().__init__()
        self.model = network()

    def forward(self, inputs):
        return self.model(inputs)


def test_a_submodule_called_model_is_no_phase_of_its_own():
    heard, model = Heard(), Wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mark_phases(heard, model, optimizer):
        train(model, optimizer, steps=1)
    assert heard.names == ["forward", "backward", "optimizer"]


def test_weights_are_the_same_with_and_without_marks():
    found = []
    for is_marked in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with mark_phases(Heard(), model, optimizer if is_marked else None):
            train(model, optimizer, steps=5)
        found.append([weight.detach().clone() for weight in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


class Broken:
    def phase(self, name, *, stamp=None):
        raise RuntimeError("not my day")


def test_training_does_not_see_a_failure(caplog):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with mark_phases(Broken(), model, optimizer):
        train(model, optimizer, steps=1)
    assert "training goes on: not my day" in caplog.text


COMPUTE = Workload(name="compute", phases=(Phase(name="compute", flops=1.2e11, launches=10),))
TRAFFIC = Workload(name="traffic", phases=(Phase(name="traffic", dram_bytes=3.8e9, launches=10),))
SLICE_S = 0.1


class Machine:
    """A simulated GPU on which the network and its optimizer do their work, a slice at a time."""

    def __init__(self):
        model = load_model("rtx-a4000")
        self.gpu = SimulatedGpu(model, switching=model.spec().switching)
        self.tick = None

    def work(self, workload, iterations):
        self.gpu.play(workload)
        while self.gpu.iterations < iterations:
            self.gpu.wait(min(max(self.gpu._left_s(iterations), 1e-6), SLICE_S))
            self.tick()


class Busy(torch.autograd.Function):
    """Keeps the GPU busy in both passes."""

    @staticmethod
    def forward(context, inputs, machine):
        context.machine = machine
        machine.work(COMPUTE, 75)
        return inputs.clone()

    @staticmethod
    def backward(context, gradient):
        context.machine.work(COMPUTE, 75)
        return gradient, None


class BusyNetwork(torch.nn.Module):
    def __init__(self, machine):
        super().__init__()
        self.machine, self.linear = machine, torch.nn.Linear(8, 2)

    def forward(self, inputs):
        return Busy.apply(self.linear(inputs), self.machine)


class BusyOptimizer(torch.optim.SGD):
    def __init__(self, machine, weights):
        super().__init__(weights, lr=0.01)
        self.machine = machine

    def step(self, closure=None):
        self.machine.work(TRAFFIC, 150)
        return super().step(closure)


def test_a_training_loop_gets_a_setting_per_phase_where_that_pays():
    machine = Machine()
    model = BusyNetwork(machine)
    optimizer = BusyOptimizer(machine, model.parameters())
    with tuned(machine.gpu, slowdown=0.05) as tuning, mark_phases(tuning, model, optimizer):
        machine.tick = tuning._session.loop.tick
        for _ in range(90):
            train(model, optimizer, steps=1)
            tuning.step()
    assert list(tuning.held_by_phase) == ["forward", "backward", "optimizer"]
    assert tuning.held_by_phase["optimizer"] < min(tuning.held_by_phase["forward"], tuning.held_by_phase["backward"])
    assert tuning.figures.held_slowdown.value <= 0.05
    assert machine.gpu.setting == DRIVER_DEFAULT
