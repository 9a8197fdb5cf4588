"""The overlap executor in one process, with collectives that finish late."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'wattune[torch]'")

import torch

from overlap_samples import (
    LateTransport,
    all_choices,
    check_order,
    loss_of,
    plain,
    sample_input,
    whole_blocks,
)
from wattune.control.actuator import Actuator
from wattune.control.stamps import HostStamp
from wattune.core.errors import InputError, PlanError
from wattune.integrations.overlap import (
    Activations,
    BlockOperation,
    Launch,
    OverlapExecutor,
    PartitionClocks,
    PlannedLaunch,
    SequenceParallelBlock,
    WholeMicrobatch,
)
from wattune.integrations.overlap.program import partition_slots
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import partition_model
from wattune.levels.overlap.space import PartitionChoice

FORWARD, BACKWARD = ("fwd_attn", "fwd_mlp"), ("bwd_mlp", "bwd_attn")


def names_of(activations):
    return (*FORWARD, *BACKWARD) if activations is Activations.RECOMPUTE else BACKWARD


def close(found, wanted, rel=1e-12):
    torch.testing.assert_close(found, wanted, rtol=rel, atol=rel * 100)


def check_equal(blocks, executor, hidden):
    output, loss, gradient, weights = plain(blocks, hidden)
    for block in blocks:
        block.zero_grad()
    hidden = hidden.clone().requires_grad_()
    found = executor(hidden)
    found_loss = loss_of(found)
    found_loss.backward()
    close(found.detach(), output)
    assert found_loss.item() == pytest.approx(loss, rel=1e-12)
    close(hidden.grad, gradient)
    close([weight.grad for block in blocks for weight in block.parameters()], weights)


@pytest.mark.parametrize("activations", [Activations.SAVE, Activations.RECOMPUTE])
@pytest.mark.parametrize("nanobatches", [1, 2, 3])
@pytest.mark.parametrize("launch", ["norm_0", "linear_0", "rope_0", "attn_0", "activation_0", "none"])
def test_values_and_gradients_are_those_of_plain_execution_and_the_order_is_the_planned(
    activations, nanobatches, launch
):
    blocks, log = whole_blocks(2), []
    executor = OverlapExecutor(
        blocks, {"tp": LateTransport()}, nanobatches=nanobatches, activations=activations, record=log.append
    )
    forward, backward = all_choices(FORWARD, launch), all_choices(names_of(activations), launch)
    executor.follow(forward=forward, backward=backward)
    check_equal(blocks, executor, sample_input(5))  # which is not a multiple of the nanobatches
    if nanobatches > 1:
        assert check_order(log, forward | backward) > 2 * nanobatches


WHOLE = WholeMicrobatch(1200)


@pytest.mark.parametrize("activations", [Activations.SAVE, Activations.RECOMPUTE])
@pytest.mark.parametrize(("whole_forward", "whole_backward"), [(True, True), (True, False), (False, True)])
def test_a_pass_without_nanobatches_computes_the_same(activations, whole_forward, whole_backward):
    blocks, log = whole_blocks(2), []
    executor = OverlapExecutor(
        blocks, {"tp": LateTransport()}, nanobatches=2, activations=activations, record=log.append
    )
    forward = WHOLE if whole_forward else all_choices(FORWARD, "linear_0")
    backward = WHOLE if whole_backward else all_choices(names_of(activations), "linear_0")
    if activations is Activations.SAVE and whole_forward != whole_backward:
        with pytest.raises(PlanError, match="cannot be split into nanobatches"):
            executor.check_split(forward, backward)
        return
    executor.check_split(forward, backward)
    executor.follow(forward=forward, backward=backward)
    check_equal(blocks, executor, sample_input(5))
    last = max(place for place, launch in enumerate(log) if launch.partition == "fwd_trail")
    forward_parts = {launch.nanobatch for launch in log[: last + 1]}
    backward_parts = {launch.nanobatch for launch in log[last + 1 :]}
    assert (len(forward_parts), len(backward_parts)) == (1 if whole_forward else 2, 1 if whole_backward else 2)
    executor.follow(forward={}, backward={})
    check_equal(blocks, executor, sample_input(5))


def test_a_microbatch_of_one_sample_runs_whole():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()}, nanobatches=2)
    with torch.no_grad(), pytest.raises(InputError, match="cannot be split into 2"):
        executor(sample_input(1))
    executor.follow(forward=WHOLE)
    with torch.no_grad():
        assert executor(sample_input(1)).shape[0] == 1


def test_random_numbers_of_a_whole_microbatch_are_not_drawn_again_in_nanobatches():
    class Dropping:
        def steps(self):
            drop = BlockOperation("drop", "norm", lambda state: state, random=True)
            return (drop, *whole_blocks(1)[0].steps())

    executor = OverlapExecutor([Dropping()], {"tp": LateTransport()}, activations=Activations.RECOMPUTE)
    executor.check_split(WHOLE, WHOLE)
    with pytest.raises(PlanError, match="random numbers"):
        executor.check_split(WHOLE, {})


def test_the_order_of_a_small_case_by_hand():
    log = []
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()}, record=log.append)
    executor.follow(forward={"fwd_attn": PlannedLaunch(launch="rope_0"), "fwd_mlp": PlannedLaunch()})
    with torch.no_grad():
        executor(sample_input(2))
    attention = ["attn_norm", "qkv", "rope", "attention", "projection"]
    mlp = ["attn_add", "mlp_norm", "gate_up", "swiglu", "down"]
    assert log == [
        *(Launch("fwd_attn", name, 0) for name in attention),
        *(Launch("fwd_attn", name, 1) for name in attention[:2]),
        Launch("fwd_attn", "all_reduce", 0),
        *(Launch("fwd_attn", name, 1) for name in attention[2:]),
        *(Launch("fwd_mlp", name, 0) for name in mlp),
        Launch("fwd_mlp", "all_reduce", 1),
        *(Launch("fwd_mlp", name, 1) for name in mlp),
        Launch("fwd_mlp", "all_reduce", 0),
        Launch("fwd_trail", "mlp_add", 0),
        Launch("fwd_trail", "all_reduce", 1),
        Launch("fwd_trail", "mlp_add", 1),
    ]


def test_recomputation_leaves_out_the_collective_that_no_backward_needs():
    counts = {}
    for activations in (Activations.SAVE, Activations.RECOMPUTE):
        transport = LateTransport()
        executor = OverlapExecutor(whole_blocks(3), {"tp": transport}, activations=activations)
        loss_of(executor(sample_input(2))).backward()
        counts[activations] = len(transport.started)
    assert counts[Activations.SAVE] == 3 * 2 * 4  # blocks × nanobatches × (2 forward and 2 backward)
    assert counts[Activations.RECOMPUTE] == 3 * 2 * 5


def test_the_budget_of_sms_reaches_the_transport():
    transport = LateTransport()
    executor = OverlapExecutor(whole_blocks(1), {"tp": transport})
    executor.follow(
        forward={"fwd_attn": PartitionChoice(1410, 6, "norm_0"), "fwd_mlp": PartitionChoice(1410, 12, "none")}
    )
    with torch.no_grad():
        executor(sample_input(2))
    assert transport.started == [("all_reduce", sms) for sms in (6, 12, 12, None)]


def test_random_operations_are_repeated_by_recomputation():
    class Dropping:
        """A block that drops values, before a weight."""

        def __init__(self):
            self.weight = torch.nn.Parameter(torch.ones(16, dtype=torch.float64))

        def steps(self):
            (first, *others) = whole_blocks(1)[0].steps()
            return (
                BlockOperation(
                    "drop",
                    "norm",
                    lambda state: (torch.nn.functional.dropout(state[0], 0.5) * self.weight,),
                    (self.weight,),
                    random=True,
                ),
                first,
                *others,
            )

    gradients = []
    for activations in (Activations.SAVE, Activations.RECOMPUTE):
        blocks = [Dropping(), Dropping()]
        executor = OverlapExecutor(blocks, {"tp": LateTransport()}, activations=activations)
        torch.manual_seed(11)
        hidden = sample_input(4).requires_grad_()
        loss_of(executor(hidden)).backward()
        after = torch.rand(1).item()
        gradients.append([hidden.grad, *(block.weight.grad for block in blocks), torch.tensor(after)])
    close(gradients[0], gradients[1])


def test_recomputation_uses_the_casts_of_the_forward_pass():
    blocks = whole_blocks(2, torch.float32)
    results = []
    for activations in (Activations.SAVE, Activations.RECOMPUTE):
        for block in blocks:
            block.zero_grad()
        executor = OverlapExecutor(blocks, {"tp": LateTransport()}, activations=activations)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = executor(sample_input(2, torch.float32))
        loss_of(output.float()).backward()
        results.append([weight.grad.clone() for block in blocks for weight in block.parameters()])
    close(results[0], results[1], rel=1e-6)


def test_gradients_add_up_over_microbatches_as_usual():
    blocks = whole_blocks(1)
    executor = OverlapExecutor(blocks, {"tp": LateTransport()})
    for _ in range(2):
        loss_of(executor(sample_input(2))).backward()
    twice = [weight.grad for weight in blocks[0].parameters()]
    close(twice, [2 * gradient for gradient in plain(whole_blocks(1), sample_input(2))[3]])


class CountedGpu:
    spec, refresh = None, None

    def __init__(self):
        self.applied = []

    def apply(self, setting):
        self.applied.append(setting.sm_mhz)

    def restore(self):
        self.applied.append(None)


def test_clocks_are_requested_once_per_instruction_or_where_partitions_differ():
    gpu = CountedGpu()
    clocks = PartitionClocks(Actuator([gpu]), HostStamp.now)
    executor = OverlapExecutor(whole_blocks(2), {"tp": LateTransport()}, clocks=clocks)
    executor.follow(
        forward=all_choices(FORWARD, "norm_0", sm_mhz=1200), backward=all_choices(BACKWARD, "none", sm_mhz=1005)
    )
    for _ in range(2):
        loss_of(executor(sample_input(2))).backward()
    assert gpu.applied == [1200, 1005, 1200, 1005]
    gpu.applied.clear()
    executor.follow(forward={"fwd_attn": PartitionChoice(1200, 3, "none"), "fwd_mlp": PartitionChoice(1305, 3, "none")})
    with torch.no_grad():
        executor(sample_input(2))
    assert gpu.applied == [1200, 1305] * 2


def test_a_second_backward_is_refused():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()})
    loss = loss_of(executor(sample_input(2)))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="has run before"):
        loss.backward()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"fwd_attn": PlannedLaunch()}, "nothing for fwd_mlp"),
        (all_choices(FORWARD, "none") | {"fwd_moe": PlannedLaunch()}, "no partition fwd_moe"),
        (all_choices(FORWARD, "none") | {"fwd_mlp": PlannedLaunch(launch="rope_0")}, "no slot rope_0"),
        (all_choices(FORWARD, "none", comm_sms=0), "0 SMs"),
    ],
)
def test_plans_for_another_layout_are_refused(choices, message):
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()})
    with pytest.raises(PlanError, match=message):
        executor.follow(forward=choices)


def test_what_cannot_be_split_is_refused():
    executor = OverlapExecutor(whole_blocks(1), {"tp": LateTransport()}, nanobatches=3)
    with pytest.raises(InputError, match="cannot be split into 3"):
        executor(sample_input(2))
    with pytest.raises(InputError, match="4 heads cannot be split over 3 ranks"):
        whole_blocks(1)[0].shard(0, 3)
    with pytest.raises(InputError, match="no transport carries tp"):
        OverlapExecutor(whole_blocks(1), {})


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_partitions_and_slots_are_those_that_are_planned(sequence_parallel):
    layout = ParallelLayout(tp=8, sequence_parallel=sequence_parallel)
    planned = partition_model("llama3.2-3b", layout, microbatch_size=8, sequence=4096).partitions
    blocks = whole_blocks(2)
    if sequence_parallel:
        blocks = [SequenceParallelBlock(block) for block in blocks]
    executor = OverlapExecutor(blocks, {"tp": LateTransport()}, activations=Activations.RECOMPUTE)
    choices = {partition.name: PartitionChoice(1410, 6, partition.launches[-1]) for partition in planned}
    forward = {name: choice for name, choice in choices.items() if name.startswith("fwd")}
    executor.follow(forward=forward, backward=choices)
    slots = partition_slots(executor.stack, executor.backward_runs)
    for partition in planned:
        name = partition.name if partition.name in slots else partition.name.rpartition("_")[0]
        assert slots[name] == partition.slots
