"""Plans whose settings are held long enough to be worth a switch."""

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fakes import FakeGpu
from wattune.core.frontier import Trial
from wattune.core.gpu_spec import Switching
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.pipeline.player import without_short_switches
from wattune.levels.pipeline.solver.plan_cost import timed
from wattune.plans.plan import Plan, StageChoice
from wattune.plans.shape import PipelineShape

MHZ = (900, 1005, 1410)
WAITING_W = 50.0
GRAPH = PipelineShape("1f1b", 2, 4).graph


def spec(latency_s):
    return replace(FakeGpu().spec, switching=Switching(sm_s=latency_s))


def profile(graph=GRAPH, *, fastest_s=0.02, lacking=()):
    """Time is inversely proportional to the clock; power goes with the square of the clock."""
    return {
        kind: tuple(
            Trial(StageChoice(Setting(mhz)), Measurement(fastest_s * 1410 / mhz, 300 * fastest_s * (mhz / 1410) ** 2))
            for mhz in MHZ
            if (kind, mhz) not in lacking
        )
        for kind in {operation.kind for operation in graph.operations}
    }


def planned(mhz, graph=GRAPH):
    """The plan of these clocks, in the graph's order, and what it takes."""
    options = profile(graph)
    trials = [
        next(trial for trial in options[operation.kind] if trial.choice.setting.sm_mhz == clock)
        for operation, clock in zip(graph.operations, mhz, strict=True)
    ]
    return timed(graph, trials, blocking_power_w=WAITING_W)


def joined(plan: Plan, latency_s, options=None):
    return without_short_switches(GRAPH, plan, options or profile(), spec=spec(latency_s), blocking_power_w=WAITING_W)


def clocks(plan, rank):
    return [plan.choices[place].setting.sm_mhz for place in GRAPH.by_rank[rank]]


def by_rank(first, second):
    places = GRAPH.by_rank
    mhz = dict(zip(places[0] + places[1], first + second, strict=True))
    return [mhz[place] for place in range(len(mhz))]


def dwells_s(plan):
    ends_s = GRAPH.finish_times_s(plan.durations_s)
    for places in GRAPH.by_rank:
        firsts = [next(run) for _, run in groupby(places, key=lambda place: plan.choices[place].setting)]
        starts_s = [ends_s[place] - plan.durations_s[place] for place in firsts] + [max(ends_s)]
        if len(firsts) > 1:
            yield from (after - before for before, after in pairwise(starts_s))


def test_a_plan_of_long_runs_stays_as_it_is():
    before = planned(by_rank([1410] * 4 + [900] * 4, [1005] * 8))
    assert joined(before.choice, 0.01) == before


def test_a_short_run_joins_the_neighbour_with_which_it_costs_less():
    first = [1410, 1410, 1410, 1005, 900, 900, 900, 900]
    after = joined(planned(by_rank(first, [1410] * 8)).choice, 0.04)
    assert (
        clocks(after.choice, 0) == [1410] * 3 + [1005] * 5
    )  # one instruction at 1410 MHz costs more than four at 1005


def test_a_short_burst_raises_its_surroundings_so_that_the_time_holds():
    first = [900, 900, 900, 1410, 900, 900, 900, 900]
    before = planned(by_rank(first, [1410] * 8))
    after = joined(before.choice, 0.03)
    assert clocks(after.choice, 0) == [1410] * 4 + [900] * 4
    assert after.cost.time_s <= before.cost.time_s


def test_unknown_switching_times_count_as_slow():
    before = planned(by_rank([1410, 900] * 4, [1410] * 8))
    unknown = joined(before.choice, None)
    assert unknown == joined(before.choice, 0.1)
    assert unknown.choice != before.choice


def test_an_operation_that_was_not_measured_at_the_neighbours_clock_keeps_its_own():
    places = GRAPH.by_rank[0]
    kind = GRAPH.operations[places[0]].kind
    backward = next(GRAPH.operations[place].kind for place in places if GRAPH.operations[place].kind != kind)
    first = [1410 if GRAPH.operations[place].kind == kind else 900 for place in places]
    before = planned(by_rank(first, [1410] * 8))
    options = profile(lacking={(backward, 1410)})
    assert clocks(joined(before.choice, 1.0, options).choice, 0) == first


@given(
    mhz=some.lists(some.sampled_from(MHZ), min_size=len(GRAPH.operations), max_size=len(GRAPH.operations)),
    latency_s=some.floats(0.0, 0.3),
)
def test_no_run_is_shorter_than_the_latency_and_no_plan_gets_slower(mhz, latency_s):
    before = planned(mhz)
    after = joined(before.choice, latency_s)
    assert after.cost.time_s <= before.cost.time_s + 1e-12
    assert all(dwell_s >= latency_s - 1e-12 for dwell_s in dwells_s(after.choice))
    for old, new in zip(before.choice.choices, after.choice.choices, strict=True):
        assert new >= old
    retimed = GRAPH.makespan_s(after.choice.durations_s)
    assert after.cost.time_s == pytest.approx(retimed)
