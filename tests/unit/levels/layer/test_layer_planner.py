"""Strategies, playing a plan with scattered latencies, and the verdict, on simulated layers."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from wattune.core.errors import InputError
from wattune.core.frontier import Frontier
from wattune.core.workload import Pipe, Workload
from wattune.levels.layer.costs import ALL_REDUCE, LayerCosts, simulated_costs
from wattune.levels.layer.planner import (
    EXHAUSTIVE,
    IDEAL,
    INTENSITY,
    SEGMENTS,
    SINGLE,
    STRATEGIES,
    RooflineTimes,
    plan_layers,
)
from wattune.levels.layer.playback import play
from wattune.levels.layer.switching import FREE, SwitchCost, charged, switches_of
from wattune.levels.layer.transfer import columns_to_measure, layer_class, transferred
from wattune.levels.layer.verdict import judge, within_when_played
from wattune.physics.catalog import load_model
from wattune.physics.spend import tabulate
from wattune.plans.plan import Plan
from wattune.workloads.catalog import make_layers

GPU = load_model("a4000")
CATALOGUE = SwitchCost.of(GPU.spec(), GPU.change)
SPREAD = GPU.change.sm.spread


@cache
def workload() -> Workload:
    return make_layers("vgg16", batch_size=64, pipe=Pipe.FP32)


@cache
def costs() -> LayerCosts:
    return simulated_costs(GPU, workload())


@cache
def frontier(strategy: str, latency_s: float) -> Frontier[Plan]:
    roofline = RooflineTimes.of(GPU, workload(), costs())
    return plan_layers(costs(), CATALOGUE.at(latency_s), strategy, roofline=roofline, points=20)


def saving(strategy: str, latency_s: float, slowdown: float) -> float:
    default = costs().default
    found = frontier(strategy, latency_s).within(default.time_s * (1 + slowdown) * (1 + 1e-9))
    return 1 - found.cost.energy_j / default.energy_j


def test_costs_of_layers_add_up_to_the_iteration_of_the_same_clocks() -> None:
    table = tabulate(GPU, workload())[0]
    column = GPU.clocks[0].sm_mhz.index(costs().clocks_mhz[0][0])
    assert costs().default.time_s == pytest.approx(table.iteration_s[column])
    assert costs().default.energy_j == pytest.approx(table.iteration_j[column], rel=0.01)


def test_no_setting_is_above_the_clock_that_the_driver_reaches() -> None:
    assert all(core <= costs().clocks_mhz[0][0] for core, _ in costs().clocks_mhz)


def test_one_layer_per_pass_has_the_same_totals() -> None:
    by_pass = costs().by_pass
    assert by_pass.names == ("forward", "backward", "optimizer")
    np.testing.assert_allclose(by_pass.time_s.sum(axis=0), costs().time_s.sum(axis=0))
    np.testing.assert_allclose(by_pass.energy_j.sum(axis=0), costs().energy_j.sum(axis=0))


def test_an_all_reduce_comes_before_the_optimizer() -> None:
    found = simulated_costs(GPU, workload(), all_reduce_gpus=4)
    assert found.names[-2:] == (ALL_REDUCE, "optimizer")
    assert found.default.time_s > costs().default.time_s


@pytest.mark.parametrize("latency_s", [0.0, 1e-3, 50e-3])
@pytest.mark.parametrize("slowdown", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("other", [SINGLE, INTENSITY, EXHAUSTIVE])
def test_segments_are_never_worse_than_another_strategy(latency_s: float, slowdown: float, other: str) -> None:
    limit_s = costs().default.time_s * (1 + slowdown) * (1 + 1e-9)
    if frontier(other, latency_s).fastest.cost.time_s > limit_s:
        pytest.skip("the other strategy has no plan within the limit")
    assert saving(SEGMENTS, latency_s, slowdown) >= saving(other, latency_s, slowdown) - 1e-9


def test_free_switching_is_a_bound_for_every_latency() -> None:
    for latency_s in (0.0, 1e-3, 50e-3):
        assert saving(IDEAL, latency_s, 0.05) >= saving(SEGMENTS, latency_s, 0.05) - 5e-4


def test_savings_fall_to_those_of_one_setting_as_the_latency_grows() -> None:
    found = [saving(SEGMENTS, latency_s, 0.05) for latency_s in (0.0, 1e-3, 10e-3, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1] + 0.02
    assert found[-1] == pytest.approx(saving(SINGLE, 1.0, 0.05))


def test_no_plan_is_below_its_bound() -> None:
    for trial in frontier(SEGMENTS, 1e-3):
        assert 0 < trial.choice.bound_j <= trial.cost.energy_j


def test_the_costs_of_a_plan_are_the_sum_of_its_layers_and_stalls() -> None:
    trial = frontier(SEGMENTS, 1e-3).within(costs().default.time_s * 1.05)
    assert sum(trial.choice.durations_s) == pytest.approx(trial.cost.time_s)
    assert sum(trial.choice.energies_j) == pytest.approx(trial.cost.energy_j)


def test_a_segment_shorter_than_the_latency_waits() -> None:
    columns = np.zeros(len(costs().names), dtype=np.intp)
    columns[3] = 1
    slow = SwitchCost(sm_latency_s=1.0, mem_latency_s=1.0, sm_stall_s=0.0, mem_stall_s=0.0)
    lasted_s = costs().time_s[3, 1]
    rest_s = costs().default.time_s - costs().time_s[3, 0]
    waited_s = charged(costs(), columns, slow).cost.time_s - charged(costs(), columns, FREE).cost.time_s
    assert waited_s == pytest.approx(max(1.0 - lasted_s, 0) + max(1.0 - rest_s, 0))


def test_a_rule_of_intensity_needs_the_work_of_the_layers() -> None:
    with pytest.raises(InputError, match="work of each layer"):
        plan_layers(costs(), CATALOGUE, INTENSITY)


def test_there_is_no_other_strategy() -> None:
    with pytest.raises(InputError, match="magic"):
        plan_layers(costs(), CATALOGUE, "magic")


def test_a_plan_played_without_scatter_costs_what_was_planned() -> None:
    switching = CATALOGUE.at(10e-3)
    trial = frontier(SEGMENTS, 10e-3).within(costs().default.time_s * 1.05)
    assert switches_of(trial.choice)
    played = play(costs(), trial.choice, switching, spread=0.0, seed=0)
    assert played.time_s == pytest.approx(trial.cost.time_s, rel=0.003)
    assert played.energy_j == pytest.approx(trial.cost.energy_j, rel=0.003)


def test_scattered_latencies_of_short_segments_cost_time() -> None:
    switching = replace(CATALOGUE.at(1e-3), dwell=1.0)
    trial = plan_layers(costs(), switching, SEGMENTS, points=20).within(costs().default.time_s * 1.05)
    for seed in range(4):
        played = play(costs(), trial.choice, switching, spread=SPREAD, seed=seed)
        assert played.time_s > trial.cost.time_s * 1.002


def test_the_plan_of_a_limit_keeps_it_when_played() -> None:
    limit_s = costs().default.time_s * 1.05
    found = within_when_played(
        costs(), frontier(SEGMENTS, 1e-3), switching=CATALOGUE.at(1e-3), limit_s=limit_s, spread=SPREAD
    )
    assert found.cost.time_s <= limit_s * (1 + 1e-6)


def test_the_verdict_on_a_slow_gpu_is_that_switching_does_not_pay() -> None:
    found = {name: frontier(name, CATALOGUE.sm_latency_s) for name in STRATEGIES}
    verdict = judge(costs(), CATALOGUE, found, slowdown=0.05, spread=SPREAD)
    assert not verdict.pays
    assert verdict.pays_below_s is not None
    assert verdict.pays_below_s < CATALOGUE.sm_latency_s
    assert verdict.saving(verdict.ideal.cost) > verdict.saving(verdict.single.cost) + 0.03


def test_layers_of_one_kind_and_pass_are_of_one_class() -> None:
    assert layer_class("forward/stage1/conv2") == layer_class("forward/stage3/conv1")
    assert layer_class("forward/stage1/conv2") != layer_class("backward/stage1/conv2")
    assert layer_class("forward/layer1.0.relu#2") == layer_class("forward/layer1.0.relu")
    assert layer_class("optimizer") == "optimizer optimizer"


def test_few_measurements_predict_the_others() -> None:
    columns = columns_to_measure(costs().clocks_mhz, 10)
    known = np.zeros(costs().time_s.shape)
    known[:, list(columns)] = 1
    found = transferred(costs(), known, roofline=RooflineTimes.of(GPU, workload(), costs()))
    assert found.share < 0.05
    weights = costs().time_s / costs().time_s.sum()
    assert float((np.abs(found.costs.time_s / costs().time_s - 1) * weights).sum()) < 0.02
    np.testing.assert_allclose(found.costs.time_s[:, list(columns)], costs().time_s[:, list(columns)])
