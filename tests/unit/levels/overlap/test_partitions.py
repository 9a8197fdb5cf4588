"""Partitions of transformers: the types and multiplicities of Kareus, conservation of work, and layouts refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.errors import InputError
from wattune.levels.overlap.layout import Experts, ParallelLayout, shape_name, shape_named
from wattune.levels.overlap.partitions import KernelPartition, PartitionedModel, partition_model
from wattune.workloads.operation import NetworkOp, backward_phase, element_bytes, forward_phase
from wattune.workloads.transformer import TRANSFORMERS, TransformerPart, transformer

TP8 = ParallelLayout(tp=8, pp=2)
CP2_TP4 = ParallelLayout(cp=2, tp=4, pp=2)


def model(layout: ParallelLayout, name: str = "llama3.2-3b", microbatch_size: int = 8, **options) -> PartitionedModel:
    return partition_model(name, layout, microbatch_size=microbatch_size, sequence=4096, **options)


def per_layer(found: PartitionedModel) -> dict[str, tuple[int, int]]:
    return {part.name: (part.forward_per_layer, part.backward_per_layer) for part in found.partitions}


def test_the_four_types_of_tensor_parallelism() -> None:
    assert per_layer(model(TP8, recompute=False)) == {
        "fwd_attn": (2, 0),
        "fwd_mlp": (2, 0),
        "bwd_mlp": (0, 2),
        "bwd_attn": (0, 2),
    }


def test_the_twelve_types_with_context_parallelism() -> None:
    once = ("fwd_qkv_ar", "fwd_qkv_ag", "fwd_ao_ag", "fwd_ao_ar")
    back = ("bwd_o_ar", "bwd_o_ag", "bwd_a_ag", "bwd_a_rs", "bwd_qkv_rs", "bwd_qkv_ar")
    expected = dict.fromkeys(once, (1, 0)) | dict.fromkeys(back, (0, 1))
    assert per_layer(model(CP2_TP4, recompute=False)) == expected | {"fwd_mlp": (2, 0), "bwd_mlp": (0, 2)}


def test_recomputation_runs_the_forward_partitions_again() -> None:
    found = model(TP8)
    assert per_layer(found)["fwd_attn"] == (2, 2)
    assert found.counts(0, "backward") == dict.fromkeys(("fwd_attn", "fwd_mlp", "bwd_mlp", "bwd_attn"), 30)
    assert found.counts(1, "forward") == {"fwd_attn": 26, "fwd_mlp": 26}


def test_slots_are_operator_groups() -> None:
    found = model(TP8, "qwen3-1.7b")
    assert found.partition("fwd_attn").slots == ("norm_0", "linear_0", "rope_0", "attn_0", "linear_1")
    assert found.partition("fwd_mlp").slots == ("norm_0", "linear_0", "activation_0", "linear_1")
    assert found.partition("bwd_attn").slots == ("norm_0", "linear_0", "attn_0", "rope_0", "linear_1")
    assert found.partition("fwd_attn").launches == ("norm_0", "linear_0", "rope_0", "attn_0")


def test_collectives_have_the_bytes_of_a_nanobatch() -> None:
    tokens = 4 * 4096
    reduced = model(TP8).partition("fwd_mlp").communication
    assert reduced is not None
    assert reduced.link_bytes == pytest.approx(2 * 7 / 8 * tokens * 3072 * 2)
    gathered = model(CP2_TP4).partition("fwd_ao_ag").communication
    assert gathered is not None
    assert (gathered.name, gathered.gpus) == ("all-gather", 2)
    assert gathered.link_bytes == pytest.approx(tokens * 2 * (8 / 4) * 128 * 2 / 2)


def test_one_nanobatch_has_segments_with_their_own_collective() -> None:
    found = model(CP2_TP4, nanobatches=1)
    assert [part.name for part in found.partitions][:3] == ["fwd_qkv", "fwd_ao", "fwd_mlp"]
    assert not any(part.launches for part in found.partitions)


def test_more_nanobatches_repeat_the_collective_of_the_segment() -> None:
    counts = per_layer(model(CP2_TP4, nanobatches=4))
    assert counts["fwd_qkv_ar"] == (1, 1)
    assert counts["fwd_qkv_ag"] == (3, 3)
    assert counts["fwd_mlp"] == (4, 4)


def test_sequence_parallelism_gathers_before_products_and_scatters_after() -> None:
    found = model(replace(TP8, sequence_parallel=True), nanobatches=1)
    kinds = [part.communication.name for part in found.partitions if part.communication]
    assert kinds[:4] == ["all-gather", "reduce-scatter"] * 2


def test_experts_exchange_tokens_twice_per_pass() -> None:
    layout = ParallelLayout(pp=2, dp=8, experts=Experts(count=8, chosen=2, parallel=8))
    found = model(layout, nanobatches=1)
    kinds = [part.communication.name for part in found.partitions if part.communication]
    assert kinds == ["all-to-all"] * 4
    plain = model(ParallelLayout(pp=2, dp=8), nanobatches=1)
    assert total(found.partitions, "flops") > 1.5 * total(plain.partitions, "flops")


def total(partitions: tuple[KernelPartition, ...], quantity: str) -> float:
    return sum(
        (part.forward_per_layer + part.backward_per_layer) * sum(getattr(phase, quantity) for phase in part.phases)
        for part in partitions
    )


def layer(name: str, shards: int) -> list[NetworkOp]:
    made = transformer(replace(shape_named(name), layers=1, sequence=4096), TransformerPart(shards=shards))
    return [operation for operation in made if operation.name.startswith("layer1/")]


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(sorted(TRANSFORMERS)),
    tp=st.sampled_from([1, 2, 4]),
    nanobatches=st.sampled_from([1, 2, 4]),
    samples=st.integers(1, 3),
    recompute=st.booleans(),
)
def test_work_is_conserved(name: str, tp: int, nanobatches: int, samples: int, recompute: bool) -> None:
    """All partitions of a layer do the work of the layer; only weights are read once per nanobatch."""
    size = samples * nanobatches
    found = partition_model(
        name,
        ParallelLayout(tp=tp),
        microbatch_size=size,
        sequence=4096,
        nanobatches=nanobatches,
        recompute=recompute,
    )
    ops, pipe = layer(name, tp), found.partitions[0].phases[1].pipe
    passes = [forward_phase] * (2 if recompute else 1) + [backward_phase]
    flops, moved = 0.0, 0.0
    for make in passes:
        phases = [make(op, size, pipe) for op in ops]
        flops += sum(phase.flops for phase in phases)
        moved += sum(phase.dram_bytes for phase in phases)
        ratio = [1.0 if make is forward_phase else op.backward_passes for op in ops]
        weights = sum(op.weight_traffic * share for op, share in zip(ops, ratio, strict=True))
        moved += (nanobatches - 1) * weights * element_bytes(pipe)
    assert total(found.partitions, "flops") == pytest.approx(flops)
    assert total(found.partitions, "dram_bytes") == pytest.approx(moved)


@given(cp=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4, 8]))
def test_gpus_share_the_arithmetic(cp: int, tp: int) -> None:
    alone, shared = model(ParallelLayout()), model(ParallelLayout(cp=cp, tp=tp))
    products = [
        sum(
            part.per_layer("backward") * op.phase.flops
            for part in found.partitions
            for op in part.operations
            if op.slot.startswith(("linear", "attn"))
        )
        for found in (alone, shared)
    ]
    assert products[1] * cp * tp == pytest.approx(products[0])


@given(nanobatches=st.sampled_from([1, 2, 4, 8]), layout=st.sampled_from([TP8, CP2_TP4]))
def test_bytes_on_the_link_do_not_depend_on_nanobatches(nanobatches: int, layout: ParallelLayout) -> None:
    def sent(count: int) -> float:
        parts = model(layout, nanobatches=count).partitions
        return sum(part.per_layer("backward") * part.communication.link_bytes for part in parts if part.communication)

    assert sent(nanobatches) == pytest.approx(sent(1))


def test_stages_are_balanced_unless_given() -> None:
    assert model(TP8).stage_layers == (15, 13)
    assert model(TP8, "qwen3-1.7b").stage_layers == (16, 12)
    assert model(TP8, "qwen3-1.7b", stage_layers=(15, 13)).stage_layers == (15, 13)
    assert model(ParallelLayout(tp=8, pp=2), "llama3.3-70b", 2).stage_layers == (40, 40)
    assert sum(model(ParallelLayout(pp=3)).stage_layers) == 28


def test_embedding_and_head_are_outside_of_partitions() -> None:
    found = model(TP8)
    assert [phase.name for phase in found.extra(0, "forward").phases] == ["forward/embedding"]
    assert "backward/head/loss" in [phase.name for phase in found.extra(1, "backward").phases]
    assert not found.extra(1, "forward").communications


@pytest.mark.parametrize(
    ("layout", "complaint"),
    [
        (ParallelLayout(tp=16), "16 tensor-parallel GPUs cannot share 24 heads"),
        (ParallelLayout(tp=3), "inner width of 8192"),
        (ParallelLayout(cp=3), "cannot share 4096 tokens"),
        (ParallelLayout(pp=29), "28 layers do not fill 29 stages"),
    ],
)
def test_layouts_that_do_not_divide_are_refused(layout: ParallelLayout, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        model(layout)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tp": 0}, "tp is 0"),
        ({"sequence_parallel": True}, "needs tensor parallelism"),
        ({"tp": 2, "experts": Experts(8, 2)}, "need sequence parallelism"),
        ({"dp": 3, "experts": Experts(8, 2, 8)}, "no part of 3 GPUs"),
    ],
)
def test_impossible_layouts_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        ParallelLayout(**options)  # type: ignore[arg-type]


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"7 cannot be split into 2"):
        model(TP8, microbatch_size=7)
    with pytest.raises(InputError, match="0 nanobatches"):
        model(TP8, nanobatches=0)
    with pytest.raises(InputError, match="no transformer 'llama-9'"):
        model(TP8, "llama-9")
    with pytest.raises(InputError, match="14,13 is no split of 28 layers"):
        model(TP8, stage_layers=(14, 13))
    with pytest.raises(InputError, match="has no partition 'fwd_moe'"):
        model(TP8).partition("fwd_moe")
    with pytest.raises(InputError, match="3 of 2 experts"):
        Experts(2, 3)
    with pytest.raises(InputError, match="are 16 GPUs, not 24"):
        TP8.check_devices(24)
    TP8.check_devices(16)


def test_a_name_may_change_sizes_of_a_known_transformer() -> None:
    name = "Llama-3.2-3B:heads=32,width=4096,layers=32"
    assert shape_name(name) == "llama3.2-3b:layers=32,width=4096,heads=32"
    shape, known = shape_named(name), shape_named("llama3.2-3b")
    assert shape == replace(known, layers=32, width=4096, heads=32, head_width=128)
    assert shape_named("llama3.2-3b:key-heads=4") == replace(known, key_heads=4)
    assert shape_named(shape_name(name)) == shape
    for wrong in ("llama3.2-3b:", "llama3.2-3b:layers", "llama3.2-3b:layers=0", "llama3.2-3b:causal=1"):
        with pytest.raises(InputError, match="no size of a transformer"):
            shape_named(wrong)
