"""Plans that change clocks no faster than a GPU can: beside brute force on small graphs."""

from itertools import groupby, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import BLOCKING_W, planned_pipeline, small_profile
from wattune.core.errors import InputError, PlanError
from wattune.core.frontier import Frontier, Trial
from wattune.core.measurement import Measurement
from wattune.core.setting import Setting
from wattune.levels.pipeline.plan_file import parse_plan, plan_text
from wattune.levels.pipeline.planned import Source, choose, plan_profile, verify
from wattune.levels.pipeline.solver.plan_cost import charged
from wattune.levels.pipeline.solver.switched import SwitchedFrontiers, plan_switched
from wattune.levels.pipeline.solver.switching import ClockSwitching, held_settings, new_settings, shortest_dwell_s
from wattune.plans.plan import Operation, Plan, StageChoice, WorkGraph

SLOW = ClockSwitching(0.05, 0.0002, "a test")


def is_held(chosen, times_s, latency_s):
    """Return whether one setting holds throughout, or every run of settings lasts at least L."""
    runs = [[place for place, _ in own] for _, own in groupby(enumerate(chosen), key=lambda pair: pair[1])]
    lasts_s = [sum(times_s[place][chosen[place]] for place in own) for own in runs]
    return len(runs) == 1 or min(lasts_s) >= latency_s - 1e-9


def cost_of(chosen, costs, stalls):
    changes = sum(stalls[place] for place in range(1, len(chosen)) if chosen[place] != chosen[place - 1])
    return sum(costs[place][setting] for place, setting in enumerate(chosen)) + changes


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_settings_of_a_rank_are_the_cheapest_that_are_held_long_enough(data):
    ranks, count, choices = (data.draw(st.integers(1, most)) for most in (2, 6, 3))
    number = st.integers(1, 20)
    costs, times_s = (
        [[[data.draw(number) for _ in range(choices)] for _ in range(count)] for _ in range(ranks)] for _ in range(2)
    )
    stalls = [[data.draw(st.integers(0, 5)) for _ in range(count)] for _ in range(ranks)]
    latency_s = data.draw(st.integers(0, 40))
    every = list(product(range(choices), repeat=count))
    found = held_settings(*(np.array(own, float) for own in (costs, times_s, stalls)), float(latency_s))
    for rank, chosen in enumerate(found.tolist()):
        allowed = [own for own in every if is_held(own, times_s[rank], latency_s)]
        best = min(cost_of(own, costs[rank], stalls[rank]) for own in allowed)
        assert is_held(chosen, times_s[rank], latency_s)
        assert cost_of(chosen, costs[rank], stalls[rank]) == pytest.approx(best)


@st.composite
def small_problems(draw):
    count = draw(st.integers(2, 5))
    ranks = [draw(st.integers(0, 1)) for _ in range(count)]
    before = []
    for place in range(count):
        same = [other for other in range(place) if ranks[other] == ranks[place]][-1:]
        others = draw(st.sets(st.integers(0, place - 1), max_size=2)) if place else set()
        before.append(tuple(sorted({*same, *others})))
    graph = WorkGraph(tuple(Operation(f"op{i}", f"kind{i % 2}", ranks[i]) for i in range(count)), tuple(before))
    profile = {
        f"kind{kind}": tuple(
            Trial(
                StageChoice(Setting(1400 - 200 * option)),
                Measurement(draw(st.floats(0.1, 1)) * (1 + option), draw(st.floats(30, 300))),
            )
            for option in range(3)
        )
        for kind in range(2)
    }
    return graph, profile


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.floats(0.0, 2.0), st.floats(0.0, 0.05))
def test_plans_never_switch_too_fast_and_their_costs_add_up(problem, latency_s, stall_s):
    graph, profile = problem
    switching = ClockSwitching(latency_s, stall_s, "a test")
    found = plan_switched(graph, profile, blocking_power_w=20.0, switching=switching, points=6)
    by_choice = {(kind, trial.choice): trial for kind, own in profile.items() for trial in own}
    every = [
        charged(graph, chosen, switching, blocking_power_w=20.0)
        for chosen in product(*(profile[operation.kind] for operation in graph.operations))
    ]
    for trial in found.frontier:
        plain = [by_choice[op.kind, own] for op, own in zip(graph.operations, trial.choice.choices, strict=True)]
        again = charged(graph, plain, switching, blocking_power_w=20.0)
        assert again.cost.time_s == pytest.approx(trial.cost.time_s)
        assert again.cost.energy_j == pytest.approx(trial.cost.energy_j)
        busy_j, busy_s = sum(again.choice.energies_j), sum(again.choice.durations_s)
        waiting_s = len(graph.by_rank) * again.cost.time_s - busy_s
        assert again.cost.energy_j == pytest.approx(busy_j + 20.0 * waiting_s)
        dwell_s = shortest_dwell_s(trial.choice)
        assert dwell_s is None or dwell_s >= latency_s - 1e-9
        best_j = min(own.cost.energy_j for own in every if own.cost.time_s <= trial.cost.time_s + 1e-9)
        assert trial.choice.bound_j <= best_j + 1e-6
    assert found.frontier.fastest.cost.time_s >= min(own.cost.time_s for own in every) - 1e-9


def test_a_stall_is_hidden_where_a_rank_waits():
    graph = WorkGraph((Operation("a", "k", 0), Operation("b", "k", 1), Operation("c", "k", 1)), ((), (0,), (1,)))
    high, low = StageChoice(Setting(1400)), StageChoice(Setting(800))
    trials = [
        Trial(high, Measurement(1.0, 300.0)),
        Trial(low, Measurement(2.0, 300.0)),
        Trial(high, Measurement(1, 300)),
    ]
    switching = ClockSwitching(0.01, 0.5, "a test")
    found = charged(graph, trials, switching, blocking_power_w=20.0)
    assert new_settings(graph, found.choice.choices) == [1, 2]
    # The first of rank 1 waits for rank 0 anyway; the second starts half a second later.
    assert found.choice.durations_s == (1.0, 2.0, 1.5)
    assert found.cost.time_s == 4.5
    assert found.cost.energy_j == pytest.approx(900 + 20 * (0.5 + 3.5 + 1.0))


def test_a_stall_delays_what_follows_once():
    operations = (Operation("x", "k", 1), Operation("y", "k", 1), Operation("w", "k", 0), Operation("z", "k", 1))
    graph = WorkGraph(operations, ((), (0,), (), (1, 2)))
    high, low = StageChoice(Setting(1400)), StageChoice(Setting(800))
    trials = [Trial(own, Measurement(time_s, 90.0)) for own, time_s in ((high, 1), (low, 1), (high, 3.2), (high, 1))]
    found = charged(graph, trials, ClockSwitching(0.01, 0.5, "a test"), blocking_power_w=20.0)
    # The stall before y ends at 1.5 s; that before z ends at 3.0 s, while z waits for w.
    assert found.choice.durations_s == (1, 1.5, 3.2, 1)
    assert found.cost.time_s == pytest.approx(4.2)


def test_the_loss_of_a_plan_between_two_free_ones_is_seen():
    def trial(time_s, energy_j):
        graph = WorkGraph((Operation("x", "k", 0),), ((),))
        return Trial(Plan(graph, (StageChoice(Setting(1400)),), (time_s,), (energy_j,)), Measurement(time_s, energy_j))

    frontiers = SwitchedFrontiers(Frontier(()), Frontier((trial(1.0, 100.0), trial(2.0, 80.0))))
    assert frontiers.free_energy_j(trial(1.5, 95.0)) == pytest.approx(90.0)
    assert frontiers.free_energy_j(trial(1.5, 85.0)) == 85.0
    assert frontiers.free_energy_j(trial(3.0, 85.0)) == 80.0
    assert frontiers.free_energy_j(trial(0.9, 105.0)) == 100.0


def planned_slowly(stages=3, microbatches=6):
    profile = small_profile(stages)
    shape = profile.shape("1f1b", microbatches)
    source = Source(profile.file, "0" * 64, profile.simulated)
    return choose(plan_profile(profile, shape, source=source, blocking_power_w=BLOCKING_W, points=8, switching=SLOW))


def test_slow_switching_costs_energy_and_is_in_the_plan_file():
    planned, free = planned_slowly(), planned_pipeline(microbatches=6, points=8)
    assert len(planned.switching_losses_percent) == len(planned.frontier)
    assert min(planned.switching_losses_percent) >= 0
    assert max(planned.switching_losses_percent) > 0
    for trial in planned.frontier:
        dwell_s = shortest_dwell_s(trial.choice)
        assert dwell_s is None or dwell_s >= SLOW.latency_s - 1e-9
    assert min(shortest_dwell_s(trial.choice) or 1 for trial in free.frontier) < SLOW.latency_s
    again = parse_plan(plan_text(planned), file="plan.json")
    assert again == planned
    assert again.switching == SLOW
    for cost, trial in zip(verify(again, small_profile()), again.frontier, strict=True):
        assert cost.time_s == pytest.approx(trial.cost.time_s)
        assert cost.energy_j == pytest.approx(trial.cost.energy_j)


def test_files_from_before_switching_was_known_are_read():
    planned = planned_pipeline()
    text = plan_text(planned)
    assert '"switching": null' in text
    assert parse_plan(text.replace('  "switching": null,\n', ""), file="plan.json") == planned


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"latency_s": 0.05', '"latency_s": -1', "latency and stall"),
        ('"free_energy_j": [', '"free_energy_j": [1.0, ', "one entry per plan"),
        ('"free_energy_j": [', '"free_energy_j": "x", "rest": [', "switching.free_energy_j"),
    ],
)
def test_wrong_switching_in_a_file_is_refused(right, wrong, message):
    text = plan_text(planned_slowly())
    assert right in text
    with pytest.raises((PlanError, InputError), match=message):
        parse_plan(text.replace(right, wrong, 1), file="plan.json")
