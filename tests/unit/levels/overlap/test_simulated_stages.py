"""Partitions and stages on a simulated GPU: sums, bounds, monotony, limits, and profiles for the planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.errors import InputError
from wattune.levels.overlap.layout import ParallelLayout
from wattune.levels.overlap.partitions import NONE, KernelPartition, PartitionedModel, partition_model
from wattune.levels.overlap.simulated_stages import (
    JOIN_S,
    at_first_slot,
    extra_cost,
    instruction_cost,
    partition_cost_table,
    sequentially,
    stage_profile_of,
)
from wattune.levels.overlap.space import PartitionChoice, choices
from wattune.levels.pipeline.planned import default_trial
from wattune.levels.pipeline.planner import plan_pipeline
from wattune.physics.catalog import load_model
from wattune.physics.overlap import communication_cost, compute_cost

A100 = load_model("a100")
MODELS = {
    layout: partition_model("qwen3-1.7b", layout, microbatch_size=8)
    for layout in (ParallelLayout(tp=8, pp=2), ParallelLayout(cp=2, tp=4, pp=2))
}
PARTITIONS = [part for model in MODELS.values() for part in model.partitions]
partitions = st.sampled_from(PARTITIONS)
clocks = st.sampled_from(A100.clocks[0].sm_mhz)
comm_sms = st.integers(1, 60)


def tp8() -> PartitionedModel:
    return MODELS[ParallelLayout(tp=8, pp=2)]


def cost_of(partition: KernelPartition, choice: PartitionChoice) -> tuple[float, float]:
    table = partition_cost_table(partition, A100, [choice])
    return float(table.time_s[0]), float(table.energy_j[0])


@settings(deadline=None)
@given(partition=partitions, sm_mhz=clocks, sms=comm_sms)
def test_sequential_execution_is_the_sum(partition: KernelPartition, sm_mhz: int, sms: int) -> None:
    assert partition.communication is not None
    column = A100.clocks[0].sm_mhz.index(sm_mhz)
    computed = compute_cost(A100, partition.phases)
    sent = communication_cost(A100, partition.communication, comm_sms=sms, mem_mhz=A100.default_mem_mhz)
    time_s, energy_j = cost_of(partition, PartitionChoice(sm_mhz, sms, NONE))
    assert time_s == pytest.approx(computed.time_s[column] + sent.time_s[column])
    # The temperature of the whole differs from those of its parts.
    assert energy_j == pytest.approx(computed.energy_j[column] + sent.energy_j[column], rel=0.01)


@settings(deadline=None)
@given(partition=partitions, sm_mhz=clocks, sms=comm_sms, data=st.data())
def test_overlap_is_bounded(partition: KernelPartition, sm_mhz: int, sms: int, data: st.DataObject) -> None:
    assert partition.communication is not None
    launch = data.draw(st.sampled_from(partition.launches))
    column = A100.clocks[0].sm_mhz.index(sm_mhz)
    alone_s = compute_cost(A100, partition.phases).time_s[column]
    sent = communication_cost(A100, partition.communication, comm_sms=sms, mem_mhz=A100.default_mem_mhz)
    time_s, _ = cost_of(partition, PartitionChoice(sm_mhz, sms, launch))
    assert time_s >= max(alone_s, sent.time_s[column]) * (1 - 1e-9)
    # Phases lose at most the SMs that communicate, and half of the bandwidth.
    assert time_s <= (alone_s * max(2.0, A100.sms / (A100.sms - sms)) + sent.time_s[column]) * (1 + 1e-9)


@settings(deadline=None)
@given(partition=partitions, sms=comm_sms, data=st.data())
def test_a_higher_clock_is_never_slower_and_draws_more(
    partition: KernelPartition, sms: int, data: st.DataObject
) -> None:
    launch = data.draw(st.sampled_from((*partition.launches, NONE)))
    settings_ = [PartitionChoice(sm_mhz, sms, launch) for sm_mhz in A100.clocks[0].sm_mhz]
    table = partition_cost_table(partition, A100, settings_)
    assert np.all(np.diff(table.time_s) <= 1e-12)
    assert np.all(np.diff(table.energy_j / table.time_s) > 0)
    assert np.all((table.static_j > 0) & (table.dynamic_j > 0))


@settings(deadline=None, max_examples=20)
@given(partition=partitions, sm_mhz=clocks)
def test_in_sequence_more_sms_are_never_slower(partition: KernelPartition, sm_mhz: int) -> None:
    table = partition_cost_table(partition, A100, [PartitionChoice(sm_mhz, sms, NONE) for sms in range(1, 60)])
    assert np.all(np.diff(table.time_s) <= 1e-12)


def test_a_warmer_gpu_spends_more_in_the_same_time() -> None:
    """About 0.2 % per kelvin was measured on attention partitions (ml-energy/kareus)."""
    part = tp8().partition("fwd_attn")
    found = choices(part, A100)
    cool, warm = (partition_cost_table(part, A100, found, temperature_c=celsius) for celsius in (30.0, 48.0))
    assert np.array_equal(cool.time_s, warm.time_s)
    assert cool.dynamic_j == pytest.approx(warm.dynamic_j)
    at = found.index(PartitionChoice(1410, 12, "norm_0"))
    assert 100 * (warm.energy_j[at] / cool.energy_j[at] - 1) == pytest.approx(3.7, abs=1.7)


def test_an_attention_partition_spends_what_was_measured() -> None:
    """Llama 3.2 3B on 8 A100: 4.58 J of all GPUs (ml-energy blog, 2026)."""
    part = partition_model("llama3.2-3b", ParallelLayout(tp=8, pp=2), microbatch_size=8).partition("fwd_attn")
    found = [choice for choice in choices(part, A100) if choice.sm_mhz == 1410]
    assert 8 * partition_cost_table(part, A100, found).energy_j.min() == pytest.approx(4.58, rel=0.05)


def test_an_instruction_is_the_sum_of_its_partitions() -> None:
    model, how = tp8(), at_first_slot(12)
    cost = instruction_cost(model, A100, stage=0, instruction="backward", how=how, clocks_mhz=(1200,))
    expected_s = float(extra_cost(model.extra(0, "backward"), A100, (1200,)).time_s[0])
    for name, count in model.counts(0, "backward").items():
        part = model.partition(name)
        expected_s += count * (cost_of(part, how(part, 1200))[0] + JOIN_S)
    assert cost.time_s[0] == pytest.approx(expected_s)


def test_a_power_limit_lowers_the_clock() -> None:
    limited_gpu = replace(A100, default_limit_w=250.0)
    how = sequentially()
    free, limited = (
        instruction_cost(tp8(), gpu, stage=0, instruction="backward", how=how) for gpu in (A100, limited_gpu)
    )
    assert np.all(limited.energy_j / limited.time_s <= 250.0)
    assert limited.time_s[-1] > free.time_s[-1]
    assert limited.time_s[0] == free.time_s[0]


@pytest.mark.parametrize("layout", MODELS, ids=str)
def test_profiles_are_planned(layout: ParallelLayout) -> None:
    profile = stage_profile_of(MODELS[layout], A100, at_first_slot())
    assert profile.simulated
    graph = profile.shape("1f1b", 4).graph
    profile.check_blocking_power(85.0)
    frontier = plan_pipeline(graph, profile.options, blocking_power_w=85.0, points=3)
    default = default_trial(graph, profile, blocking_power_w=85.0).cost
    assert frontier.fastest.cost.time_s <= default.time_s * (1 + 1e-9)
    assert frontier.fastest.cost.energy_j <= default.energy_j


def test_impossible_settings_are_refused() -> None:
    part = tp8().partition("fwd_mlp")
    with pytest.raises(InputError, match="fwd_mlp cannot launch its collective at 'rope_0'"):
        cost_of(part, PartitionChoice(1410, 3, "rope_0"))
    with pytest.raises(InputError, match="108 of 108 SMs"):
        cost_of(part, PartitionChoice(1410, 108, "norm_0"))
    with pytest.raises(InputError, match="no core clock of 1411 MHz"):
        cost_of(part, PartitionChoice(1411, 3, "norm_0"))
