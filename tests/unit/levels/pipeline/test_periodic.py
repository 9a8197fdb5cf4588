"""Long pipelines by their period: beside the exact linear programme of the same graph."""

import numpy as np
import pytest

from pipelines import small_profile
from wattune.levels.pipeline.planner import options_by_kind
from wattune.levels.pipeline.solver import series as series_module
from wattune.levels.pipeline.solver.periodic import Periodic
from wattune.levels.pipeline.solver.relaxation import Relaxation
from wattune.levels.pipeline.solver.rounding import Rounding
from wattune.levels.pipeline.solver.series import MicrobatchSeries
from wattune.levels.pipeline.solver.steady import SteadyRounding
from wattune.plans.plan import Operation, WorkGraph

BLOCKING_W = 60.0


def problem(schedule, microbatches, *, stages=4, chunks=1):
    profile = small_profile(stages)
    graph = profile.shape(schedule, microbatches, chunks=chunks).graph
    return graph, options_by_kind(graph, profile.options, BLOCKING_W)


def energy_j(graph, options, durations_s):
    """The effective energy of relaxed durations, by the hull of each kind."""
    pairs = zip(graph.operations, durations_s, strict=True)
    hulls = {kind: (own.hull_times_s, own.hull_effective_j) for kind, own in options.items()}
    return sum(float(np.interp(time_s, *hulls[operation.kind])) for operation, time_s in pairs)


@pytest.mark.parametrize(
    ("schedule", "chunks", "close"), [("1f1b", 1, 1e-3), ("gpipe", 1, 1e-3), ("interleaved", 2, 1e-2)]
)
def test_bound_and_plan_enclose_the_exact_value(schedule, chunks, close):
    graph, options = problem(schedule, 40, stages=4 * chunks, chunks=chunks)
    exact, periodic = Relaxation(graph, options), Periodic.of(graph, options)
    assert periodic is not None
    assert periodic.series.middle.mean() > 0.4
    waiting_w = 4 * BLOCKING_W
    slowest_s = exact.cheapest(waiting_w).time_s
    assert periodic.cheapest(waiting_w).time_s == pytest.approx(slowest_s, rel=0.01)
    fastest_s = Rounding.of(graph, options).time_of((0,) * len(graph.operations))
    for share in (1.0, 0.6, 0.1):
        time_s = fastest_s + share * (slowest_s - fastest_s)
        value_j, found = exact.at(time_s).effective_j, periodic.at(time_s)
        total_j = value_j + waiting_w * time_s
        assert found.effective_j <= value_j + 1e-6
        assert found.effective_j == pytest.approx(value_j, abs=close * total_j)
        assert graph.makespan_s(tuple(found.durations_s)) == pytest.approx(time_s, rel=1e-6)
        planned_j = energy_j(graph, options, found.durations_s)
        assert value_j - 1e-6 <= planned_j <= value_j + close * total_j


def test_every_instruction_of_the_middle_is_found_once(monkeypatch):
    graph, options = problem("1f1b", 40)
    series = MicrobatchSeries.of(graph, list(options))
    rounding = Rounding.of(graph, options)
    steady = SteadyRounding(graph, options, series, rounding)
    operations = np.concatenate([menu.operations.ravel() for menu in steady._menus])
    assert sorted(operations.tolist()) == np.flatnonzero(series.middle).tolist()
    monkeypatch.setattr(series_module, "NEAR", 16)
    assert MicrobatchSeries.of(graph, list(options)).middle.sum() > series.middle.sum()


def test_a_steady_plan_ends_in_time_and_spends_little_more_than_relaxed():
    graph, options = problem("1f1b", 60)
    periodic, rounding = Periodic.of(graph, options), Rounding.of(graph, options)
    steady = SteadyRounding(graph, options, periodic.series, rounding)
    slowest_s = periodic.cheapest(4 * BLOCKING_W).time_s
    fastest_s = rounding.time_of((0,) * len(graph.operations))
    for time_s in np.linspace(fastest_s, slowest_s, 7)[1:].tolist():
        durations_s = periodic.at(time_s).durations_s
        choice = steady.rounded(durations_s, time_s)
        assert rounding.time_of(choice) <= time_s * (1 + 1e-6)
        waiting_j = 4 * BLOCKING_W * time_s
        relaxed_j = energy_j(graph, options, durations_s) + waiting_j
        assert rounding.effective_of(choice) + waiting_j < 1.05 * relaxed_j


def test_a_graph_that_does_not_repeat_has_no_period(monkeypatch):
    monkeypatch.setattr("wattune.levels.pipeline.solver.periodic.NEAR", 20)
    generator = np.random.default_rng(3)
    operations = tuple(Operation(f"op{place}", f"kind{place % 3}", place % 2) for place in range(300))
    before = tuple(
        tuple(sorted(set(generator.integers(0, place, size=2).tolist()))) if place else () for place in range(300)
    )
    graph = WorkGraph(operations, before)
    trials = small_profile(1).options["0.forward"]
    options = options_by_kind(graph, {f"kind{number}": trials for number in range(3)}, BLOCKING_W)
    assert Periodic.of(graph, options) is None
