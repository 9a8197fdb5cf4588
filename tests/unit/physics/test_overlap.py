"""Communication beside computation, against what was published and against plain reckoning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.errors import InputError, NotSupported
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.overlap import Communication, Partition, compute_cost, partition_cost, slot_costs
from wattune.physics.spend import tabulate

A100 = load_model("a100")
ATTENTION = (
    Phase(name="norm", dram_bytes=5e8, launches=5),
    Phase(name="qkv", flops=1.6e11, pipe=Pipe.FP16, dram_bytes=3e8, launches=1),
    Phase(name="rope", dram_bytes=3e8, launches=2),
    Phase(name="attention", flops=6e10, pipe=Pipe.FP16, dram_bytes=2e8, launches=1),
    Phase(name="projection", flops=1e11, pipe=Pipe.FP16, dram_bytes=2e8, launches=1),
)
REDUCE = Communication.all_reduce(100e6, gpus=2)


def cost(comm_sms: int, launch: float | None, *, communication: Communication = REDUCE, model=A100):
    return partition_cost(
        model, Partition(compute=ATTENTION, communication=communication, comm_sms=comm_sms, launch=launch)
    )


def test_one_after_the_other_is_the_sum() -> None:
    alone = tabulate(A100, Workload(name="attention", phases=ATTENTION))[0]
    sequential = cost(8, None)
    assert sequential.time_s == pytest.approx(alone.iteration_s + sequential.exposed_s)
    assert np.all(sequential.energy_j > alone.iteration_j * 0.95)


def test_more_sms_make_communication_faster_up_to_the_link() -> None:
    """All-reduces beside nothing on an A100: 5 ms on one SM, 2.4 on two, 0.5 on twenty (ml-energy/kareus)."""
    exposed_ms = [1000 * cost(sms, None).exposed_s[-1] for sms in (1, 2, 5, 20)]
    assert exposed_ms == sorted(exposed_ms, reverse=True)
    assert exposed_ms[0] == pytest.approx(5.2, rel=0.1)
    assert exposed_ms[0] / exposed_ms[1] == pytest.approx(1.95, rel=0.1)
    assert exposed_ms[-1] > 1000 * 100e6 / 300e9
    # A link of its full rate cannot be had from a lower clock with few SMs.
    assert cost(2, None).exposed_s[0] > 4 * cost(2, None).exposed_s[-1]


def test_beside_each_other_both_take_less_than_one_after_the_other() -> None:
    """Published: sequential execution is 10 % slower on the average and 27 % at most."""
    gain = cost(8, None).time_s / cost(8, 0.0).time_s - 1
    assert np.all((gain > 0.02) & (gain < 0.35))


def test_computation_slows_down_by_what_it_loses() -> None:
    """Published: 19 % on the average and 40 % at most, while communication runs."""
    long_reduce = Communication.all_reduce(2e9, gpus=2)
    alone_s = tabulate(A100, Workload(name="attention", phases=ATTENTION))[0].iteration_s
    for comm_sms, most in ((4, 0.25), (16, 0.40), (24, 0.60)):
        beside = cost(comm_sms, 0.0, communication=long_reduce)
        slowdown = (beside.time_s - beside.exposed_s) / alone_s - 1
        assert np.all(slowdown > comm_sms / 108 * 0.3)
        assert np.all(slowdown < most)


def test_a_late_launch_exposes_more() -> None:
    exposed = [cost(2, launch).exposed_s[-1] for launch in (0.0, 0.3, 0.6, 1.0)]
    assert exposed == sorted(exposed)
    assert cost(2, 1.0).time_s == pytest.approx(cost(2, None).time_s)
    assert cost(2, 1.0).energy_j == pytest.approx(cost(2, None).energy_j)


def test_the_best_choice_of_sms_depends_on_the_launch() -> None:
    def best(launch: float | None) -> int:
        return min(range(1, 40), key=lambda sms: cost(sms, launch).time_s[-1])

    assert best(None) == 39
    assert best(0.0) < 10


def test_few_copying_sms_draw_little() -> None:
    """Beside nothing, an all-reduce on one SM of an A100 drew some 104 W, a little more than idling."""
    long_reduce = Communication.all_reduce(10e9, gpus=2)
    tiny = Partition(compute=(Phase(name="nothing", launches=1),), communication=long_reduce, comm_sms=1, launch=None)
    assert partition_cost(A100, tiny).power_w[-1] == pytest.approx(104, rel=0.06)


def test_collectives_send_what_the_ring_needs() -> None:
    assert Communication.all_reduce(8e6, gpus=4).link_bytes == pytest.approx(12e6)


@pytest.mark.parametrize(
    ("comm_sms", "launch", "complaint"),
    [(0, 0.0, "0 of 108 SMs"), (108, 0.0, "108 of 108"), (4, 1.5, "between 0 and 1"), (4, -0.1, "between 0 and 1")],
)
def test_impossible_partitions_are_refused(comm_sms: int, launch: float, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        cost(comm_sms, launch)


def test_communication_that_is_impossible_is_refused() -> None:
    with pytest.raises(NotSupported, match="no known link"):
        cost(4, 0.0, model=replace(A100, link=None))
    with pytest.raises(InputError, match="alone"):
        Communication.all_reduce(1.0, gpus=1)
    with pytest.raises(InputError, match="computes something"):
        partition_cost(A100, Partition(compute=(), communication=REDUCE, comm_sms=1, launch=None))


def test_collectives_that_move_less_send_half_of_a_sum() -> None:
    for make in (Communication.all_gather, Communication.reduce_scatter, Communication.all_to_all):
        assert make(8e6, gpus=4).link_bytes == pytest.approx(6e6)


def test_a_launch_at_a_slot_is_one_at_its_share() -> None:
    alone_s = np.cumsum([compute_cost(A100, (phase,)).time_s[-1] for phase in ATTENTION])
    slots = slot_costs(A100, ATTENTION, REDUCE, comm_sms=6, launches=(0, 3, None))
    assert slots.time_s.shape == (3, len(slots.sm_mhz))
    shares = (0.0, float(alone_s[2] / alone_s[-1]), None)
    for row, share in enumerate(shares):
        assert slots.time_s[row, -1] == pytest.approx(cost(6, share).time_s[-1])
        assert slots.energy_j[row, -1] == pytest.approx(cost(6, share).energy_j[-1])
    with pytest.raises(InputError, match="5 phases has no such"):
        slot_costs(A100, ATTENTION, REDUCE, comm_sms=6, launches=(5,))


def test_static_and_dynamic_energy_add_up() -> None:
    partition = Partition(compute=ATTENTION, communication=REDUCE, comm_sms=8, launch=0.0)
    found = partition_cost(A100, partition, temperature_c=40.0)
    assert found.static_j + found.dynamic_j == pytest.approx(found.energy_j)
    idle_w = found.static_j / found.time_s
    assert np.all(idle_w < A100.context_idle_w(np.array(found.sm_mhz), None) * 1.3)
    assert np.all(partition_cost(A100, partition, temperature_c=60.0).static_j > found.static_j)


def test_computation_alone_needs_no_link() -> None:
    assert compute_cost(replace(A100, link=None), ATTENTION).energy_j == pytest.approx(
        compute_cost(A100, ATTENTION).energy_j
    )
    assert compute_cost(A100, ATTENTION).energy_j == pytest.approx(
        tabulate(A100, Workload(name="attention", phases=ATTENTION))[0].iteration_j
    )
