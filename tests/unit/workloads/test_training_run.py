from __future__ import annotations

from random import Random
from statistics import fmean, stdev

import numpy as np
import pytest

from wattune.core.setting import Setting
from wattune.core.workload import Phase
from wattune.devices.simulated import SimulatedGpu
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.workloads.catalog import make_run, make_workload
from wattune.workloads.training_run import (
    Loop,
    Period,
    Schedule,
    Wait,
    one_pass,
    periods,
    phase_counts,
    run_workload,
    total_s,
    unrolled,
)

WORK, UPDATE, SAVE = (Phase(name=name, launches=1) for name in ("work", "update", "save"))
LOADING = Wait("loading", 0.5, 0.3)
LOOP = Loop(
    "run",
    (Loop("step", (Loop("micro-step", (LOADING, WORK), 4), UPDATE), 10), SAVE),
)


def seconds(phase: Phase) -> float:
    return {"work": 1.0, "update": 2.0, "save": 7.0, "loading": phase.host_stall_s}[phase.name]


def test_a_loop_unrolls_in_order() -> None:
    names = [phase.name for phase in unrolled(LOOP, seed=1)]
    step = ["loading", "work"] * 4 + ["update"]
    assert names == step * 10 + ["save"]


def test_the_periods_are_nested() -> None:
    assert periods(LOOP, seconds) == (
        Period("run", 10 * (4 * 1.5 + 2) + 7, 1),
        Period("step", 4 * 1.5 + 2, 10),
        Period("micro-step", 1.5, 4),
    )


def test_a_loop_of_one_pass_has_no_period() -> None:
    assert [period.name for period in periods(Loop("run", (Loop("step", (WORK,)),)), seconds)] == ["run"]


def test_waits_are_drawn_from_the_seed_around_their_mean() -> None:
    assert list(unrolled(LOOP, seed=3)) == list(unrolled(LOOP, seed=3))
    assert list(unrolled(LOOP, seed=3)) != list(unrolled(LOOP, seed=4))
    random = Random(5)
    drawn = [LOADING.drawn(random).host_stall_s for _ in range(4000)]
    assert fmean(drawn) == pytest.approx(0.5, rel=0.02)
    assert stdev(drawn) / fmean(drawn) == pytest.approx(0.3, rel=0.1)


def test_counts_are_those_of_the_unrolled_loop() -> None:
    counts = phase_counts(LOOP)
    assert counts == {LOADING.typical: 40, WORK: 40, UPDATE: 10, SAVE: 1}
    assert total_s(LOOP, seconds) == sum(seconds(phase) for phase in unrolled(LOOP, seed=None))


def test_one_pass_extracts_the_named_loop() -> None:
    assert [phase.name for phase in one_pass(LOOP, "micro-step").phases] == ["loading", "work"]
    assert len(one_pass(LOOP, "step").phases) == 9
    with pytest.raises(ValueError, match="no loop 'epoch'"):
        one_pass(LOOP, "epoch")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Loop("empty", ()),
        lambda: Loop("never", (WORK,), 0),
        lambda: Wait("nothing", 0.0),
        lambda: Wait("backwards", 1.0, -1.0),
        lambda: Schedule(steps=0),
        lambda: Schedule(evaluation_batches=-1),
    ],
)
def test_impossible_loops_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"loop|wait|schedule"):
        wrong()


SCHEDULE = Schedule(
    micro_steps=4,
    steps=5,
    loading=Wait("loading", 0.02),
    evaluation_batches=3,
    evaluations=2,
    checkpoint=Wait("checkpoint", 0.5),
)


def test_a_network_trained_to_a_schedule_has_a_period_for_each_level() -> None:
    model, run = load_model("a100"), make_run("resnet18:64", SCHEDULE)

    def at_top_clock(phase: Phase) -> float:
        return float(tabulate(model, one_pass(Loop("x", (phase,)), "x"))[0].iteration_s[-1])

    found = {period.name: period for period in periods(run, at_top_clock)}
    assert list(found) == ["resnet18:64", "evaluation", "step", "micro-step", "evaluated batch"]
    micro_s, step_s = found["micro-step"].period_s, found["step"].period_s
    assert 4 * micro_s < step_s < 4.2 * micro_s  # the optimizer's step is short
    assert found["evaluation"].period_s == pytest.approx(5 * step_s + 3 * found["evaluated batch"].period_s)
    assert found["resnet18:64"].period_s == pytest.approx(2 * found["evaluation"].period_s + 0.5)


def test_accumulated_steps_do_the_work_of_several_iterations_and_one_update() -> None:
    step = one_pass(make_run("resnet18:64", SCHEDULE), "step")
    iteration = make_workload("resnet18:64")
    update = iteration.phases[-1].flops
    assert step.flops == pytest.approx(4 * (iteration.flops - update) + update)


def test_a_simulated_gpu_takes_the_time_of_the_periods() -> None:
    model, run = load_model("3080ti"), make_run("resnet18:64", SCHEDULE)
    lock = Setting(sm_mhz=1200)  # far below what the power limit allows
    gpu = SimulatedGpu(model)
    gpu.apply(lock)
    before_s = gpu.count().time_s
    gpu.run(run_workload(run, seed=1), iterations=3)

    def at_lock(phase: Phase) -> float:
        table = tabulate(model, one_pass(Loop("x", (phase,)), "x"))[0]
        return float(table.iteration_s[table.sm_mhz.index(lock.sm_mhz)])

    expected_s = 3 * periods(run, at_lock)[0].period_s
    assert gpu.count().time_s - before_s == pytest.approx(expected_s, rel=1e-6)


def test_the_power_of_a_run_repeats_with_each_of_its_periods() -> None:
    """A trace shifted by a period looks like itself; shifted by half of the shortest, it does not."""
    model = load_model("3080ti")
    schedule = Schedule(micro_steps=4, steps=3, loading=Wait("loading", 0.03), evaluation_batches=2, evaluations=2)
    run = make_run("resnet18:64", schedule)
    table = tabulate(model, run_workload(run, seed=1))[0]
    column = table.sm_mhz.index(1200)

    def at_lock(phase: Phase) -> float:
        return float(tabulate(model, one_pass(Loop("x", (phase,)), "x"))[0].iteration_s[column])

    tick_s = 0.001
    ends_s = np.cumsum(table.duration_s[:, column])
    rows = np.searchsorted(ends_s, np.arange(0.0, 4 * ends_s[-1], tick_s) % ends_s[-1])
    power_w = table.power_w[rows, column]
    power_w = power_w - power_w.mean()

    def likeness(lag_s: float) -> float:
        lag = round(lag_s / tick_s)
        return float(np.corrcoef(power_w[:-lag], power_w[lag:])[0, 1])

    found = {period.name: period.period_s for period in periods(run, at_lock)}
    assert likeness(found[run.name]) > 0.95
    assert likeness(found["evaluation"]) > 0.95
    assert min(likeness(found["step"]), likeness(found["micro-step"])) > 0.5
    assert likeness(found["micro-step"] / 2) < 0.2
