"""Hooks for Megatron-LM and DeepSpeed, on stand-ins that have their interfaces and none of their code."""

from __future__ import annotations

from types import MethodType, SimpleNamespace

import pytest

from fakes import FakeGpu
from pipelines import planned_at
from wattune.control.ranks import Alone
from wattune.core.errors import InputError, PlanError
from wattune.core.setting import DRIVER_DEFAULT
from wattune.integrations.pipeline_steps import deepspeed_hooks, megatron_hooks, played_steps, profiled_steps
from wattune.levels.pipeline.online import PlanProfiling
from wattune.levels.pipeline.plan_file import plan_text
from wattune.plans.schedules import BACKWARD, FORWARD, interleaved, one_forward_one_backward
from wattune.plans.shape import PipelineShape

CLOCKS = (1410, 900, 1005)


class Heard:
    """A listener that writes down what it hears."""

    def __init__(self):
        self.events, self.failure = [], None

    def start(self):
        self.events.append("start")

    def begin(self, piece):
        self.events.append(piece.name)

    def end(self, piece):
        assert self.events[-1] == piece.name

    def finish(self):
        self.events.append("finish")

    def fail(self, error):
        self.failure = error


def megatron(order):
    """A module whose schedule calls its own `forward_step` and `backward_step`, by name as modules do."""
    module = SimpleNamespace(done=[])

    def forward_step(forward_step_func, data_iterator):
        module.done.append(FORWARD)
        return forward_step_func(data_iterator)

    def backward_step(input_tensor, output_tensor):
        module.done.append(BACKWARD)

    def schedule(*, forward_step_func, data_iterator, forward_only=False):
        for piece in order:
            if piece.instruction == FORWARD:
                module.forward_step(forward_step_func, data_iterator)
            elif not forward_only:
                module.backward_step(None, None)
        return len(order)

    module.forward_step, module.backward_step = forward_step, backward_step
    module.forward_backward_pipelining_without_interleaving = schedule
    module.get_forward_backward_func = lambda: module.forward_backward_pipelining_without_interleaving
    return module


class ForwardPass:
    pass


class BackwardPass:
    pass


class LoadMicroBatch:
    pass


class Engine:
    """An engine that finds the function of an instruction in a map of its class."""

    def __init__(self, order):
        self.order, self.done = order, []

    def _exec_forward_pass(self, buffer_id):
        self.done.append((FORWARD, buffer_id))

    def _exec_backward_pass(self, buffer_id):
        self.done.append((BACKWARD, buffer_id))

    def _exec_load_micro_batch(self, buffer_id):
        self.done.append(("load", buffer_id))

    _INSTRUCTION_MAP = {  # noqa: RUF012 - as theirs
        ForwardPass: _exec_forward_pass,
        BackwardPass: _exec_backward_pass,
        LoadMicroBatch: _exec_load_micro_batch,
    }

    def _run(self, instructions):
        for number, instruction in enumerate(instructions):
            command = {FORWARD: ForwardPass, BACKWARD: BackwardPass, "load": LoadMicroBatch}[instruction]
            MethodType(self._INSTRUCTION_MAP[command], self)(buffer_id=number % 2)

    def train_batch(self, data_iter=None):
        self._run(["load", *(piece.instruction for piece in self.order)])
        return 0.25

    def eval_batch(self, data_iter=None):
        self._run([FORWARD])


def rank_of(order, number):
    return planned_at(order, CLOCKS), order[number]


@pytest.fixture
def heard(monkeypatch):
    """The listener that hooks get in place of the one that plays."""
    found = Heard()
    monkeypatch.setattr("wattune.integrations.pipeline_steps.PlanListener", lambda *_: found)
    return found


@pytest.mark.parametrize(
    "order", [one_forward_one_backward(3, 4), interleaved(2, 4, chunks=2)], ids=["1f1b", "interleaved"]
)
def test_megatron_runs_the_instructions_of_the_plan(heard, order):
    planned, own = rank_of(order, 1)
    module = megatron(own)
    before = vars(module).copy()
    with played_steps(planned.plan.choice, FakeGpu(), rank=1) as hooks, megatron_hooks(module, hooks):
        run = module.get_forward_backward_func()
        for _ in range(2):
            assert run(forward_step_func=lambda data: data, data_iterator=3) == len(own)
        run(forward_step_func=lambda data: data, data_iterator=3, forward_only=True)
    assert heard.failure is None
    assert heard.events == ["start", *(piece.name for piece in own), "finish"] * 2
    assert module.done[: len(own)] == [piece.instruction for piece in own]
    assert vars(module) == before


def test_deepspeed_runs_the_instructions_of_the_plan(heard, tmp_path):
    planned, own = rank_of(one_forward_one_backward(3, 4), 0)
    file = tmp_path / "plan.json"
    file.write_text(plan_text(planned))
    engine, plain = Engine(own), Engine(own)
    with played_steps(file, FakeGpu(), rank=0) as hooks, deepspeed_hooks(engine, hooks):
        assert engine.train_batch() == plain.train_batch()
        engine.eval_batch()
    plain.eval_batch()
    assert heard.events == ["start", *(piece.name for piece in own), "finish"]
    assert engine.done == plain.done
    assert "_INSTRUCTION_MAP" not in vars(engine)
    engine.train_batch()
    assert len(heard.events) == len(own) + 2


def test_the_clocks_of_the_plan_are_set_and_given_back():
    order = one_forward_one_backward(2, 3)
    planned, own = rank_of(order, 1)
    gpu = FakeGpu()
    module = megatron(own)
    with played_steps(planned.plan.choice, gpu, rank=1) as hooks, megatron_hooks(module, hooks):
        module.get_forward_backward_func()(forward_step_func=lambda data: data, data_iterator=3)
        assert hooks.actuator.disabled is None
    assert gpu.setting == DRIVER_DEFAULT


def test_another_order_than_planned_ends_the_plan_and_not_the_training(caplog):
    planned, own = rank_of(one_forward_one_backward(3, 4), 0)
    module = megatron([*own[::-1], *own])
    with played_steps(planned.plan.choice, FakeGpu(), rank=0) as hooks, megatron_hooks(module, hooks):
        run = module.get_forward_backward_func()
        assert run(forward_step_func=lambda data: data, data_iterator=3) == 2 * len(own)
        assert "begins where the plan has" in str(hooks.actuator.disabled)
    assert "training goes on" in caplog.text


def test_an_error_of_the_training_is_raised_and_the_next_iteration_starts_again(heard):
    planned, own = rank_of(one_forward_one_backward(2, 2), 0)
    module = megatron(own)

    def broken(_):
        raise RuntimeError("out of memory")

    with played_steps(planned.plan.choice, FakeGpu(), rank=0) as hooks, megatron_hooks(module, hooks):
        run = module.get_forward_backward_func()
        with pytest.raises(RuntimeError, match="out of memory"):
            run(forward_step_func=broken, data_iterator=3)
        module.forward_step(lambda data: data, 3)  # outside of an iteration
        run(forward_step_func=lambda data: data, data_iterator=3)
    assert heard.events == ["start", own[0].name, "start", *(piece.name for piece in own), "finish"]


def test_what_cannot_be_hooked_is_refused():
    planned, _ = rank_of(one_forward_one_backward(2, 2), 0)
    with pytest.raises(PlanError, match="nothing for rank 2"), played_steps(planned.plan.choice, FakeGpu(), rank=2):
        pass
    with played_steps(planned.plan.choice, FakeGpu(), rank=0) as hooks:
        with pytest.raises(InputError, match="no schedule"), megatron_hooks(SimpleNamespace(), hooks):
            pass
        empty = SimpleNamespace(_INSTRUCTION_MAP={})
        with pytest.raises(InputError, match="_INSTRUCTION_MAP"), deepspeed_hooks(empty, hooks):
            pass


def test_a_profile_is_measured_through_the_same_hooks(tmp_path):
    shape = PipelineShape("1f1b", stages=1, microbatches=2)
    gpu, done = FakeGpu(), []
    profile = profiled_steps(shape, gpu, rank=0, ranks=Alone(), out=tmp_path / "profile.csv", clocks=2)
    with profile as hooks:
        forward, backward = hooks.forward(done.append), hooks.backward(done.append)

        def schedule():
            for piece in shape.order[0]:
                (forward if piece.instruction == FORWARD else backward)(piece.instruction)

        train = hooks.iteration(schedule)
        for _ in range(2):
            train()
        assert hooks.listener.progress == PlanProfiling()  # the first clock is not measured yet
        assert hooks.actuator.disabled is None
    assert done == [piece.instruction for piece in shape.order[0]] * 2
    assert gpu.setting == DRIVER_DEFAULT
