from __future__ import annotations

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.workload import Phase, Pipe, Workload
from wattune.physics.catalog import load_model
from wattune.physics.spend import bandwidth_bytes_per_s, smooth_maximum, tabulate

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
    table = tabulate(A100, Workload(name="w", phases=(phase,)))[0]
    assert table.duration_s.shape == (2, 81)
    assert table.duration_s[1] == pytest.approx(np.full(81, 0.25))
    assert table.power_w[1] == pytest.approx(A100.context_idle_w(np.array(table.sm_mhz, dtype=float), 1215))
    assert table.sm_util.tolist() == [1.0, 0.0]


def test_a_workload_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="'w' asks for nothing"):
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
    assert bandwidth_bytes_per_s(model, high, 5001)[0] == pytest.approx(912e9 * 0.88 * 5001 / 9501)
