"""Layers of real models: traced, played while they train on the CPU, and measured."""

from __future__ import annotations

import copy
import gc
import threading
import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_models import LanguageModel, resnet50  # noqa: E402

from fakes import FakeGpu  # noqa: E402
from wattune.core.errors import InputError, PlanError, SettingRefused  # noqa: E402
from wattune.core.frontier import Frontier, Trial  # noqa: E402
from wattune.core.measurement import Measurement  # noqa: E402
from wattune.core.reading import Count  # noqa: E402
from wattune.core.setting import DRIVER_DEFAULT, Setting  # noqa: E402
from wattune.integrations.torch import trace  # noqa: E402
from wattune.integrations.torch.layers import played_layers, trace_layers  # noqa: E402
from wattune.integrations.torch.layers.calls import heard  # noqa: E402
from wattune.integrations.torch.layers.overhead import NetworkSize, residual_network  # noqa: E402
from wattune.levels.layer.plan_file import LayerPlans, layer_plan_text  # noqa: E402
from wattune.levels.layer.player import MadeFor  # noqa: E402
from wattune.levels.layer.switching import FREE  # noqa: E402
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph  # noqa: E402

LOW, HIGH = Setting(900), Setting(1410)
TINY = NetworkSize(width=4, batch_size=2, pixels=8)


class Small(nn.Module):
    """Layers in place, an operation between layers, and a module that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True))
        self.second = nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        hidden = self.first(numbers)
        return self.second(hidden) + hidden


SMALL = [f"forward/{path}" for path in ("first.0", "first.1", "second")]
SMALL += [f"backward/{path}" for path in ("second", "first.1", "first.0")] + ["optimizer"]


class Twice(nn.Module):
    """One module called twice, and one that has two paths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(8, 8), nn.Tanh()
        self.again = self.layer

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.again(self.other(self.layer(numbers)))


class Recomputed(Small):
    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.second(checkpoint(self.first, numbers, use_reentrant=False))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        return self.gate(numbers)


class Gate(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 8)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        result = super().forward(numbers)
        return result if result.sum() > 0 else -result


class Changing(Small):
    """Layers that run in every other step."""

    skips = False

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        self.skips = not self.skips
        return self.second(numbers if self.skips else self.first(numbers))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(8, 8), nn.Linear(8, 2)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        hidden, (last, _) = self.cells(numbers)
        return self.out(hidden) + last.sum()


def names_of(workload):
    return [phase.name for phase in workload.phases]


def plan_for(names, *settings):
    graph = WorkGraph.chain(tuple(Operation(name, name) for name in names))
    chosen = [settings[place * len(settings) // len(names)] for place in range(len(names))]
    return Plan(graph, tuple(StageChoice(setting) for setting in chosen), (1.0,) * len(names), (1.0,) * len(names))


def test_a_trace_has_the_layers_in_the_order_in_which_they_run():
    workload = trace_layers(Small(), torch.zeros(4, 8))
    assert names_of(workload) == SMALL
    assert (workload.name, workload.batch_size) == ("Small:4", 4)
    assert workload.parameters == 2 * (8 * 8 + 8)  # the module that never runs has no gradients


def test_a_module_called_twice_has_numbers():
    assert names_of(trace_layers(Twice(), torch.zeros(4, 8))) == [
        *("forward/layer", "forward/other", "forward/layer#2"),
        *("backward/layer#2", "backward/other", "backward/layer", "optimizer"),
    ]


@pytest.mark.parametrize("make", [Small, Twice, Recomputed, Recurrent])
def test_layers_add_up_to_the_trace_of_the_model(make):
    inputs = torch.zeros(4, 8) if make is not Recurrent else torch.zeros(3, 4, 8)
    found, whole = trace_layers(make(), inputs), trace(make(), inputs)
    for kind, backward in (("forward", False), ("backward", True)):
        own = [phase for phase in found.phases if phase.name.startswith(kind)]
        kernels = [kernel for kernel in whole.kernels if kernel.backward == backward]
        assert sum(phase.flops for phase in own) == pytest.approx(sum(kernel.flops for kernel in kernels))
        assert sum(phase.dram_bytes for phase in own) == pytest.approx(sum(kernel.unfused_bytes for kernel in kernels))


def test_recomputed_layers_belong_to_the_backward_pass():
    plain, again = (trace_layers(make(), torch.zeros(64, 8)) for make in (Small, Recomputed))
    flops = [{phase.name: phase.flops for phase in one.phases} for one in (plain, again)]
    assert flops[1]["forward/first.0"] == flops[0]["forward/first.0"]
    assert flops[1]["backward/first.1"] > flops[0]["backward/first.1"] + flops[0]["forward/first.0"] / 2


class Heard:
    def __init__(self):
        self.names = []

    def start(self, batch_size):
        pass

    def begin(self, name):
        self.names.append(name)

    def end(self, name):
        return True

    def fail(self, error):
        raise error


def language_model():
    return LanguageModel(layers=2, width=16, heads=2, vocabulary=11, positions=8, causal=True)


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (Small, torch.randn(4, 8)),
        (Twice, torch.randn(4, 8)),
        (Recomputed, torch.randn(4, 8)),
        (Recurrent, torch.randn(3, 4, 8)),
        (lambda: nn.Linear(8, 2), torch.randn(4, 8)),
        (lambda: residual_network(TINY), TINY.images()),
        (resnet50, torch.randn(2, 3, 32, 32)),
        (language_model, torch.zeros(2, 8, dtype=torch.long)),
    ],
)
def test_a_model_on_the_cpu_runs_the_layers_of_its_trace(make, inputs):
    model, listener = make(), Heard()
    names = names_of(trace_layers(model, inputs))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    paths = {name.partition("/")[2].partition("#")[0] for name in names}
    with heard(model, listener, paths=paths, optimizer=optimizer):
        model(inputs).sum().backward()
        optimizer.step()
    assert [name for name in listener.names if name in names] == names
    model(inputs)
    assert listener.names[-1] == "optimizer"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_cannot_be_traced_is_refused_with_its_name():
    with pytest.raises(InputError, match=r"Gated cannot be traced: .*\(in forward/gate\)"):
        trace_layers(Gated(), torch.zeros(4, 8))
    with pytest.raises(InputError, match="Changing does not always run the same layers: forward/"):
        trace_layers(Changing(), torch.zeros(4, 8))
    compiled = Small()
    compiled.second = torch.compile(compiled.second, backend="eager")
    with pytest.raises(InputError, match=r"second is compiled by torch\.compile"):
        trace_layers(compiled, torch.zeros(4, 8))
    compiled = Small()
    compiled.first.compile(backend="eager")
    with pytest.raises(InputError, match="first is compiled"):
        trace_layers(compiled, torch.zeros(4, 8))
    with pytest.raises(InputError, match=r"no torch\.nn\.Module"):
        trace_layers(print, torch.zeros(4, 8))
    with pytest.raises(InputError, match="calls no module that runs a kernel"):
        trace_layers(nn.Sequential(nn.Identity()), torch.zeros(4, 8), loss=lambda _: torch.ones(1, requires_grad=True))


def test_reentrant_checkpointing_is_refused_with_the_module():
    class Reentrant(Small):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return self.second(checkpoint(self.first, self.second(numbers), use_reentrant=True))

    with pytest.raises(InputError, match=r"first is recomputed by reentrant|first\.0 is recomputed by reentrant"):
        trace_layers(Reentrant(), torch.zeros(4, 8))


def test_tracing_leaves_shared_modules_and_shared_weights_where_they_were():
    for make, inputs in ((Twice, torch.zeros(4, 8)), (language_model, torch.zeros(2, 8, dtype=torch.long))):
        model = make()
        trace_layers(model, inputs)
        assert {weight.device.type for weight in model.parameters()} == {"cpu"}
        model(inputs)


class SettableGpu(FakeGpu):
    """A GPU that takes settings down; in wall time if asked for."""

    def __init__(self, *, refuses=None, wall=False):
        super().__init__()
        self.refuses, self.wall, self.restores = refuses, wall, 0
        self.changed = threading.Condition()

    def count(self):
        return Count(time.monotonic(), 0.0) if self.wall else super().count()

    def apply(self, setting):
        if setting == self.refuses:
            raise SettingRefused("not this clock")
        with self.changed:
            super().apply(setting)
            self.changed.notify_all()

    def restore(self):
        with self.changed:
            self.setting = DRIVER_DEFAULT
            self.restores += 1
            self.changed.notify_all()


class Training:
    def __init__(self, model=None):
        torch.manual_seed(0)
        self.model = Small() if model is None else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.batches = [torch.randn(4, 8) for _ in range(4)]

    def step(self, batch, *, accumulated=1):
        self.optimizer.zero_grad()
        for _ in range(accumulated):
            loss = functional.mse_loss(self.model(batch), torch.ones(len(batch), 8))
            loss.backward()
        self.optimizer.step()
        return [loss.detach(), *(weight.grad.clone() for weight in self.model.parameters() if weight.grad is not None)]


def three_parts():
    """First forward layers, then forward and backward, then the rest: low, high, low."""
    return plan_for(SMALL, LOW, HIGH, LOW)


def play(training, gpu, plan=None, **options):
    return played_layers(training.model, plan or three_parts(), gpu, switching=FREE, **options)


def test_requests_come_in_the_planned_order_and_the_gpu_is_restored():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, optimizer=training.optimizer, inputs=torch.zeros(4, 8)) as clocks:
        for batch in training.batches:
            training.step(batch)
        assert clocks.disabled is None
        assert gpu.history == [LOW, *[HIGH, LOW] * 4]
    assert (gpu.setting, gpu.restores) == (DRIVER_DEFAULT, 1)
    training.step(training.batches[0])
    assert len(gpu.history) == 9


def test_layers_without_requests_are_no_longer_heard_after_some_steps():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, optimizer=training.optimizer) as clocks:
        for batch in training.batches:
            training.step(batch)
        heard_paths = {path for path, module in training.model.named_modules() if module._forward_pre_hooks}
        assert heard_paths == {"", "first.0", "second"}
        assert clocks.disabled is None
        training.step(training.batches[0], accumulated=2)
    assert gpu.history == [LOW, *[HIGH, LOW] * 6]


def test_losses_and_gradients_have_the_same_bits_with_a_plan():
    plain, played = Training(), Training()
    expected = [plain.step(batch) for batch in plain.batches]
    with play(played, SettableGpu(wall=True), optimizer=played.optimizer) as clocks:
        found = [played.step(batch) for batch in played.batches]
        assert clocks.disabled is None
    for one, two in zip(expected, found, strict=True):
        assert all(torch.equal(left, right) for left, right in zip(one, two, strict=True))


def test_a_thread_sets_the_clocks_of_a_gpu_in_wall_time():
    training, gpu = Training(), SettableGpu(wall=True)
    with play(training, gpu, optimizer=training.optimizer):
        training.step(training.batches[0])
        with gpu.changed:
            assert gpu.changed.wait_for(lambda: gpu.history == [LOW, HIGH, LOW], 120), gpu.history
    assert gpu.setting == DRIVER_DEFAULT


def test_a_refused_clock_ends_the_plan_and_training_goes_on(caplog):
    plain, played, gpu = Training(), Training(), SettableGpu(refuses=HIGH)
    expected = [plain.step(batch) for batch in plain.batches]
    with play(played, gpu, optimizer=played.optimizer) as clocks:
        found = [played.step(batch) for batch in played.batches]
        assert clocks.disabled == "not this clock"
        assert gpu.setting == DRIVER_DEFAULT
    assert gpu.history == [LOW]
    assert all(torch.equal(left, right) for left, right in zip(expected[-1], found[-1], strict=True))
    assert "training goes on: not this clock" in caplog.text


def test_evaluation_requests_nothing():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, optimizer=training.optimizer):
        training.model.eval()
        training.model(training.batches[0]).sum().backward()
        training.model.train()
        with torch.no_grad():
            training.model(training.batches[0])
        assert gpu.history == []
        training.step(training.batches[0])
    assert gpu.history == [LOW, HIGH, LOW]


def test_gradients_may_be_accumulated():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, optimizer=training.optimizer) as clocks:
        training.step(training.batches[0], accumulated=3)
        training.step(training.batches[0], accumulated=3)
        assert clocks.disabled is None
    assert gpu.history == [LOW, *[HIGH, LOW] * 6]


def test_a_step_that_breaks_off_is_followed_by_the_next():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, optimizer=training.optimizer) as clocks:
        with pytest.raises(RuntimeError):
            training.model(torch.zeros(4, 9))
        with pytest.raises(ZeroDivisionError):
            training.model(training.batches[0] / (1 // 0))
        training.model(training.batches[0])
        training.step(training.batches[0])
        assert clocks.disabled is None
    assert gpu.history[-1] == LOW
    assert gpu.setting == DRIVER_DEFAULT


def test_an_exception_in_the_block_restores_the_gpu():
    training, gpu = Training(), SettableGpu()
    with pytest.raises(ZeroDivisionError), play(training, gpu):
        training.model(training.batches[0] / (1 // 0))
    assert gpu.setting == DRIVER_DEFAULT
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in training.model.modules())
    with play(training, gpu):
        pass


def test_a_graph_that_outlives_the_block_reports_nothing():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu):
        loss = training.model(training.batches[0]).sum()
        before = list(gpu.history)
    loss.backward()
    assert gpu.history == before


def test_a_second_plan_on_the_same_model_or_gpu_is_refused():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu):
        with pytest.raises(PlanError, match="already"), play(Training(), gpu):
            pass
        with pytest.raises(PlanError, match="already"), play(training, SettableGpu()):
            pass


def test_a_plan_for_something_else_is_refused_before_the_first_step():
    training, gpu = Training(), SettableGpu()

    def refused(message, plan=None, **options):
        with pytest.raises(PlanError, match=message), play(training, gpu, plan, **options):
            pass

    refused("has no module 'third'", plan_for([*SMALL[:-1], "forward/third"], LOW))
    refused(
        "runs 'forward/first.1' where the plan has 'forward/second'",
        plan_for(SMALL[::2], LOW),
        inputs=torch.zeros(4, 8),
    )
    refused("no core clock of 1234 MHz", plan_for(SMALL, Setting(1234)))
    refused("made for NVIDIA A100, and this GPU is Fake GPU", made_for=MadeFor(gpu="NVIDIA A100"))
    refused("batch size of 8, and this one is 4", made_for=MadeFor(batch_size=8), inputs=torch.zeros(4, 8))
    compiled = Training(torch.compile(Small(), backend="eager"))
    with pytest.raises(InputError, match=r"model is compiled by torch\.compile"), play(compiled, gpu):
        pass
    assert gpu.history == []


def test_another_batch_size_ends_the_plan_at_the_first_step_and_is_passed_over_later():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, made_for=MadeFor(batch_size=8)) as clocks:
        training.step(training.batches[0])
        assert "batch size of 8" in clocks.disabled
    assert gpu.history == []
    with play(training, gpu, made_for=MadeFor(batch_size=4), optimizer=training.optimizer) as clocks:
        training.step(training.batches[0])
        before = list(gpu.history)
        training.step(torch.zeros(2, 8))
        assert gpu.history == before
        training.step(training.batches[0])
        assert clocks.disabled is None
    assert gpu.history == [LOW, *[HIGH, LOW] * 2]


def test_a_plan_file_knows_what_it_was_made_for(tmp_path):
    training, gpu, file = Training(), SettableGpu(), tmp_path / "plan.json"
    trial = Trial(three_parts(), Measurement(7.0, 7.0))
    plans = LayerPlans(
        workload="Small:4",
        batch_size=4,
        precision=None,
        scope="step",
        gpu="Fake GPU",
        simulated=True,
        switching=FREE,
        strategy="segments",
        default=Trial(plan_for(SMALL, DRIVER_DEFAULT), Measurement(7.0, 7.0)),
        frontier=Frontier((trial,)),
    )
    file.write_text(layer_plan_text(plans))
    with played_layers(training.model, file, gpu, optimizer=training.optimizer):
        training.step(training.batches[0])
    assert gpu.history == [LOW, HIGH, LOW]
    with (
        pytest.raises(PlanError, match="made for A100, and this GPU is Fake GPU"),
        played_layers(training.model, replace(plans, gpu="A100"), gpu),
    ):
        pass
    with played_layers(training.model, replace(plans, batch_size=5), gpu) as clocks:
        training.step(training.batches[0])
        assert "batch size of 5" in clocks.disabled
    with pytest.raises(PlanError, match="ahead of time"), played_layers(training.model, trial, gpu):
        pass


def test_a_model_that_runs_other_layers_than_planned_ends_the_plan():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, plan_for([SMALL[1], SMALL[0], *SMALL[2:]], LOW, HIGH)) as clocks:
        expected = training.step(training.batches[0])
        assert "'forward/first.0' where the plan has 'forward/first.1'" in clocks.disabled
    assert len(expected) == 5
    assert gpu.setting == DRIVER_DEFAULT


def test_a_plan_of_one_pass_leaves_the_others_alone():
    training, gpu = Training(), SettableGpu()
    with play(training, gpu, plan_for(SMALL[3:6], LOW, HIGH), optimizer=training.optimizer) as clocks:
        for batch in training.batches[:2]:
            training.step(batch)
        assert clocks.disabled is None
    assert gpu.history == [LOW, HIGH] * 2


def test_wrapped_models_are_played_as_what_they_wrap(tmp_path):
    training, gpu = Training(), SettableGpu()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(copy.deepcopy(training.model), find_unused_parameters=True)
        assert names_of(trace_layers(wrapped, torch.zeros(4, 8))) == SMALL
        training.model = wrapped
        with play(training, gpu) as clocks:
            training.step(training.batches[0])
            assert clocks.disabled is None
    finally:
        # The end of a group waits for its threads, which may wait for the interpreter to free what the model left: so
        # all its work is done and the model is gone before.
        torch.distributed.barrier()
        wrapped = training = None
        gc.collect()
        torch.distributed.destroy_process_group()
    assert gpu.history == [LOW, HIGH, LOW]
