from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.physics.timing import bandwidth_bytes_per_s, smooth_maximum

A100 = load_model("a100")


def test_there_is_a_table_per_memory_clock_highest_first() -> None:
    tables = tabulate(load_model("a4000"), Workload(name="w", phases=(Phase(name="p", dram_bytes=1e9),)))
    assert [table.mem_mhz for table in tables] == [7001, 6501, 5001, 810, 405]
    assert tables[-1].sm_mhz[-1] == 420


def test_arithmetic_alone_takes_its_share_of_the_peak() -> None:
    table = tabulate(A100, Workload(name="w", phases=(Phase(name="p", flops=312e12, pipe=Pipe.FP16),)))[0]
    assert table.iteration_s[-1] == pytest.approx(1 / A100.unit(Pipe.FP16).efficiency)
    assert table.iteration_s[0] == pytest.approx(table.iteration_s[-1] * 1410 / 210)


def test_traffic_alone_takes_its_share_of_the_bandwidth() -> None:
    table = tabulate(A100, Workload(name="w", phases=(Phase(name="p", dram_bytes=1555e9),)))[0]
    assert table.iteration_s[-1] == pytest.approx(1 / A100.memory.efficiency)
    assert table.mem_util[0, -1] == pytest.approx(A100.memory.efficiency)


def test_launches_take_time_at_every_clock() -> None:
    table = tabulate(A100, Workload(name="w", phases=(Phase(name="p", launches=1000),)))[0]
    assert table.iteration_s == pytest.approx(np.full(81, 0.004))


def test_a_stall_is_a_row_of_its_own_at_context_idle() -> None:
    phase = Phase(name="p", dram_bytes=1e9, host_stall_s=0.25)
    table = tabulate(A100, Workload(name="w", phases=(phase,)), temperature_c=60.0)[0]
    clocks_mhz = np.array(table.sm_mhz, dtype=float)
    assert table.duration_s.shape == (2, 81)
    assert table.duration_s[1] == pytest.approx(np.full(81, 0.25))
    assert table.power_w[1] == pytest.approx(A100.awake_w(clocks_mhz, 1215) + A100.leak_w(clocks_mhz, 60.0))
    assert table.sm_util.tolist() == [1.0, 0.0]


def test_a_workload_without_work_is_refused() -> None:
    with pytest.raises(InputError, match="'w' has no work"):
        tabulate(A100, Workload(name="w", phases=(Phase(name="p"),)))


def test_the_smooth_maximum_lies_between_the_larger_and_the_sum() -> None:
    first, second = np.array([0.0, 1.0, 1.0, 3.0]), np.array([0.0, 0.0, 1.0, 1.0])
    together = smooth_maximum(first, second, 4.0)
    assert together == pytest.approx([0.0, 1.0, 2**0.25, 82**0.25])


def test_a_low_core_clock_limits_the_bandwidth_whatever_the_memory_clock() -> None:
    model = load_model("3080ti")
    low = np.array([210.0])
    assert bandwidth_bytes_per_s(model, low, 9501) == pytest.approx(bandwidth_bytes_per_s(model, low, 5001))
    high = np.array([2055.0])
    assert bandwidth_bytes_per_s(model, high, 5001)[0] == pytest.approx(912e9 * 0.85 * 5001 / 9501)


def test_a_slow_host_makes_the_gpu_wait_and_no_longer_than_it_must() -> None:
    phase = Phase(name="p", flops=1e13, pipe=Pipe.FP16)
    alone = tabulate(A100, Workload(name="w", phases=(phase,)))[0]
    host_s = float(alone.iteration_s[40])
    waiting = tabulate(A100, Workload(name="w", phases=(phase,), loading_s=host_s))[0]
    assert waiting.iteration_s == pytest.approx(np.maximum(alone.iteration_s, host_s), abs=1e-8)
    assert waiting.mean_power_w[-1] < alone.mean_power_w[-1]
    assert waiting.sm_util.tolist() == [1.0, 0.0]


def test_powers_hold_the_leakage_of_the_settled_temperature() -> None:
    load = Workload(name="w", phases=(Phase(name="p", flops=1e13, pipe=Pipe.FP16),))
    settled = tabulate(A100, load)[0]
    for column in (0, 40, 80):
        warm_c = A100.thermal.steady_c(float(settled.mean_power_w[column]))
        if warm_c < A100.thermal.slowdown_c:
            same = tabulate(A100, load, temperature_c=warm_c)[0]
            assert same.mean_power_w[column] == pytest.approx(settled.mean_power_w[column], rel=1e-6)
    cold = tabulate(A100, load, temperature_c=30.0)[0]
    assert np.all(cold.power_w < settled.power_w)


def test_a_byte_costs_on_its_way_through_the_cache_by_the_voltage() -> None:
    model = replace(A100, core=replace(A100.core, busy_clock_w_per_ghz=1e-9, leak_w=1e-9))
    free = replace(model, memory=replace(model.memory, l2_j_per_byte=0.0))
    load = Workload(name="w", phases=(Phase(name="p", dram_bytes=1e12),))
    extra_j = tabulate(model, load)[0].iteration_j - tabulate(free, load)[0].iteration_j
    assert extra_j[0] == pytest.approx(1e12 * 15e-12, rel=1e-3)
    assert extra_j[-1] == pytest.approx(1e12 * 15e-12 * A100.core.voltage_ratio**2, rel=1e-3)


def test_a_bent_voltage_begins_flat_and_ends_where_a_straight_one_does() -> None:
    bent = replace(A100, core=replace(A100.core, voltage_bend=1.5))
    clocks = np.array([600.0, A100.core.voltage_knee_mhz, 1200.0, 1410.0])
    straight_v, bent_v = A100.voltage(clocks), bent.voltage(clocks)
    assert bent_v[[0, 1, 3]] == pytest.approx(straight_v[[0, 1, 3]])
    assert 1.0 < bent_v[2] < straight_v[2]
