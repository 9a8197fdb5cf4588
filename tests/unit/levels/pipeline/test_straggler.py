from __future__ import annotations

import pytest

from pipelines import BLOCKING_W, planned_pipeline
from wattune.core.errors import Infeasible, PlanError
from wattune.levels.pipeline.planned import choose
from wattune.levels.pipeline.straggler import answer_slowdown, answer_straggler


@pytest.fixture(scope="module")
def planned():
    return planned_pipeline()


def test_a_straggler_gets_the_best_plan_that_is_done_in_time(planned):
    for trial in planned.frontier:
        answer = answer_straggler(planned, trial.cost.time_s)
        assert answer.trial is trial
        assert answer.wait_s == 0
        assert answer.energy_j == trial.cost.energy_j


def test_beyond_the_time_of_least_energy_ranks_wait(planned):
    cheapest = planned.frontier.cheapest
    answer = answer_straggler(planned, cheapest.cost.time_s + 2.0)
    assert answer.trial is cheapest
    assert answer.wait_s == pytest.approx(2.0)
    assert answer.energy_j == pytest.approx(cheapest.cost.energy_j + 2.0 * 3 * BLOCKING_W)
    default = planned.default.cost
    waited_s = cheapest.cost.time_s + 2.0 - default.time_s
    assert answer.default_energy_j == pytest.approx(default.energy_j + waited_s * 3 * BLOCKING_W)


def test_the_saving_is_never_negative_and_best_near_the_time_of_least_energy(planned):
    slowest = planned.frontier.cheapest.cost.time_s / planned.default.cost.time_s
    savings = [answer_slowdown(planned, factor).saving_percent for factor in (1.0, slowest, 3 * slowest)]
    assert 0 < savings[0] < savings[1]
    assert savings[2] < savings[1]


@pytest.mark.parametrize("factor", [0.9, 0.0, -1.0, float("nan")])
def test_a_straggler_that_is_faster_is_refused(planned, factor):
    with pytest.raises(Infeasible):
        answer_slowdown(planned, factor)
    with pytest.raises(Infeasible):
        answer_straggler(planned, factor * 1e-6)


def test_without_a_deadline_the_plan_is_no_slower_than_the_default(planned):
    chosen = choose(planned)
    assert chosen.plan.cost.time_s <= planned.default.cost.time_s * (1 + 1e-12)
    assert chosen.plan.cost.energy_j < planned.default.cost.energy_j


def test_a_deadline_that_nothing_meets_is_infeasible(planned):
    with pytest.raises(Infeasible, match="the frontier takes"):
        choose(planned, deadline_s=1e-6)


def test_choosing_an_unknown_plan_is_refused(planned):
    from dataclasses import replace

    with pytest.raises(PlanError, match="no plan 99"):
        replace(planned, chosen=99)


def test_each_rank_gets_its_instructions_in_order(planned):
    plan = planned.plan.choice
    assert len(plan.ranks) == 3
    assert [step.span for step in plan.ranks[2][:3]] == ["forward 2.0", "backward 2.0", "forward 2.1"]
    assert [step.span for step in plan.ranks[0][:3]] == ["forward 0.0", "forward 0.1", "forward 0.2"]
    for steps in plan.ranks:
        assert len(steps) == 8
        assert all(step.setting.sm_mhz in (1400, 1200, 1000, 800) for step in steps)
