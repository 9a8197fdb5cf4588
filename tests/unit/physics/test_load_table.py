from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wattune.physics.catalog import load_model
from wattune.physics.load_table import LoadTable
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_workload


def a_table(duration_s: list[list[float]], power_w: list[list[float]]) -> LoadTable:
    duration = np.array(duration_s)
    return LoadTable(
        name="load",
        mem_mhz=1215,
        sm_mhz=(700, 1400),
        duration_s=duration,
        power_w=np.array(power_w),
        sm_util=np.ones(duration.shape[0]),
        mem_util=np.zeros_like(duration),
    )


def test_totals_of_an_iteration() -> None:
    table = a_table([[1.0, 0.5], [3.0, 2.0]], [[100.0, 150.0], [200.0, 300.0]])
    assert table.iteration_s.tolist() == [4.0, 2.5]
    assert table.iteration_j.tolist() == [700.0, 675.0]
    assert table.mean_power_w.tolist() == [175.0, 270.0]


def test_a_limit_acts_on_what_the_firmware_remembers() -> None:
    """A wait much shorter than its average counts in full, a long one hardly at all."""

    def limited_w(wait_s: float, work_s: float) -> float:
        table = a_table([[work_s, work_s], [wait_s, wait_s]], [[300.0, 300.0], [60.0, 60.0]])
        return float(replace(table, sm_util=np.array([1.0, 0.0])).limited_power_w[0])

    assert limited_w(0.001, 0.001) == pytest.approx(180.0, rel=0.01)
    assert limited_w(0.5, 0.5) == pytest.approx(300 - 240 * 0.06 / 0.56, rel=0.01)
    assert limited_w(10.0, 10.0) > 298
    busy = a_table([[1.0, 0.5], [3.0, 2.0]], [[100.0, 150.0], [200.0, 300.0]])
    assert busy.limited_power_w == pytest.approx(busy.mean_power_w)


@pytest.mark.parametrize("phases", [1, 2, 7, 32, 500])
def test_coarsening_keeps_time_and_energy(phases: int) -> None:
    table = tabulate(load_model("a100"), make_workload("resnet50"))[0]
    coarse = table.merged(table.intervals(phases))
    assert coarse.duration_s.shape[0] <= phases
    assert coarse.iteration_s == pytest.approx(table.iteration_s)
    assert coarse.iteration_j == pytest.approx(table.iteration_j)


@pytest.mark.parametrize(
    ("duration_s", "power_w", "complaint"),
    [
        ([[1.0]], [[100.0]], "for 2 clocks"),
        ([[1.0, 1.0]], [[100.0, 100.0], [100.0, 100.0]], "differ in shape"),
        ([[0.0, 1.0]], [[100.0, 100.0]], "positive"),
        ([[1.0, 1.0]], [[100.0, -1.0]], "positive"),
    ],
)
def test_impossible_tables_are_refused(
    duration_s: list[list[float]], power_w: list[list[float]], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        a_table(duration_s, power_w)
