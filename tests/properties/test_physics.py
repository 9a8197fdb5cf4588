"""What holds for every GPU and every load, whatever their numbers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.setting import Setting
from wattune.core.workload import Phase, Pipe, Workload
from wattune.devices.passing_time import VirtualTime
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import catalog_names, load_model
from wattune.physics.operating_point import loaded_point
from wattune.physics.spend import tabulate

models = st.sampled_from([load_model(name) for name in catalog_names()])
phases = st.builds(
    Phase,
    name=st.just("phase"),
    flops=st.just(0.0) | st.floats(1e6, 1e15),
    pipe=st.sampled_from(Pipe),
    dram_bytes=st.just(0.0) | st.floats(1e3, 1e12),
    launches=st.floats(1, 1e4),
    host_stall_s=st.just(0.0) | st.floats(1e-6, 2.0),
)
loads = st.lists(phases, min_size=1, max_size=6).map(lambda some: Workload(name="load", phases=tuple(some)))


@given(models, loads)
def test_more_clock_takes_no_longer_and_draws_no_less(model, load) -> None:
    for table in tabulate(model, load):
        assert np.all(np.diff(table.duration_s, axis=1) <= 1e-12 * table.duration_s[:, 1:])
        assert np.all(np.diff(table.power_w, axis=1) >= -1e-9 * table.power_w[:, 1:])
        assert np.all(table.power_w > 0)
        assert np.all((table.mem_util >= 0) & (table.mem_util <= 1))


@given(models, loads)
def test_less_memory_clock_takes_no_less_time(model, load) -> None:
    tables = tabulate(model, load)
    for faster, slower in pairwise(tables):
        common = len(slower.sm_mhz) if slower.sm_mhz == faster.sm_mhz[: len(slower.sm_mhz)] else 0
        assert np.all(slower.iteration_s[:common] >= faster.iteration_s[:common] * (1 - 1e-12))


@given(models, loads, st.integers(1, 40))
def test_coarsening_keeps_totals(model, load, count) -> None:
    table = tabulate(model, load)[0]
    coarse = table.merged(table.intervals(count))
    assert coarse.iteration_s == pytest.approx(table.iteration_s)
    assert coarse.iteration_j == pytest.approx(table.iteration_j)


@given(models, loads)
def test_an_iteration_is_the_sum_of_its_phases(model, load) -> None:
    whole = tabulate(model, load, temperature_c=60.0)[0]
    parts = [tabulate(model, Workload(name="part", phases=(phase,)), temperature_c=60.0)[0] for phase in load.phases]
    assert whole.iteration_s == pytest.approx(sum(part.iteration_s for part in parts))
    assert whole.iteration_j == pytest.approx(sum(part.iteration_j for part in parts))


@given(models, loads, st.data())
def test_the_mean_power_never_exceeds_the_limit_above_the_lowest_clock(model, load, data) -> None:
    limits = model.power_limits
    limit_w = data.draw(st.floats(limits.min_w, limits.max_w)) if limits else None
    lock_mhz = data.draw(st.none() | st.sampled_from(model.clocks[0].sm_mhz))
    mean_w = tuple(table.mean_power_w for table in tabulate(model, load))
    point = loaded_point(model, Setting(sm_mhz=lock_mhz, power_limit_w=limit_w), mean_w)
    limit_w = min(model.default_limit_w if limit_w is None else limit_w, model.thermal.most_w)
    assert point.column == 0 or mean_w[0][point.column] <= limit_w
    assert lock_mhz is None or point.sm_mhz <= lock_mhz
    above = mean_w[0][point.column + 1 :]
    allowed = [mhz for mhz in model.clocks[0].sm_mhz if lock_mhz is None or mhz <= lock_mhz]
    assert all(power_w > limit_w for power_w in above[: len(allowed) - point.column - 1])


@settings(deadline=None)
@given(models, loads, st.lists(st.integers(1, 10**6), min_size=1, max_size=5))
def test_splitting_a_run_gives_the_same_result(model, load, parts) -> None:
    whole, split = SimulatedGpu(model), SimulatedGpu(model)
    whole.run(load, iterations=sum(parts))
    for part in parts:
        split.run(load, iterations=part)
    assert split.truth_j == pytest.approx(whole.truth_j, rel=1e-9)
    assert split.count().time_s == pytest.approx(whole.count().time_s, rel=1e-9)


@settings(deadline=None)
@given(models, loads, st.data())
def test_energy_adds_up_over_changes_of_clock(model, load, data) -> None:
    """However the clock is changed on the way, what was spent lies between the cheapest and the dearest power."""
    time = VirtualTime()
    gpu = SimulatedGpu(model, time=time)
    gpu.play(load)
    table = tabulate(model, load)[0]
    lowest_w, highest_w = table.power_w.min(), table.power_w.max()
    before_s, before_j = gpu.count().time_s, gpu.truth_j
    for _ in range(data.draw(st.integers(1, 5))):
        gpu.apply(Setting(sm_mhz=data.draw(st.sampled_from(model.clocks[0].sm_mhz))))
        time.wait(data.draw(st.floats(1e-3, 100.0)))
        spent_s, spent_j = gpu.count().time_s - before_s, gpu.truth_j - before_j
        assert lowest_w * spent_s * (1 - 1e-9) <= spent_j <= highest_w * spent_s * (1 + 1e-9)


@settings(deadline=None)
@given(models, loads, st.lists(st.floats(1e-4, 0.5), min_size=2, max_size=20))
def test_counters_never_go_back_and_never_run_ahead(model, load, waits) -> None:
    time = VirtualTime()
    gpu = SimulatedGpu(model, time=time)
    gpu.play(load)
    last_j = gpu.count().energy_j
    for wait_s in waits:
        time.wait(wait_s)
        now_j = gpu.count().energy_j
        assert last_j - 1e-9 <= now_j <= gpu.truth_j * (1 + 1e-9)
        last_j = now_j
