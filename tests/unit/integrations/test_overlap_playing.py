"""Plans of pipelines with choices for partitions, played in a real schedule of one stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from fakes import FakeGpu
from overlap_samples import LateTransport, check_order, loss_of, plain, sample_input, whole_blocks
from pipelines import planned_at
from wattune.core.errors import PlanError
from wattune.core.setting import Setting
from wattune.integrations.overlap import Activations, GroupTransport, OverlapExecutor, transport
from wattune.integrations.overlap.playing import check_same, launches_of, played_overlap
from wattune.integrations.overlap.transport import limited_options
from wattune.plans.plan import StageChoice
from wattune.plans.schedules import one_forward_one_backward
from wattune.plans.stage_profile import PLAIN

MICROBATCHES = 3
LAUNCHES = ("norm_0", "linear_0", "none")


@pytest.fixture(autouse=True)
def group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Stage(nn.Module):
    """Blocks that run through an executor."""

    def __init__(self, blocks, executor):
        super().__init__()
        self.blocks, self.executor = nn.ModuleList(blocks), executor

    def forward(self, hidden):
        return self.executor(hidden)


def knobs(names, microbatch, comm_sms):
    return tuple((name, f"{LAUNCHES[microbatch]}-none-{comm_sms + microbatch}-1024") for name in names)


def plan_for(*, recompute=False, **changed):
    """Return a plan whose launches and SMs differ from microbatch to microbatch."""
    plan = planned_at(one_forward_one_backward(1, MICROBATCHES), (900, 1005)).plan.choice
    choices = []
    for operation, choice in zip(plan.graph.operations, plan.choices, strict=True):
        instruction, microbatch = operation.name.partition(" ")[0], int(operation.name[-1])
        names = ("fwd_attn", "fwd_mlp") if instruction == "forward" else ("bwd_mlp", "bwd_attn")
        if recompute and instruction == "backward":
            names = ("fwd_attn", "fwd_mlp", *names)
        found = knobs(names, microbatch, 3 if instruction == "forward" else 10)
        choices.append(StageChoice(choice.setting, tuple((name, changed.get(name, text)) for name, text in found)))
    return replace(plan, choices=tuple(choices))


def test_each_instruction_follows_its_own_choices_and_computes_the_same():
    blocks, transport, log = whole_blocks(2, torch.float32), LateTransport(), []
    batch = sample_input(2 * MICROBATCHES, torch.float32)
    *_, gradients = plain(blocks, batch)
    for block in blocks:
        block.zero_grad()
    executor = OverlapExecutor(blocks, {"tp": transport}, record=log.append)
    stage = PipelineStage(Stage(blocks, executor), 0, 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda output, _: loss_of(output), scale_grads=False)
    with played_overlap(schedule, plan_for(), FakeGpu(), {0: executor}) as clocks:
        schedule.step(batch, target=batch)
        assert clocks.disabled is None
    found = [weight.grad for block in blocks for weight in block.parameters()]
    torch.testing.assert_close(found, gradients, rtol=1e-4, atol=1e-5)
    assert {sms for _, sms in transport.started} == {None, 3, 4, 5, 10, 11, 12}
    per_pass = len(log) // (2 * MICROBATCHES + 1)
    del log[:per_pass]  # a forward by which the stage learns its shapes
    for microbatch in range(MICROBATCHES):  # one stage runs forward and backward of each in turn
        part = log[2 * microbatch * per_pass : 2 * (microbatch + 1) * per_pass]
        choices = launches_of(
            StageChoice(Setting(900), knobs(("fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"), microbatch, 3))
        )
        assert check_order(part, choices) > 8


def with_whole(plan, *names):
    """Return the plan with these instructions not split."""
    pairs = zip(plan.graph.operations, plan.choices, strict=True)
    return replace(
        plan,
        choices=tuple(StageChoice(own.setting, (PLAIN,)) if place.name in names else own for place, own in pairs),
    )


def test_instructions_without_nanobatches_are_played_and_compute_the_same():
    blocks, transport, log = whole_blocks(2, torch.float64), LateTransport(), []
    batch = sample_input(2 * MICROBATCHES)
    *_, gradients = plain(blocks, batch)
    for block in blocks:
        block.zero_grad()
    executor = OverlapExecutor(blocks, {"tp": transport}, activations=Activations.RECOMPUTE, record=log.append)
    stage = PipelineStage(Stage(blocks, executor), 0, 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda output, _: loss_of(output), scale_grads=False)
    own = with_whole(plan_for(recompute=True), "forward 0.0", "backward 0.0", "forward 0.1", "backward 0.2")
    with played_overlap(schedule, own, FakeGpu(), {0: executor}) as clocks:
        schedule.step(batch, target=batch)
        assert clocks.disabled is None
    found = [weight.grad for block in blocks for weight in block.parameters()]
    torch.testing.assert_close(found, gradients, rtol=1e-12, atol=1e-10)
    parts = []
    for place, launch in enumerate(log):
        if launch.partition.endswith("trail") and (
            place + 1 == len(log) or log[place + 1].partition != launch.partition
        ):
            parts.append(launch.nanobatch + 1)
    assert parts[-2 * MICROBATCHES :] == [1, 1, 1, 2, 2, 1]


def test_kept_activations_are_not_split_otherwise_on_the_way_back():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()})
    stage = PipelineStage(Stage([], executor), 0, 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    with (
        pytest.raises(PlanError, match=r"backward 0\.1: kept activations"),
        played_overlap(schedule, with_whole(plan_for(), "forward 0.1"), FakeGpu(), {0: executor}),
    ):
        pass


def test_a_plan_for_other_blocks_is_refused_before_training():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()})
    stage = PipelineStage(Stage([], executor), 0, 1, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=nn.functional.mse_loss)
    wrong = plan_for(fwd_mlp="rope_0-none-3-1024")
    with (
        pytest.raises(PlanError, match=r"forward 0\.0: fwd_mlp has no slot rope_0"),
        played_overlap(schedule, wrong, FakeGpu(), {0: executor}),
    ):
        pass


class OtherRank:
    """A rank beside another one, whose plan is given by its broadcast."""

    rank, size = 1, 2

    def __init__(self, text=None):
        self._text = text

    def broadcast(self, text):
        return text if self._text is None else self._text

    def sum_and_max(self, values):
        return values, values


def test_different_plans_on_the_ranks_of_a_group_are_refused():
    plan = plan_for()
    check_same(plan, OtherRank())
    with pytest.raises(PlanError, match="different plans"):
        check_same(plan, OtherRank("another"))


def test_each_number_of_sms_has_one_communicator_made_when_it_is_first_needed(monkeypatch):
    made = []
    monkeypatch.setattr(transport.distributed, "get_backend", lambda _: "nccl")
    monkeypatch.setattr(transport, "limited_options", lambda _, sms: sms)
    monkeypatch.setattr(
        transport.distributed,
        "new_group",
        lambda *_, pg_options, **__: made.append(pg_options) or distributed.group.WORLD,
    )
    carrier = GroupTransport()
    for sms in (12, 6, None, 12, 6):
        carrier.start("all_reduce", torch.ones(2), dim=0, sms=sms).wait()
    assert made == [12, 6] == list(carrier.budgets)


def test_the_sms_of_nccl_are_limited_by_its_blocks():
    class Config:
        min_ctas = max_ctas = 0

    class Options:
        def __init__(self):
            self.config, self.is_high_priority_stream = Config(), False

    class Library:
        class ProcessGroupNCCL:
            pass

    Library.ProcessGroupNCCL.Options = Options
    options = limited_options(Library, 12)
    assert (options.config.min_ctas, options.config.max_ctas, options.is_high_priority_stream) == (12, 12, True)
    with pytest.raises(Exception, match="cannot limit the SMs"):
        limited_options(object(), 12)
