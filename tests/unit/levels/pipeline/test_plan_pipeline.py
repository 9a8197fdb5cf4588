"""The frontier of an iteration: against brute force on small graphs, against its own bound on large ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattune.core.errors import Infeasible, PlanError
from wattune.core.frontier import Trial
from wattune.core.measurement import Measurement
from wattune.levels.pipeline import planner as pipeline_module
from wattune.levels.pipeline.planner import BETWEEN, plan_pipeline
from wattune.levels.pipeline.solver.relaxation import Options, Relaxation
from wattune.plans.plan import Operation, WorkGraph
from wattune.plans.schedules import kind_of, one_forward_one_backward, work_graph


def curve(scale_s, *, clocks=6, seed=0):
    """Options as a GPU has them: slower and cheaper with every lower clock, to a point, and not quite convex."""
    generator = np.random.default_rng(seed)
    trials = []
    for place, share in enumerate(np.linspace(1.0, 0.55, clocks)):
        time_s = scale_s * (0.2 + 0.8 / share) * (1 + 0.004 * generator.standard_normal())
        power_w = 90 + 260 * share**2.5
        trials.append(Trial(1410 - 90 * place, Measurement(time_s, power_w * time_s)))
    return tuple(trials)


def profile_of(stages, *, clocks=6):
    return {
        kind_of(stage, instruction): curve(scale_s * (1 + 0.1 * (stage % 3)), clocks=clocks, seed=7 * stage)
        for stage in range(stages)
        for instruction, scale_s in (("forward", 0.05), ("backward", 0.1))
    }


def energy_j(graph, trials, blocking_power_w):
    time_s = graph.makespan_s(tuple(trial.cost.time_s for trial in trials))
    ranks = len({operation.rank for operation in graph.operations})
    busy_s = sum(trial.cost.time_s for trial in trials)
    spent_j = sum(trial.cost.energy_j for trial in trials)
    return time_s, spent_j + blocking_power_w * (ranks * time_s - busy_s)


@st.composite
def small_problems(draw):
    count = draw(st.integers(1, 5))
    before = tuple(tuple(sorted(draw(st.sets(st.integers(0, i - 1))))) if i else () for i in range(count))
    operations = tuple(
        Operation(f"op{i}", f"kind{draw(st.integers(0, 2))}", draw(st.integers(0, 1))) for i in range(count)
    )
    profile = {
        f"kind{kind}": tuple(
            Trial((kind, option), Measurement(draw(st.floats(0.1, 2)), draw(st.floats(30, 300))))
            for option in range(draw(st.integers(1, 4)))
        )
        for kind in range(3)
    }
    return WorkGraph(operations, before), profile


@settings(max_examples=150, deadline=None)
@given(small_problems())
def test_no_plan_beats_the_bound_and_every_predicted_cost_is_right(problem):
    graph, profile = problem
    frontier = plan_pipeline(graph, profile, blocking_power_w=20.0, points=8)
    every = [
        energy_j(graph, chosen, 20.0)
        for chosen in product(*(profile[operation.kind] for operation in graph.operations))
    ]
    fastest_s = min(time_s for time_s, _ in every)
    assert frontier.fastest.cost.time_s == pytest.approx(fastest_s)
    for trial in frontier:
        by_choice = {own.choice: own for own_trials in profile.values() for own in own_trials}
        time_s, spent_j = energy_j(graph, [by_choice[choice] for choice in trial.choice.choices], 20.0)
        assert trial.cost.time_s == pytest.approx(time_s)
        assert trial.cost.energy_j == pytest.approx(spent_j)
        # A plan may also be stretched by waiting, which costs blocking power; the bound allows for that.
        best_j = min(other_j for other_s, other_j in every if other_s <= trial.cost.time_s + 1e-9)
        assert trial.choice.bound_j <= best_j + 1e-6
        assert trial.choice.bound_j <= trial.cost.energy_j + 1e-6


@pytest.mark.parametrize("microbatches", [4, 12])
def test_plans_lie_close_above_their_bound(microbatches):
    graph = work_graph(one_forward_one_backward(4, microbatches))
    frontier = plan_pipeline(graph, profile_of(4, clocks=30), blocking_power_w=80.0)
    gaps = [trial.cost.energy_j / trial.choice.bound_j - 1 for trial in frontier]
    assert len(frontier) >= 30
    assert min(gaps) >= -1e-9
    assert max(gaps) < 0.01
    assert np.mean(gaps) < 0.005


def test_the_frontier_ends_at_the_time_of_least_energy():
    graph = work_graph(one_forward_one_backward(4, 8))
    frontier = plan_pipeline(graph, profile_of(4), blocking_power_w=80.0)
    default_s = graph.makespan_s(tuple(profile_of(4)[operation.kind][0].cost.time_s for operation in graph.operations))
    assert frontier.fastest.cost.time_s <= default_s + 1e-9
    assert frontier.cheapest.cost.energy_j < frontier.fastest.cost.energy_j
    straggler = frontier.within(1.5 * frontier.cheapest.cost.time_s)
    assert straggler == frontier.cheapest
    with pytest.raises(Infeasible):
        frontier.within(0.5 * default_s)


def test_given_times_are_planned_for():
    graph = work_graph(one_forward_one_backward(4, 8))
    ends = plan_pipeline(graph, profile_of(4), blocking_power_w=80.0, points=2)
    fastest_s, slowest_s = ends.fastest.cost.time_s, ends.cheapest.cost.time_s
    middle_s = (fastest_s + slowest_s) / 2
    given_s = (0.5 * fastest_s, middle_s, 2 * slowest_s)
    frontier = plan_pipeline(graph, profile_of(4), blocking_power_w=80.0, points=2, times_s=given_s)
    assert frontier == plan_pipeline(graph, profile_of(4), blocking_power_w=80.0, points=3)
    assert (len(ends), len(frontier)) == (2 + BETWEEN, 3 + 2 * BETWEEN)
    assert frontier.within(middle_s).cost.time_s == pytest.approx(middle_s, rel=0.01)


def test_a_rounded_plan_never_takes_longer_than_planned():
    graph = work_graph(one_forward_one_backward(4, 8))
    options = {kind: Options.of(trials, blocking_power_w=80.0, kind=kind) for kind, trials in profile_of(4).items()}
    relaxation = Relaxation(graph, options)
    planner = pipeline_module.PipelinePlanner(graph, options, 80.0)
    slowest_s = relaxation.cheapest(4 * 80.0).time_s
    fastest_s = planner._rounding.time_of((0,) * len(graph.operations))
    for time_s in np.linspace(fastest_s, slowest_s, 25):
        plan = planner.plan(relaxation.at(float(time_s)))
        assert plan.cost.time_s <= time_s + 1e-6


@pytest.mark.parametrize("has_period", [True, False])
def test_large_pipelines_get_plans_and_bounds_that_agree_with_the_exact_ones(monkeypatch, has_period):
    if not has_period:
        monkeypatch.setattr(pipeline_module.Periodic, "of", lambda *_: None)
    graph = work_graph(one_forward_one_backward(4, 24))
    profile = profile_of(4, clocks=20)
    exact = plan_pipeline(graph, profile, blocking_power_w=80.0)
    monkeypatch.setattr(pipeline_module, "LARGE", 10)
    grouped = plan_pipeline(graph, profile, blocking_power_w=80.0)
    for trial in grouped:
        assert trial.choice.bound_j <= trial.cost.energy_j + 1e-6
        assert trial.cost.energy_j < 1.06 * trial.choice.bound_j
        if trial.cost.time_s >= exact.fastest.cost.time_s:
            # No exact plan that is at least as fast may spend less than the grouped bound.
            best_j = min(other.cost.energy_j for other in exact if other.cost.time_s <= trial.cost.time_s + 1e-9)
            assert trial.choice.bound_j <= best_j + 1e-6


def test_operations_with_one_option_are_planned_too():
    graph = WorkGraph.chain((Operation("a", "free"), Operation("b", "fixed")))
    profile = {"free": curve(0.1), "fixed": (Trial("only", Measurement(0.5, 50.0)),)}
    frontier = plan_pipeline(graph, profile, blocking_power_w=60.0)
    assert {trial.choice.choices[1] for trial in frontier} == {"only"}


def test_profiles_that_cannot_be_planned_are_refused():
    graph = WorkGraph.chain((Operation("a", "known"), Operation("b", "unknown")))
    with pytest.raises(PlanError, match="nothing for unknown"):
        plan_pipeline(graph, {"known": curve(0.1)}, blocking_power_w=60.0)
    with pytest.raises(PlanError, match="no options"):
        plan_pipeline(graph, {"known": curve(0.1), "unknown": ()}, blocking_power_w=60.0)
    with pytest.raises(PlanError, match="0 s"):
        plan_pipeline(graph, {"known": curve(0.1), "unknown": (Trial(1, Measurement(0, 1)),)}, blocking_power_w=60.0)
    with pytest.raises(PlanError, match="not negative"):
        plan_pipeline(graph, {}, blocking_power_w=-1.0)
