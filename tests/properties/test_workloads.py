"""What holds for every operation, network and loop, whatever their numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.workload import Phase, Pipe
from wattune.workloads.catalog import make_workload, workload_names
from wattune.workloads.kernel_fusion import Fusion, Kernel, Use, fused
from wattune.workloads.operation import ADAM, SGD, NetworkOp, gradient_phases, inference_phases, merged, training_phases
from wattune.workloads.training_run import Loop, Wait, periods, phase_counts, total_s, unrolled

amounts = st.floats(0.0, 1e9)
operations = st.lists(
    st.builds(
        NetworkOp,
        name=st.just("layer"),
        flops=amounts,
        reads=amounts,
        writes=amounts,
        parameters=amounts,
        weights_read=st.none() | amounts,
        gradient_fill=amounts,
        multiplies=st.booleans(),
        backward_passes=st.floats(1.0, 3.0),
        recomputed=st.floats(0.0, 1.0),
        launches=st.integers(1, 100),
    ),
    min_size=1,
    max_size=8,
)
phases = st.builds(
    Phase, name=st.sampled_from(["a", "b"]), flops=amounts, launches=st.floats(1, 100), host_stall_s=st.floats(0, 1)
)
waits = st.builds(Wait, st.just("wait"), st.floats(1e-6, 10.0), st.floats(0.0, 2.0))
loops = st.recursive(
    st.builds(Loop, st.just("inner"), st.lists(phases | waits, min_size=1, max_size=3).map(tuple), st.integers(1, 4)),
    lambda inner: st.builds(
        Loop, st.just("outer"), st.lists(inner | phases | waits, min_size=1, max_size=3).map(tuple), st.integers(1, 4)
    ),
    max_leaves=4,
)


def seconds(phase: Phase) -> float:
    return phase.flops / 1e9 + phase.launches * 1e-6 + phase.host_stall_s


@given(operations, st.integers(1, 512), st.sampled_from(Pipe))
def test_training_does_more_than_evaluating(found, batch_size, pipe) -> None:
    forward = inference_phases(found, batch_size=batch_size, pipe=pipe)
    both = gradient_phases(found, batch_size=batch_size, pipe=pipe)
    for field in ("flops", "dram_bytes", "launches"):
        once, twice = (sum(getattr(phase, field) for phase in some) for some in (forward, both))
        assert twice >= 2 * once * (1 - 1e-12)


@given(operations, st.integers(1, 256), st.sampled_from(Pipe))
def test_a_larger_batch_costs_more_and_a_sample_of_it_no_more(found, batch_size, pipe) -> None:
    small = gradient_phases(found, batch_size=batch_size, pipe=pipe)
    large = gradient_phases(found, batch_size=2 * batch_size, pipe=pipe)
    for one, two in zip(small, large, strict=True):
        assert two.flops == pytest.approx(2 * one.flops)
        assert one.dram_bytes <= two.dram_bytes <= 2 * one.dram_bytes * (1 + 1e-12)
        assert two.launches == one.launches


@given(operations, st.integers(1, 64))
def test_half_precision_halves_all_traffic_but_the_optimizers(found, batch_size) -> None:
    full = training_phases(found, batch_size=batch_size, pipe=Pipe.TF32, optimizer=ADAM)
    half = training_phases(found, batch_size=batch_size, pipe=Pipe.FP16, optimizer=ADAM)
    for one, two in zip(full[:-1], half[:-1], strict=True):
        assert two.dram_bytes == pytest.approx(one.dram_bytes / 2)
    assert half[-1] == full[-1]


@given(operations, st.integers(1, 12))
def test_merging_preserves_totals(found, intervals) -> None:
    exact = training_phases(found, batch_size=3, pipe=Pipe.FP16, optimizer=SGD)
    short = merged(exact, intervals)
    assert len(short) <= len(exact)
    for field in ("flops", "dram_bytes", "launches"):
        total = sum(getattr(phase, field) for phase in exact)
        assert sum(getattr(phase, field) for phase in short) == pytest.approx(total)


@settings(deadline=None, max_examples=50)
@given(st.sampled_from(workload_names()), st.integers(1, 64))
def test_every_named_network_scales_with_its_batch(name, batch_size) -> None:
    one, two = make_workload(name, batch_size=batch_size), make_workload(name, batch_size=2 * batch_size)
    assert one.parameters == two.parameters
    update = one.phases[-1].flops
    assert two.flops - update == pytest.approx(2 * (one.flops - update))


@given(loops)
def test_counts_periods_and_the_unrolled_loop_agree(loop) -> None:
    played = list(unrolled(loop, seed=None))
    counts = phase_counts(loop)
    assert len(played) == sum(counts.values())
    assert total_s(loop, seconds) == pytest.approx(sum(map(seconds, played)))
    assert len(list(unrolled(loop, seed=1))) == len(played)
    found = periods(loop, seconds)
    assert found[0].period_s == pytest.approx(total_s(loop, seconds))
    assert all(period.period_s <= found[0].period_s * (1 + 1e-9) for period in found)


kernels = st.lists(
    st.builds(
        Kernel,
        name=st.just("kernel"),
        module=st.just("layer"),
        backward=st.booleans(),
        fusion=st.sampled_from(Fusion),
        pipe=st.just(Pipe.FP32),
        flops=amounts,
        reads=st.lists(st.builds(Use, st.integers(0, 6), st.just(8.0)), max_size=3).map(tuple),
        writes=st.lists(st.builds(Use, st.integers(0, 6), st.just(8.0)), min_size=1, max_size=2).map(tuple),
    ),
    max_size=12,
)


@given(kernels)
def test_fusing_loses_no_kernel_and_adds_no_traffic(found) -> None:
    groups = fused(found)
    assert [kernel for group in groups for kernel in group.kernels] == found
    assert sum(group.dram_bytes for group in groups) <= sum(kernel.unfused_bytes for kernel in found)
    for group in groups:
        assert len(group.kernels) == 1 or all(kernel.fusion is not Fusion.ALONE for kernel in group.kernels)
