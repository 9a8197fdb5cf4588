from __future__ import annotations

import pytest

from wattune.core.workload import Pipe
from wattune.workloads.kernel_fusion import Fusion, Kernel, Use, fused, unfused_phase

SIZE = 100.0
ELSEWHERE = 99


def kernel(
    name: str, fusion: Fusion, reads: tuple[int, ...], writes: tuple[int, ...], *, backward: bool = False
) -> Kernel:
    return Kernel(
        name=name,
        module="layer",
        backward=backward,
        fusion=fusion,
        pipe=Pipe.FP32,
        flops=1.0,
        reads=tuple(Use(storage, SIZE) for storage in reads),
        writes=tuple(Use(storage, SIZE) for storage in writes),
    )


def test_a_chain_reads_what_comes_in_and_writes_what_goes_out() -> None:
    chain = [kernel(str(place), Fusion.JOINS, (place,), (place + 1,)) for place in range(5)]
    (group,) = fused(chain)
    assert len(group.kernels) == 5
    assert group.dram_bytes == 2 * SIZE
    assert group.launches == 1
    assert sum(link.unfused_bytes for link in chain) == 10 * SIZE


def test_what_the_backward_pass_reads_is_written() -> None:
    chain = [kernel("a", Fusion.JOINS, (0,), (1,)), kernel("b", Fusion.JOINS, (1,), (2,))]
    groups = fused([*chain, kernel("gradient", Fusion.JOINS, (1, 3), (4,), backward=True)])
    assert [group.dram_bytes for group in groups] == [3 * SIZE, 3 * SIZE]


def test_matrix_products_are_not_fused_and_batch_norm_only_starts_a_chain() -> None:
    groups = fused(
        [
            kernel("product", Fusion.ALONE, (0, 1), (2,)),
            kernel("norm", Fusion.STARTS, (2, 2), (3,)),
            kernel("relu", Fusion.JOINS, (3,), (4,)),
            kernel("norm", Fusion.STARTS, (4, 4), (5,)),
            kernel("product", Fusion.ALONE, (5, 1), (6,)),
        ]
    )
    assert [len(group.kernels) for group in groups] == [1, 2, 1, 1]
    assert [group.dram_bytes for group in groups] == [300.0, 300.0, 300.0, 300.0]


def test_an_element_wise_kernel_of_other_tensors_is_not_joined() -> None:
    groups = fused([kernel("a", Fusion.JOINS, (0,), (1,)), kernel("b", Fusion.JOINS, (ELSEWHERE,), (2,))])
    assert len(groups) == 2


def test_changing_a_tensor_in_place_inside_a_chain_writes_it_once() -> None:
    groups = fused(
        [
            kernel("norm", Fusion.STARTS, (0, 0), (1,)),
            kernel("relu_", Fusion.JOINS, (1,), (1,)),
            kernel("product", Fusion.ALONE, (1, 2), (3,)),
        ]
    )
    assert groups[0].dram_bytes == 3 * SIZE


def test_phases_are_named_by_pass_and_module() -> None:
    link = kernel("a", Fusion.JOINS, (0,), (1,), backward=True)
    assert unfused_phase(link).name == fused([link])[0].phase().name == "backward/layer"
    assert unfused_phase(link).dram_bytes == pytest.approx(2 * SIZE)


def test_no_kernels_make_no_groups() -> None:
    assert fused([]) == ()
